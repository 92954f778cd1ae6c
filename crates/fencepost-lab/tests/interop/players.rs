//! Who plays: what each process is told, and how it is started.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
};

use fencepost_lab::{
    clock::now_ns,
    server::{
        Missing, Process, etcd,
        peers::{Peer, node, python},
        redis,
    },
};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

const TASK: &str = "FENCEPOST_INTEROP_TASK";

/// A lock client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Fencepost,
    RedisPy,
    Redlock,
    RedlockBeta,
    Rslock,
    Etcdctl,
}

/// Those of others on Redis.
pub(crate) const PEERS: [Client; 4] = [Client::RedisPy, Client::Redlock, Client::RedlockBeta, Client::Rslock];

impl Client {
    /// As the lanes of a history and the tests name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fencepost => "fencepost",
            Self::RedisPy => "redis-py",
            Self::Redlock => "redlock",
            Self::RedlockBeta => "redlock-beta",
            Self::Rslock => "rslock",
            Self::Etcdctl => "etcdctl",
        }
    }

    /// Whether the tests with it can run here.
    pub(crate) fn found(self) -> Result<(), Missing> {
        match self {
            Self::Etcdctl => etcd::installed().map(drop),
            _ => redis::installed().and_then(|_| self.peer()).map(drop),
        }
    }

    /// The interpreter of a client that is not compiled in.
    fn peer(self) -> Result<Option<Peer>, Missing> {
        match self {
            Self::Fencepost | Self::Rslock | Self::Etcdctl => Ok(None),
            Self::RedisPy => python("redis").map(Some),
            Self::Redlock | Self::RedlockBeta => node("ioredis").and_then(|_| node(self.name())).map(Some),
        }
    }
}

/// What a player is to do. Those of other languages read it as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    client: String,
    pub(crate) url: String,
    /// The lock key for a peer, the lock's name for us.
    pub(crate) key: String,
    pub(crate) ttl_ms: u64,
    /// Take the lock once, keep it for so long and give it back; without it, go on for ever with short holds.
    pub(crate) hold_ms: Option<u64>,
    pub(crate) history: PathBuf,
    /// The lock's name in the history.
    pub(crate) lock: String,
    /// The file that the lock protects.
    pub(crate) resource: PathBuf,
    /// What the history's clock shows more than the monotonic one, which is all that some languages have.
    offset_ns: i64,
}

impl Task {
    pub(crate) fn new(home: &Path, lock: &str, url: String, key: String, ttl_ms: u64) -> Self {
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has it");
        let monotonic = std::time::Duration::from(monotonic).as_nanos() as i64;
        Self {
            client: String::new(),
            url,
            key,
            ttl_ms,
            hold_ms: None,
            history: home.join("history"),
            lock: lock.into(),
            resource: home.join("resource"),
            offset_ns: now_ns() as i64 - monotonic,
        }
    }

    pub(crate) fn of_this_process() -> Option<(Client, Self)> {
        let task: Self = serde_json::from_str(&env::var(TASK).ok()?).expect("a task");
        let played =
            [Client::Rslock, Client::Etcdctl].into_iter().find(|client| task.client == client.name());
        Some((played.unwrap_or(Client::Fencepost), task))
    }

    /// Starts a player.
    pub(crate) fn start(&self, client: Client) -> io::Result<Process> {
        let mut command = match client.peer().map_err(io::Error::other)? {
            None => Command::new(env::current_exe()?),
            Some(peer) => peer.command(),
        };
        match client {
            Client::Fencepost | Client::Rslock | Client::Etcdctl => {}
            Client::RedisPy => drop(command.args(["-c", include_str!("peers/redis_py.py")])),
            Client::Redlock | Client::RedlockBeta => {
                command.args(["-e", include_str!("peers/redlock.js")]);
            }
        }
        let task = Self { client: client.name().into(), ..self.clone() };
        command.env(TASK, serde_json::to_string(&task)?);
        Process::spawn(command, &self.history.with_extension(client.name()))
    }
}
