//! A redis-server of our own, one per value.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use redis::{Connection, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisResult};
use tempfile::TempDir;

use super::{Clock, Missing, Port, Process, escape, home, require};

/// The user as whom [`Redis::command`] speaks, whatever the options say about others.
const OPERATOR: &str = "fencepost-lab";

/// How long a start may take, and one command.
const PATIENCE: Duration = Duration::from_secs(10);

/// What survives the end of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing, unless a test says SAVE.
    #[default]
    None,
    /// Every write that was answered.
    Always,
}

/// The files of a server that speaks TLS, and nothing else, on its port.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whom it trusts.
    pub authority: PathBuf,
    /// Its certificate.
    pub certificate: PathBuf,
    /// The private key of its certificate.
    pub key: PathBuf,
    /// Whether clients must show a certificate too.
    pub ask_clients: bool,
}

#[cfg(feature = "certificates")]
impl From<&super::certificates::Certificates> for Tls {
    fn from(files: &super::certificates::Certificates) -> Self {
        Self {
            authority: files.authority(),
            certificate: files.server(),
            key: files.server_key(),
            ask_clients: false,
        }
    }
}

/// How a server is set up. The default is a plain one without a password.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What survives its end.
    pub persistence: Persistence,
    /// The password of the user `default`.
    pub password: Option<String>,
    /// Rules of other users, as in an ACL file but without the word `user`: `alice on >secret ~* +@all`.
    pub users: Vec<String>,
    /// TLS instead of plain TCP.
    pub tls: Option<Tls>,
    /// The server that it copies: one of ours, or a proxy in front of one.
    pub replica_of: Option<SocketAddr>,
    /// A cluster of this one node, which serves all slots.
    pub cluster: bool,
    /// The most memory that its data may take, in bytes.
    pub max_memory: Option<u64>,
    /// The wall clock that it runs by, instead of the machine's.
    pub clock: Option<Arc<Clock>>,
    /// Lines for the end of `redis.conf`.
    pub extra: Vec<String>,
}

/// A running redis-server, which ends when dropped. Its files go with it.
#[derive(Debug)]
pub struct Redis {
    program: PathBuf,
    // Declared before what it uses, so that it ends first.
    process: Option<Process>,
    options: Options,
    port: Port,
    bus: Port,
    home: TempDir,
}

/// Finds the program.
///
/// # Errors
///
/// [`Missing`], which names the package.
pub fn installed() -> Result<PathBuf, Missing> {
    require("redis-server", "redis-server")
}

impl Redis {
    /// Starts a server on a free port and waits until it answers.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not get ready; the message ends with the last lines of its log.
    pub fn start(options: Options) -> io::Result<Self> {
        let program = installed().map_err(io::Error::other)?;
        let (port, bus, home) = (Port::free()?, Port::free()?, home("redis")?);
        let mut redis = Self { program, process: None, options, port, bus, home };
        redis.run()?;
        Ok(redis)
    }

