//! The crate `fred`: a client that owns its tasks, on the runtime within which it is connected.

use std::net::SocketAddr;

use fred::{
    prelude::{Builder, Client, ClientLike, Config, LuaInterface, ReconnectPolicy},
    types::{
        CustomCommand, RespVersion,
        config::{Options as CommandOptions, ServerConfig},
    },
};

use super::{Answer, Candidate};
use crate::server::{SCRIPT, hash};

/// What a user may set about repeating commands.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// Each command is sent once, and fails while there is no connection.
    pub(crate) careful: bool,
}

impl Options {
    fn of_a_command(self) -> CommandOptions {
        let attempts = self.careful.then_some(1);
        CommandOptions { fail_fast: self.careful, max_attempts: attempts, ..CommandOptions::default() }
    }
}

pub(crate) async fn connect(addr: SocketAddr, options: Options) -> Result<Client, fred::error::Error> {
    let config = Config {
        server: ServerConfig::new_centralized(addr.ip().to_string(), addr.port()),
        version: RespVersion::RESP3,
        ..Config::default()
    };
    let mut builder = Builder::from_config(config);
    builder.set_policy(ReconnectPolicy::new_constant(0, 10));
    builder.with_connection_config(|connection| {
        connection.tcp.nodelay = Some(true);
        if options.careful {
            connection.max_command_attempts = 1;
        }
    });
    builder.with_config(|config| config.fail_fast = options.careful);
    let client = builder.build()?;
    client.init().await?;
    Ok(client)
}

/// Runs the script once.
pub(crate) fn count(client: &Client, options: Options, key: &'static str) -> Answer<i64> {
    let client = client.with_options(&options.of_a_command());
    Box::pin(async move { Ok(client.evalsha(hash(SCRIPT), key, Vec::<String>::new()).await?) })
}

pub(super) fn candidate(name: &'static str, client: Client) -> Candidate {
    let (hash, other) = (hash(SCRIPT), client.clone());
    let again = hash.clone();
    let call = move |key: &'static str| -> Answer<i64> {
        let (client, hash) = (client.clone(), hash.clone());
        Box::pin(async move { Ok(client.evalsha(hash, key, Vec::<String>::new()).await?) })
    };
    let batch = move |key: &'static str, size: usize| -> Answer<usize> {
        // Its pipelines have no EVALSHA of their own.
        let command = CustomCommand::new_static("EVALSHA", None, false);
        let (pipeline, hash) = (other.pipeline(), again.clone());
        Box::pin(async move {
            for _ in 0..size {
                let _: () = pipeline.custom(command.clone(), vec![hash.as_str(), "1", key]).await?;
            }
            let counts: Vec<i64> = pipeline.all().await?;
            Ok(counts.len())
        })
    };
    Candidate { name, call: Box::new(call), batch: Some(Box::new(batch)) }
}
