//! ZooKeeper servers of our own, one per value, or three that make an ensemble.
//!
//! Debian's jars, started with `java`: a small heap, short ticks, and no sync of the disk, since nothing here cuts the
//! power. The numbers of `zoo.cfg` are those of the ZooKeeper Administrator's Guide.

mod client;
mod ensemble;
mod frames;
mod pool;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::{Missing, Port, Process, home, require};

pub use client::{Access, Client, Node, OPEN, Refused};
pub use ensemble::Ensemble;
pub use frames::{Fault, Frames, Op};
pub use pool::Pooled;

/// How long a start may take: a Java machine on a busy computer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where Debian puts jars.
const JARS: &str = "/usr/share/java";

/// What `zookeeper.jar` does not name itself: the log, and what TLS needs.
const MORE_JARS: [&str; 5] =
    ["slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common", "netty-common"];

/// How a server is set up. The default is a plain one.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its clock ticks by: sessions end at a tick, and none is shorter than two.
    pub tick: Duration,
    /// How many ticks a follower may be cut off before it notices.
    pub sync_limit: u32,
    /// A PEM file of certificate and key, one of who is trusted, and whether clients must show a certificate: TLS, and
    /// nothing else, on its port.
    pub tls: Option<(PathBuf, PathBuf, bool)>,
    /// Users and passwords of SASL.
    pub users: Vec<(String, String)>,
    /// Lines for the end of `zoo.cfg`.
    pub extra: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(100),
            sync_limit: 20,
            tls: None,
            users: Vec::new(),
            extra: Vec::new(),
        }
    }
}

#[cfg(feature = "certificates")]
impl Options {
    /// The default over TLS, with these files, whose server certificate and key are put together in one of their folder.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or written.
    pub fn secure(files: &super::certificates::Certificates, ask_clients: bool) -> io::Result<Self> {
        let both = files.path().join("zookeeper.pem");
        fs::write(&both, fs::read_to_string(files.server_key())? + &fs::read_to_string(files.server())?)?;
        Ok(Self { tls: Some((both, files.authority(), ask_clients)), ..Self::default() })
    }
}

/// A running server, which ends when dropped. Its files go with it.
#[derive(Debug)]
pub struct ZooKeeper {
    java: PathBuf,
    // Declared before what it uses, so that it ends first.
    process: Option<Process>,
    options: Options,
    port: Port,
    home: TempDir,
    /// The lines that make it a member of an ensemble, and its number there.
    member: Option<(u32, Vec<String>)>,
}

/// Finds Java and the jars.
///
/// # Errors
///
/// [`Missing`], which names the package.
pub fn installed() -> Result<PathBuf, Missing> {
    let java = require("java", "default-jre-headless")?;
    jar("zookeeper", "libzookeeper-java")?;
    jar("slf4j-simple", "libslf4j-java")?;
    Ok(java)
}

/// Finds one of Debian's jars.
///
/// # Errors
///
/// [`Missing`], which names the package.
pub fn jar(name: &str, package: &str) -> Result<(), Missing> {
    let file = format!("{name}.jar");
    let is_there = Path::new(JARS).join(&file).exists();
    is_there.then_some(()).ok_or_else(|| Missing::new(file, format!("apt-get install {package}")))
}

/// What Java needs to find ZooKeeper, and these jars beside it.
#[must_use]
pub fn class_path(more: &[&str]) -> String {
    let jars = ["zookeeper"].iter().chain(&MORE_JARS).chain(more);
    jars.map(|jar| format!("{JARS}/{jar}.jar")).collect::<Vec<_>>().join(":")
}

impl ZooKeeper {
    /// Starts a server on a free port and waits until it serves.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not get ready; the message ends with the last lines of its log.
    pub fn start(options: Options) -> io::Result<Self> {
        let mut server = Self::prepare(options, None)?;
        server.restart()?;
        Ok(server)
    }

    fn prepare(options: Options, member: Option<(u32, Vec<String>)>) -> io::Result<Self> {
        let java = installed().map_err(io::Error::other)?;
        Ok(Self { java, process: None, options, port: Port::free()?, home: home("zookeeper")?, member })
    }

