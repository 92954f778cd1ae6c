//! One request to the server and what its answer means.

use super::RedisGate;
use crate::{
    driver::Fail,
    error::{Error, ErrorKind},
    gate::{patience::within, refusal::unknown_outcome},
    host::Fut,
    redis::{Command, Reply, Script, lacks_a_right, one},
};

impl RedisGate {
    /// Sends one command.
    pub(super) async fn ask(&self, command: Command, key: &str) -> Result<Reply, Error> {
        let transport = self.transport.clone();
        self.within_patience(key, Box::pin(async move { one(transport.send(vec![command]).await?) })).await
    }

    /// Runs a command of this script.
    pub(super) async fn run(
        &self,
        script: &'static Script,
        command: Command,
        key: &str,
    ) -> Result<Reply, Error> {
        let transport = self.transport.clone();
        self.within_patience(key, Box::pin(async move { script.ask(&*transport, command).await })).await
    }

    async fn within_patience(
        &self,
        key: &str,
        asked: Fut<'static, Result<Reply, Fail>>,
    ) -> Result<Reply, Error> {
        let reply = within(&self.host, self.patience, asked).await;
        reply.map_err(|fail| error(fail, key)).and_then(|reply| sound(reply, key))
    }
}

fn error(fail: Fail, key: &str) -> Error {
    match fail {
        Fail::Unknown(why) => unknown_outcome(key).caused_by(why),
        fail => fail.into(),
    }
}

/// The reply, unless it is an error about the mark's key or the connection; those of a gate are for the caller.
fn sound(reply: Reply, key: &str) -> Result<Reply, Error> {
    match &reply {
        Reply::Error { code, .. } if code == "WRONGTYPE" => Err(not_a_mark(key)),
        Reply::Error { code, .. } if ["STALE", "LINEAGE", "INVALID"].contains(&code.as_str()) => Ok(reply),
        Reply::Error { .. } => answered(reply),
        _ => Ok(reply),
    }
}

/// The reply, or what the server's error means at a gate.
pub(super) fn answered(reply: Reply) -> Result<Reply, Error> {
    match &reply {
        Reply::Error { code, text } if lacks_a_right(code, text) => {
            let why = "the user lacks a right; grant the keys ~gate:* and those of your commands, and with the commands \
                       themselves +eval +evalsha +hmget +hset +persist";
            Err(Error::new(ErrorKind::Denied, format!("{why}: redis says: {code} {text}")))
        }
        _ => reply.ok().map_err(Error::from),
    }
}

pub(super) fn not_a_mark(key: &str) -> Error {
    let why = "the key holds something other than the mark of a gate: move it away";
    Error::new(ErrorKind::Invalid, format!("{why}, key={key}"))
}