    /// Its address, the same for as long as the value lives.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The process id of the present process.
    ///
    /// # Panics
    ///
    /// After [`Redis::kill`].
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("the server is running").id()
    }

    /// A URL for the user `default`, with its password if it has one.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self.options.password.as_deref();
        self.url_of(&password.map_or_else(String::new, |password| format!(":{}@", escape(password))))
    }

    /// A URL for another user.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_of(&format!("{}:{}@", escape(user), escape(password)))
    }

    fn url_of(&self, credentials: &str) -> String {
        let scheme = if self.options.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{credentials}{}", self.addr())
    }

    /// Runs one command on a connection of its own, as a user who may do everything.
    ///
    /// It goes through a Unix socket: no proxy, TLS or password is in its way.
    ///
    /// # Errors
    ///
    /// The server's refusal, a server that is gone, or one that says nothing for ten seconds.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut self.connection(PATIENCE)?)
    }

    /// A connection as in [`Redis::command`], which waits at most `patience` for each answer.
    ///
    /// # Errors
    ///
    /// When the server is gone or does not answer.
    pub fn connection(&self, patience: Duration) -> RedisResult<Connection> {
        let login = redis::RedisConnectionInfo::default().set_username(OPERATOR).set_password("any");
        let info: ConnectionInfo = ConnectionAddr::Unix(self.socket()).into_connection_info()?;
        let client = redis::Client::open(info.set_redis_settings(login))?;
        let connection = client.get_connection_with_timeout(patience)?;
        connection.set_read_timeout(Some(patience))?;
        connection.set_write_timeout(Some(patience))?;
        Ok(connection)
    }

    /// Freezes the server. Connections are still accepted, by the kernel.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn pause(&mut self) -> io::Result<()> {
        self.running()?.pause()
    }

    /// Lets it go on: it answers what it was asked meanwhile.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn resume(&mut self) -> io::Result<()> {
        self.running()?.resume()
    }

    /// Kills it, as a crash does. Its port stays reserved and its files stay.
    ///
    /// # Errors
    ///
    /// Whatever the kernel reports.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill().map(drop))
    }

    /// Kills it if it runs and starts it again, with what its persistence kept.
    ///
    /// # Errors
    ///
    /// When it does not get ready.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.run()
    }

    /// Kills it if it runs and starts it again with nothing, as on a new disk.
    ///
    /// # Errors
    ///
    /// When its files cannot be removed or it does not get ready.
    pub fn restart_empty(&mut self) -> io::Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.data())?;
        self.run()
    }

    fn running(&mut self) -> io::Result<&mut Process> {
        self.process.as_mut().ok_or_else(|| io::Error::other("redis-server was killed, restart it"))
    }

    fn run(&mut self) -> io::Result<()> {
        fs::create_dir_all(self.data())?;
        let config = self.home.path().join("redis.conf");
        fs::write(&config, self.config())?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
        let mut command = Command::new(&self.program);
        command.arg(config);
        if let Some(clock) = &self.options.clock {
            clock.preload(&mut command);
        }
        self.process = Some(Process::spawn(command, &self.home.path().join("log"))?);
        self.wait_for(|redis| redis.command::<String>(&["PING"]).is_ok())?;
        if self.options.cluster { self.own_every_slot() } else { Ok(()) }
    }

    fn own_every_slot(&mut self) -> io::Result<()> {
        // Refused after a restart that kept the cluster's own file. Whether it matters shows below.
        let _ = self.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        self.wait_for(|redis| {
            redis.command(&["CLUSTER", "INFO"]).is_ok_and(|info: String| info.contains("cluster_state:ok"))
        })
    }

    fn wait_for(&mut self, mut ready: impl FnMut(&Self) -> bool) -> io::Result<()> {
        let mut process = self.process.take().expect("it was started");
        let done = process.wait_ready(PATIENCE, || ready(self));
        self.process = Some(process);
        done
    }

    fn config(&self) -> String {
        let (options, port) = (&self.options, self.port.number());
        let mut lines = vec![
            "bind 127.0.0.1".into(),
            format!("unixsocket {}", quote(self.socket())),
            format!("dir {}", quote(self.data())),
            // The first one keeps nothing at intervals; SAVE and the log of writes are independent of it.
            "save \"\"".into(),
            "daemonize no".into(),
            format!("user {OPERATOR} on nopass ~* &* +@all"),
        ];
        if options.persistence == Persistence::Always {
            lines.extend(["appendonly yes".into(), "appendfsync always".into()]);
        }
        match &options.tls {
            None => lines.push(format!("port {port}")),
            Some(tls) => lines.extend([
                "port 0".into(),
                format!("tls-port {port}"),
                format!("tls-ca-cert-file {}", quote(&tls.authority)),
                format!("tls-cert-file {}", quote(&tls.certificate)),
                format!("tls-key-file {}", quote(&tls.key)),
                format!("tls-auth-clients {}", if tls.ask_clients { "yes" } else { "no" }),
                "tls-replication yes".into(),
            ]),
        }
        if let Some(password) = &options.password {
            lines.push(format!("requirepass {}", quote(password)));
        }
        lines.extend(options.users.iter().map(|rules| format!("user {rules}")));
        if let Some(primary) = options.replica_of {
            lines.push(format!("replicaof {} {}", primary.ip(), primary.port()));
            lines.extend([format!("masteruser {OPERATOR}"), "masterauth any".into()]);
        }
        if options.cluster {
            lines.extend(["cluster-enabled yes".into(), format!("cluster-port {}", self.bus.number())]);
        }
        lines.extend(options.max_memory.map(|bytes| format!("maxmemory {bytes}")));
        lines.extend(options.extra.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join("redis.sock")
    }
}

/// As `redis.conf` wants a word with any characters.
fn quote(word: impl AsRef<std::ffi::OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}