    /// Its address, the same for as long as the value lives.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// A URL without a user.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.options.tls.is_some() { "zks" } else { "zk" };
        format!("{scheme}://{}", self.addr())
    }

    /// A client of a few words, which no proxy and no TLS is in the way of.
    ///
    /// # Errors
    ///
    /// When the server is gone or does not answer.
    pub fn client(&self) -> io::Result<Client> {
        Client::connect(self.addr(), Duration::from_secs(10))
    }

    /// What the server answers to one of its four-letter words.
    ///
    /// # Errors
    ///
    /// When the server is gone or does not answer.
    pub fn word(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.addr())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The number behind a name in what `mntr` tells, such as `zk_packets_received`.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or tells no such number.
    pub fn figure(&self, name: &str) -> io::Result<u64> {
        let told = self.word("mntr")?;
        let line = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        let number = line.and_then(|text| text.parse::<f64>().ok()).map(|number| number as u64);
        number
            .ok_or_else(|| io::Error::other(format!("the server tells no figure of this name: name={name}")))
    }

    /// What it is now: `standalone`, `leader`, `follower`, or nothing while it serves nobody.
    #[must_use]
    pub fn role(&self) -> Option<String> {
        let told = self.word("srvr").ok()?;
        told.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// The process id of the present process.
    ///
    /// # Panics
    ///
    /// After [`ZooKeeper::kill`].
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("the server is running").id()
    }

    /// Freezes the server. Connections are still accepted, by the kernel.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn pause(&mut self) -> io::Result<()> {
        self.running()?.pause()
    }

    /// Lets it go on.
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

    /// Kills it if it runs and starts it again, with what it had.
    ///
    /// # Errors
    ///
    /// When it does not get ready.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.run()?;
        self.wait_serving()
    }

    /// As [`restart`](Self::restart), with a line more at the end of `zoo.cfg`.
    ///
    /// # Errors
    ///
    /// As [`restart`](Self::restart).
    pub fn restart_with(&mut self, line: &str) -> io::Result<()> {
        self.options.extra.push(line.into());
        self.restart()
    }

    /// Kills it if it runs and starts it again with nothing, as on a new disk.
    ///
    /// # Errors
    ///
    /// When its files cannot be removed or it does not get ready.
    pub fn restart_empty(&mut self) -> io::Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.data())?;
        self.restart()
    }

    /// A copy of what it has, as a backup is: it is stopped and started for that.
    ///
    /// # Errors
    ///
    /// When files cannot be copied, or it does not get ready again.
    pub fn back_up(&mut self) -> io::Result<TempDir> {
        self.kill()?;
        let copy = home("zookeeper-copy")?;
        copy_all(&self.data(), copy.path())?;
        self.restart()?;
        Ok(copy)
    }

    /// Kills it if it runs and starts it with such a copy.
    ///
    /// # Errors
    ///
    /// As [`ZooKeeper::back_up`].
    pub fn restore(&mut self, copy: &TempDir) -> io::Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.data())?;
        copy_all(copy.path(), &self.data())?;
        self.restart()
    }

    fn running(&mut self) -> io::Result<&mut Process> {
        self.process.as_mut().ok_or_else(|| io::Error::other("zookeeper was killed, restart it"))
    }

    fn run(&mut self) -> io::Result<()> {
        fs::create_dir_all(self.data())?;
        if let Some((number, _)) = &self.member {
            fs::write(self.data().join("myid"), number.to_string())?;
        }
        let config = self.home.path().join("zoo.cfg");
        fs::write(&config, self.config())?;
        let mut command = Command::new(&self.java);
        command.args(["-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn").arg("-Dzookeeper.forceSync=no");
        if !self.options.users.is_empty() {
            let jaas = self.home.path().join("jaas.conf");
            fs::write(&jaas, self.jaas())?;
            command.arg(format!("-Djava.security.auth.login.config={}", jaas.display()));
        }
        command.arg("-cp").arg(class_path(&[]));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
        self.process = Some(Process::spawn(command, &self.home.path().join("log"))?);
        Ok(())
    }

    /// Waits until it answers clients.
    fn wait_serving(&mut self) -> io::Result<()> {
        let mut process = self.process.take().expect("it was started");
        let done = if self.options.tls.is_some() {
            process.wait_listening(self.addr(), PATIENCE)
        } else {
            process.wait_ready(PATIENCE, || self.role().is_some())
        };
        self.process = Some(process);
        done
    }

    fn config(&self) -> String {
        let (options, port) = (&self.options, self.port.number());
        let tick = options.tick.as_millis();
        let mut lines = vec![
            format!("tickTime={tick}"),
            // One that elected a frozen server waits for it for so long.
            format!("initLimit={}", options.sync_limit),
            format!("syncLimit={}", options.sync_limit),
            format!("dataDir={}", self.data().display()),
            "admin.enableServer=false".into(),
            "4lw.commands.whitelist=*".into(),
            "maxClientCnxns=0".into(),
            "maxSessionTimeout=600000".into(),
            "preAllocSize=1024".into(),
        ];
        match &options.tls {
            None => lines.extend([format!("clientPort={port}"), "clientPortAddress=127.0.0.1".into()]),
            Some((identity, trusted, ask_clients)) => lines.extend([
                format!("secureClientPort={port}"),
                "secureClientPortAddress=127.0.0.1".into(),
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".into(),
                format!("ssl.keyStore.location={}", identity.display()),
                "ssl.keyStore.type=PEM".into(),
                format!("ssl.trustStore.location={}", trusted.display()),
                "ssl.trustStore.type=PEM".into(),
                format!("ssl.clientAuth={}", if *ask_clients { "need" } else { "none" }),
            ]),
        }
        if !options.users.is_empty() {
            lines.push("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider".into());
        }
        lines.extend(self.member.iter().flat_map(|(_, members)| members.clone()));
        lines.extend(options.extra.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn jaas(&self) -> String {
        let users = self.options.users.iter().map(|(user, password)| format!(" user_{user}=\"{password}\""));
        let users: String = users.collect();
        format!("Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required{users}; }};\n")
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
