//! The first words on a connection: which session it serves, and who we are.
//!
//! Source: `ConnectRequest` in `zookeeper.jute`, and `ZooKeeperServer.processConnectRequest`.

use std::{io, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    Auth, Options,
    code::Code,
    sasl,
    wire::{MAX_FRAME, Reader, Writer},
};
use crate::{driver::Fail, net::Stream, secret::Address};

/// The number of a request that shows a user and a password.
const AUTH_XID: i32 = -4;
const AUTH: i32 = 100;
const SASL: i32 = 102;

/// A session as the server knows it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    /// Whoever knows it can go on with the session, or end it.
    password: Vec<u8>,
    /// How long the session outlives the last word of its owner, as the server granted it.
    pub(crate) timeout: Duration,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({:#x}, {:?})", self.id, self.timeout)
    }
}

/// Opens a session, or goes on with one. [`Fail::NoLease`] says that the one to go on with is over.
pub(super) async fn shake(
    stream: &mut Box<dyn Stream>,
    options: &Options,
    address: &Address,
    present: Option<&Identity>,
    timeout: Duration,
    seen: i64,
) -> Result<Identity, Fail> {
    let mut talk = Talk { stream, name: options.name_of(address), is_secure: options.tls.is_some() };
    let mut writer = Writer::default();
    writer.frame(|writer| {
        writer.int(0);
        writer.long(seen);
        writer.int(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
        writer.long(present.map_or(0, |session| session.id));
        writer.bytes(present.map_or(&[0; 16], |session| &session.password));
        writer.bool(false);
    });
    let digest = options.user().filter(|_| options.auth == Auth::Digest);
    if let Some((user, password)) = digest {
        writer.frame(|writer| {
            writer.int(AUTH_XID);
            writer.int(AUTH);
            writer.int(0);
            writer.bytes(b"digest");
            writer.bytes(format!("{user}:{}", password.expose()).as_bytes());
        });
    }
    talk.send(&writer.0).await?;
    let identity = talk.identity(present).await?;
    if digest.is_some() {
        talk.reply().await?;
    }
    if let Some((user, password)) = options.user().filter(|_| options.auth == Auth::Sasl) {
        talk.sasl(user, password.expose()).await?;
    }
    Ok(identity)
}

struct Talk<'a> {
    stream: &'a mut Box<dyn Stream>,
    name: String,
    is_secure: bool,
}

impl Talk<'_> {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), Fail> {
        let sent = match self.stream.write_all(bytes).await {
            Ok(()) => self.stream.flush().await,
            error => error,
        };
        sent.map_err(|error| self.cut(&error))
    }

    async fn frame(&mut self) -> Result<Vec<u8>, Fail> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await.map_err(|error| self.cut(&error))?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(self.strange());
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame).await.map_err(|error| self.cut(&error))?;
        Ok(frame)
    }

    async fn identity(&mut self, present: Option<&Identity>) -> Result<Identity, Fail> {
        let frame = self.frame().await?;
        let mut reader = Reader(&frame);
        let (Some(_), Some(timeout), Some(id), Some(password)) =
            (reader.int(), reader.int(), reader.long(), reader.bytes())
        else {
            return Err(self.strange());
        };
        // Servers before 3.4 do not say whether they are read-only.
        if reader.bool() == Some(true) {
            return Err(Fail::Unavailable(format!("{} is read-only, it has lost its ensemble", self.name)));
        }
        // Some servers swap a session that they do not know for a new one without saying so (ClickHouse#116690). What
        // hung on the old one is gone, and must not be looked for on the new one.
        if id == 0 || timeout <= 0 || present.is_some_and(|session| session.id != id) {
            return Err(Fail::NoLease);
        }
        let timeout = Duration::from_millis(timeout as u64);
        // A server with lower limits has shortened the session, for all servers: our deadlines are counted from the length
        // that was granted first, and lie behind its end.
        if present.is_some_and(|session| timeout < session.timeout) {
            return Err(Fail::NoLease);
        }
        Ok(Identity { id, password: password.to_vec(), timeout })
    }

    /// Reads one reply and answers its body.
    async fn reply(&mut self) -> Result<Vec<u8>, Fail> {
        let frame = self.frame().await?;
        let mut reader = Reader(&frame);
        let (Some(_xid), Some(_zxid), Some(code)) = (reader.int(), reader.long(), reader.int()) else {
            return Err(self.strange());
        };
        match Code(code) {
            Code(0) => Ok(reader.0.to_vec()),
            code => match code.fail("/") {
                Fail::Internal(said) => {
                    Err(Fail::Denied(format!("{} refuses the user or password: {said}", self.name)))
                }
                fail => Err(fail),
            },
        }
    }

    async fn sasl(&mut self, user: &str, password: &str) -> Result<(), Fail> {
        let challenge = self.sasl_step(0, &[]).await?;
        let nonce = sasl::nonce().map_err(Fail::Internal)?;
        let answer = sasl::answer(&challenge, user, password, &nonce).map_err(|why| {
            Fail::Denied(format!("{} asks for a kind of SASL that we do not speak: {why}", self.name))
        })?;
        // The server's own proof of the password: whoever cannot give it is not who we look for.
        let proof = self.sasl_step(1, answer.response.as_bytes()).await?;
        if proof == answer.expected.as_bytes() {
            return Ok(());
        }
        Err(Fail::Denied(format!("{} does not know the password that it asks for", self.name)))
    }

    async fn sasl_step(&mut self, xid: i32, token: &[u8]) -> Result<Vec<u8>, Fail> {
        let mut writer = Writer::default();
        writer.frame(|writer| {
            writer.int(xid);
            writer.int(SASL);
            writer.bytes(token);
        });
        self.send(&writer.0).await?;
        let body = match self.reply().await {
            // A server that refuses a user hangs up.
            Err(Fail::Unavailable(why)) if xid > 0 => {
                return Err(Fail::Denied(format!("{} refuses the user or password: {why}", self.name)));
            }
            body => body?,
        };
        Ok(Reader(&body).bytes().unwrap_or_default().to_vec())
    }

    fn strange(&self) -> Fail {
        let (name, hint) = (&self.name, self.hint());
        Fail::Invalid(format!("{name} does not speak the protocol of ZooKeeper; check host and port{hint}"))
    }

    fn cut(&self, error: &io::Error) -> Fail {
        let (name, hint) = (&self.name, self.hint());
        match error.kind() {
            // In TLS 1.3 a client learns only now that its certificate was refused.
            _ if error.to_string().contains("fatal alert") => Fail::Denied(format!(
                "{name} refuses us in TLS; give cert= and key= of an authority that it trusts: {error}"
            )),
            io::ErrorKind::UnexpectedEof => Fail::Unavailable(format!(
                "{name} closed the connection at once, as a server does that has lost its ensemble{hint}"
            )),
            _ => Fail::Unavailable(format!("{name} closed the connection: {error}")),
        }
    }

    fn hint(&self) -> &'static str {
        if self.is_secure { "" } else { "; if it expects TLS, write zks://" }
    }
}
