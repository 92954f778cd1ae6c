//! One redis-server, which can be killed and started again at its port.

use std::{net::SocketAddr, process::Command, time::Duration};

use fencepost_lab::server::{Port, Process, home, require};
use redis::Commands;
use tempfile::TempDir;

use crate::Outcome;

/// What every measured command runs. It counts, so a command that ran twice is seen.
pub(crate) const SCRIPT: &str = "return redis.call('INCR', KEYS[1])";

/// What wakes a waiter, as the leaving holder does.
pub(crate) const NOTIFY: &str = "return redis.call('PUBLISH', KEYS[1], ARGV[1])";

const READY: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    // Stopped first, then its directory goes, then its port.
    process: Option<Process>,
    home: TempDir,
    port: Port,
}

impl Server {
    pub(crate) fn start() -> Outcome<Self> {
        let mut server = Self { process: None, home: home("clients")?, port: Port::free()? };
        server.restart()?;
        Ok(server)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    pub(crate) fn kill(&mut self) -> Outcome<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
        }
        Ok(())
    }

    /// Starts it empty, with the scripts loaded.
    pub(crate) fn restart(&mut self) -> Outcome<()> {
        self.kill()?;
        let mut command = Command::new(require("redis-server", "redis-server")?);
        command.args(["--port", &self.port.number().to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(self.home.path());
        let mut process = Process::spawn(command, &self.home.path().join("log"))?;
        process.wait_listening(self.addr(), READY)?;
        self.process = Some(process);
        let mut connection = self.connect()?;
        for script in [SCRIPT, NOTIFY] {
            redis::Script::new(script).prepare_invoke().load(&mut connection)?;
        }
        Ok(())
    }

    /// How often the script ran for a key.
    pub(crate) fn count(&self, key: &str) -> Outcome<i64> {
        Ok(self.connect()?.get::<_, Option<i64>>(key)?.unwrap_or(0))
    }

    pub(crate) fn count_up(&self, key: &str) -> Outcome<()> {
        Ok(self.connect()?.incr(key, 1)?)
    }

    pub(crate) fn delete(&self, key: &str) -> Outcome<()> {
        Ok(self.connect()?.del(key)?)
    }

    fn connect(&self) -> Outcome<redis::Connection> {
        Ok(redis::Client::open(format!("redis://{}", self.addr()))?.get_connection()?)
    }
}

/// The name under which the server knows a script.
pub(crate) fn hash(script: &str) -> String {
    redis::Script::new(script).get_hash().to_owned()
}
