//! One connection: the `redis` crate's protocol over a stream of ours.
//!
//! Who drives it is in `pump.rs`: whoever sends alone writes on the spot, and in a crowd the host's task writes many requests at
//! once, which is cheaper. docs/redis-client.md has the numbers.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
};

use redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, Value,
    aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection, SendError},
};
use tokio::sync::OnceCell;

use super::{Command, Listener, Options, Reply, fail, pump::Pump};
use crate::{driver::Fail, host::Fut, net};

/// How many requests may stand in line before those who send more have to wait.
const LINE: usize = 4096;

/// Where a connection finds its listener, which may be set after it is made.
pub(super) type Ear = Arc<Mutex<Option<Arc<dyn Listener>>>>;

pub(super) struct Connection {
    handle: MultiplexedConnection,
    pump: Arc<Pump>,
    subscribed: OnceCell<()>,
    pub(super) tracks: bool,
}

impl Connection {
    /// Connects; answers also what a task of the host must run.
    pub(super) async fn open(
        options: &Options,
        greeting: &[Command],
        ear: Ear,
    ) -> Result<(Self, Fut<'static, ()>), Fail> {
        match Self::with_protocol(options, greeting, &ear, ProtocolVersion::RESP3).await {
            // A server or proxy too old for HELLO can still keep locks; nothing is pushed then.
            Err(Opening::NoHello) => {
                match Self::with_protocol(options, greeting, &ear, ProtocolVersion::RESP2).await {
                    Err(Opening::NoHello) => Err(Fail::Invalid(strange(options))),
                    Err(Opening::Failed(fail)) => Err(fail),
                    Ok(connection) => Ok(connection),
                }
            }
            Err(Opening::Failed(fail)) => Err(fail),
            Ok(connection) => Ok(connection),
        }
    }

    async fn with_protocol(
        options: &Options,
        greeting: &[Command],
        ear: &Ear,
        protocol: ProtocolVersion,
    ) -> Result<(Self, Fut<'static, ()>), Opening> {
        let stream = net::connect(&options.address, options.tls.as_ref(), &options.name(), None)
            .await
            .map_err(Opening::Failed)?;
        let mut info = RedisConnectionInfo::default()
            .set_protocol(protocol)
            .set_db(options.database.into())
            .set_skip_set_lib_name();
        if let Some(user) = &options.credentials.user {
            info = info.set_username(user);
        }
        if let Some(password) = &options.credentials.password {
            info = info.set_password(password.expose());
        }
        let mut config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(LINE);
        if protocol == ProtocolVersion::RESP3 {
            config = config.set_push_sender(Pushes(ear.clone()));
        }
        let (handle, future) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|error| opening(options, protocol, &error))?;
        let pump = Arc::new(Pump::new(Box::pin(future)));
        let mut connection = Self { handle, pump: pump.clone(), subscribed: OnceCell::new(), tracks: false };
        let tracking = Command::new("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
        let hello = [tracking].into_iter().filter(|_| protocol == ProtocolVersion::RESP3);
        // Until its task runs, the connection is driven from here.
        let greeted = tokio::select! {
            biased;
            replies = connection.send(hello.chain(greeting.iter().cloned()).collect()) => replies,
            () = poll_fn(|cx| pump.run(cx)) => Err(Fail::Unavailable(format!("{} closed the connection", options.name()))),
        };
        let replies = greeted.map_err(Opening::Failed)?;
        // Forbidden or unknown: then nobody tells of changes, and those who wait for one ask.
        connection.tracks = protocol == ProtocolVersion::RESP3
            && replies.first().is_some_and(|r| !matches!(r, Reply::Error { .. }));
        let ear = ear.clone();
        let run = Box::pin(async move {
            poll_fn(|cx| pump.run(cx)).await;
            let listener = ear.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(listener) = listener {
                listener.cut();
            }
        });
        Ok((connection, run))
    }

    /// Whether a command can still be sent.
    pub(super) fn is_open(&self) -> bool {
        self.pump.is_open()
    }

    /// As [`Transport::send`](super::Transport::send).
    pub(super) async fn send(&self, commands: Vec<Command>) -> Result<Vec<Reply>, Fail> {
        let mut handle = self.handle.clone();
        self.pump.drive(Box::pin(async move { send_over(&mut handle, &commands).await })).await
    }

    /// As [`Transport::subscribe`](super::Transport::subscribe), for one channel.
    pub(super) async fn subscribe(&self, channel: &str) -> Result<bool, Fail> {
        if self.subscribed.initialized() {
            return Ok(false);
        }
        let (mut handle, channel) = (self.handle.clone(), channel.to_owned());
        let subscribing = async {
            let sent = Box::pin(async move { handle.subscribe(channel).await });
            self.pump.drive(sent).await.map_err(|error| match error.code() {
                Some(code) => fail(code, error.detail().unwrap_or_default()),
                None if error.kind() == redis::ErrorKind::InvalidClientConfig => {
                    Fail::Unsupported("this server cannot push".into())
                }
                None => unanswered(&error),
            })
        };
        self.subscribed.get_or_try_init(|| subscribing).await.map(|()| true)
    }
}

impl Drop for Connection {
    /// The crate would keep the socket until a silent server has answered everything.
    fn drop(&mut self) {
        self.pump.end();
    }
}

