//! The bare requests, over the library's own connection and over that of the crate `redis`.

use std::sync::Arc;

use fencepost::{
    SystemHost,
    redis::{Client, Command, Options, Transport},
};
use fencepost_lab::server::redis::Redis;

use crate::outcome::Outcome;

/// The least that a script about a lock does.
const COMPARE: &str = "return redis.call('GET', KEYS[1]) == ARGV[1]";

/// What gives back a lock that nobody waits for.
const COMPARE_AND_DELETE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";

/// As long as a claim's own.
pub(super) const VALUE: &str = "0123456789abcdef0123456789abcdef";

/// The scripts, as the server knows them.
#[derive(Clone)]
pub(super) struct Scripts {
    pub(super) compare: String,
    compare_and_delete: String,
}

impl Scripts {
    pub(super) fn load(server: &Redis) -> Outcome<Self> {
        let load = |text| server.command(&["SCRIPT", "LOAD", text]);
        Ok(Self { compare: load(COMPARE)?, compare_and_delete: load(COMPARE_AND_DELETE)? })
    }

    fn command(hash: &str, key: &str) -> Command {
        Command::new("EVALSHA").arg(hash).arg("1").arg(key).arg(VALUE)
    }
}

/// A connection as the driver has one.
#[derive(Clone)]
pub(super) struct Bare {
    client: Arc<Client>,
    scripts: Scripts,
}

impl Bare {
    pub(super) fn connect(server: &Redis, scripts: &Scripts) -> Outcome<Self> {
        let options = Options::from_url(server.url().parse()?)?;
        Ok(Self { client: Arc::new(Client::new(options, Arc::new(SystemHost))), scripts: scripts.clone() })
    }

    /// One script that changes nothing.
    pub(super) async fn compare(&self, key: &str) -> Outcome<()> {
        self.send(Scripts::command(&self.scripts.compare, key)).await
    }

    /// A lock in its textbook form: set, compared and deleted.
    pub(super) async fn set_and_delete(&self, key: &str) -> Outcome<()> {
        let set = Command::new("SET").arg(key).arg(VALUE).arg("NX").arg("PX").arg("30000");
        self.send(set).await?;
        self.send(Scripts::command(&self.scripts.compare_and_delete, key)).await
    }

    async fn send(&self, command: Command) -> Outcome<()> {
        match self.client.send(vec![command]).await {
            Ok(replies)
                if replies.iter().all(|reply| !matches!(reply, fencepost::redis::Reply::Error { .. })) =>
            {
                Ok(())
            }
            Ok(replies) => Err(format!("redis answered {replies:?}").into()),
            Err(fail) => Err(fail.to_string().into()),
        }
    }
}