/// Hands pushes to whoever listens.
struct Pushes(Ear);

impl AsyncPushSender for Pushes {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        let listener = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(listener) = listener else { return Ok(()) };
        match (push.kind, push.data.as_slice()) {
            (PushKind::Message, [_, Value::BulkString(payload)]) => listener.message(payload),
            (PushKind::Invalidate, [Value::Array(keys)]) => {
                for key in keys {
                    if let Value::BulkString(key) = key {
                        listener.changed(Some(key));
                    }
                }
            }
            (PushKind::Invalidate, _) => listener.changed(None),
            _ => {}
        }
        Ok(())
    }
}

/// Sends commands over any connection of the crate's, each once.
pub(super) async fn send_over(
    connection: &mut impl ConnectionLike,
    commands: &[Command],
) -> Result<Vec<Reply>, Fail> {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    if let [command] = commands {
        return match connection.req_packed_command(&pack(command)).await {
            Ok(value) => Ok(vec![reply(value)]),
            Err(error) => match error.code() {
                Some(code) => Ok(vec![Reply::error(code, error.detail().unwrap_or_default())]),
                None => Err(unanswered(&error)),
            },
        };
    }
    let mut pipeline = redis::Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(pack(command));
    }
    match connection.req_packed_commands(&pipeline, 0, commands.len()).await {
        Ok(values) if values.len() == commands.len() => Ok(values.into_iter().map(reply).collect()),
        Ok(values) => {
            Err(Fail::Unknown(format!("redis answered {} of {} commands", values.len(), commands.len())))
        }
        Err(error) => Err(unanswered(&error)),
    }
}

enum Opening {
    NoHello,
    Failed(Fail),
}

fn opening(options: &Options, protocol: ProtocolVersion, error: &RedisError) -> Opening {
    let name = options.name();
    // The crate knows the sentence of older servers only, which quotes the name in another way.
    let is_unknown = error.detail().is_some_and(|said| said.starts_with("unknown command"));
    if error.kind() == redis::ErrorKind::RESP3NotSupported
        || (protocol == ProtocolVersion::RESP3 && (error.code() == Some("NOPROTO") || is_unknown))
    {
        return Opening::NoHello;
    }
    Opening::Failed(match error.code() {
        Some(code @ ("WRONGPASS" | "NOAUTH" | "NOPERM")) => {
            Fail::Denied(format!("{name} refuses the user or password: {code}"))
        }
        Some("ERR") if error.detail().is_some_and(|said| said.contains("DB index")) => {
            Fail::Invalid(format!("{name} has no database of this number; give a smaller one, such as 0"))
        }
        Some("ERR") if error.detail().is_some_and(|said| said.contains("max number of clients")) => {
            Fail::Unavailable(format!("{name} takes no more connections; raise its maxclients"))
        }
        Some(code) => match fail(code, error.detail().unwrap_or_default()) {
            Fail::Internal(said) => Fail::Invalid(format!("{name} refused the connection: {said}")),
            other => other,
        },
        None if error.kind() == redis::ErrorKind::AuthenticationFailed => {
            Fail::Denied(format!("{name} refuses the user or password"))
        }
        None if error.kind() == redis::ErrorKind::Parse && !is_cut(error) => Fail::Invalid(strange(options)),
        None if error.to_string().contains("fatal alert") => Fail::Denied(format!(
            "{name} refuses us in TLS; give cert= and key= of an authority that it trusts: {error}"
        )),
        None => Fail::Unavailable(format!("{name} closed the connection: {}{}", why(error), hint(options))),
    })
}

fn strange(options: &Options) -> String {
    format!("{} does not speak the Redis protocol; check host and port{}", options.name(), hint(options))
}

fn hint(options: &Options) -> &'static str {
    if options.tls.is_some() { "" } else { "; if it expects TLS, write rediss://" }
}

fn pack(command: &Command) -> Cmd {
    let words = command.words();
    let mut cmd = Cmd::with_capacity(words.len(), words.map(<[u8]>::len).sum());
    for word in command.words() {
        cmd.arg(word);
    }
    cmd
}

/// The connection broke while a reply was awaited: the command may have been carried out.
fn unanswered(error: &RedisError) -> Fail {
    Fail::Unknown(format!("the connection to redis broke: {}", why(error)))
}

/// Whether a reply was cut in the middle, which is no proof against the server.
fn is_cut(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Parse && error.to_string().contains("end of input")
}

/// The error in one line.
fn why(error: &RedisError) -> String {
    if is_cut(error) { "a reply was cut short".into() } else { error.to_string().replace('\n', " ") }
}

fn reply(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::Boolean(yes) => Reply::Int(yes.into()),
        Value::BulkString(text) => Reply::Text(text),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Text(text.into()),
        Value::Okay => Reply::Text(b"OK".to_vec()),
        Value::Double(number) => Reply::Text(number.to_string().into()),
        Value::Array(items) | Value::Set(items) => Reply::List(items.into_iter().map(reply).collect()),
        Value::Map(pairs) => Reply::List(pairs.into_iter().flat_map(|(k, v)| [reply(k), reply(v)]).collect()),
        Value::ServerError(error) => Reply::error(error.code(), error.details().unwrap_or_default()),
        _ => Reply::Nil,
    }
}
