//! An etcd cluster of our own: one member or several.
//!
//! Members are numbered from 0. Their data lies in memory where the machine has a place for that: no test asks what a power cut
//! leaves, and each write would wait for the disk.

mod control;
mod snapshot;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use snapshot::Snapshot;
use tempfile::TempDir;

use super::{Missing, Port, Process, escape, require};

/// How long a start may take, and one command.
const PATIENCE: Duration = Duration::from_secs(20);

/// The user as whom the tests give commands where logins are asked for, and its password.
const ROOT: &str = "root:fencepost-lab";

/// The files of members that speak TLS with their clients.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whom they trust.
    pub authority: PathBuf,
    /// Their certificate.
    pub certificate: PathBuf,
    /// The private key of their certificate.
    pub key: PathBuf,
    /// What a client shows: its certificate and the key of it.
    pub client: (PathBuf, PathBuf),
    /// Whether clients must show one.
    pub ask_clients: bool,
}

#[cfg(feature = "certificates")]
impl From<&super::certificates::Certificates> for Tls {
    fn from(files: &super::certificates::Certificates) -> Self {
        Self {
            authority: files.authority(),
            certificate: files.server(),
            key: files.server_key(),
            client: (files.client(), files.client_key()),
            ask_clients: false,
        }
    }
}

/// How a cluster is set up. The default is one plain member without users.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How many members it has; 0 is 1.
    pub members: usize,
    /// TLS instead of plain TCP for clients.
    pub tls: Option<Tls>,
    /// Users that may use one prefix each: name, password, prefix. With any of them, everybody must log in.
    pub users: Vec<(String, String, String)>,
    /// Switches on logins that expire after so many seconds of rest.
    pub token_ttl: Option<u32>,
    /// More flags for each member.
    pub extra: Vec<String>,
}

/// A running cluster, which ends when dropped. Its files go with it.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    control: PathBuf,
    members: Vec<Member>,
    options: Options,
    /// Tells this cluster from one that is made anew on the same ports.
    token: String,
    home: TempDir,
}

#[derive(Debug)]
struct Member {
    // Declared before what it uses, so that it ends first.
    process: Option<Process>,
    clients: Port,
    peers: Port,
}

/// Finds the programs: the server's, and the one to give it commands.
///
/// # Errors
///
/// [`Missing`], which names the package.
pub fn installed() -> Result<(PathBuf, PathBuf), Missing> {
    Ok((require("etcd", "etcd-server")?, require("etcdctl", "etcd-client")?))
}

/// A directory in memory if there is one.
fn home() -> io::Result<TempDir> {
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("fencepost-etcd-");
        builder
    };
    builder().tempdir_in("/dev/shm").or_else(|_| builder().tempdir())
}

impl Etcd {
    /// Starts a cluster on free ports and waits until it takes writes.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not get ready; the message ends with the last lines of a log.
    pub fn start(options: Options) -> io::Result<Self> {
        let (program, control) = installed().map_err(io::Error::other)?;
        let member = || Ok(Member { process: None, clients: Port::free()?, peers: Port::free()? });
        let members: io::Result<Vec<_>> = (0..options.members.max(1)).map(|_| member()).collect();
        let mut etcd =
            Self { program, control, members: members?, options, token: "first".into(), home: home()? };
        etcd.run_all()?;
        etcd.make_users()?;
        Ok(etcd)
    }

    /// How many members it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Where a member takes clients, the same for as long as the value lives.
    #[must_use]
    pub fn addr(&self, member: usize) -> SocketAddr {
        self.members[member].clients.addr()
    }

    /// The process id of a member.
    ///
    /// # Panics
    ///
    /// After [`Etcd::kill`].
    #[must_use]
    pub fn id(&self, member: usize) -> u32 {
        self.members[member].process.as_ref().expect("the member is running").id()
    }

    /// A URL of all members, without a user.
    #[must_use]
    pub fn url(&self) -> String {
        let all: Vec<SocketAddr> = (0..self.size()).map(|member| self.addr(member)).collect();
        self.url_through(&all)
    }

    /// A URL of these addresses, such as proxies before members.
    #[must_use]
    pub fn url_through(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let Some(tls) = &self.options.tls else { return format!("etcd://{}", hosts.join(",")) };
        let mut url = format!("etcds://{}?ca={}", hosts.join(","), tls.authority.display());
        if tls.ask_clients {
            url += &format!("&cert={}&key={}", tls.client.0.display(), tls.client.1.display());
        }
        url
    }

    /// The URL of all members for a user.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url().replacen("://", &format!("://{}:{}@", escape(user), escape(password)), 1)
    }

    /// Freezes a member. Connections are still accepted, by the kernel.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn pause(&mut self, member: usize) -> io::Result<()> {
        self.running(member)?.pause()
    }

    /// Lets it go on: it answers what it was asked meanwhile.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn resume(&mut self, member: usize) -> io::Result<()> {
        self.running(member)?.resume()
    }

    /// Kills a member, as a crash does. Its ports stay reserved and its files stay.
    ///
    /// # Errors
    ///
    /// Whatever the kernel reports.
    pub fn kill(&mut self, member: usize) -> io::Result<()> {
        self.members[member].process.take().map_or(Ok(()), |mut process| process.kill().map(drop))
    }

    /// Starts a member again that was killed, and waits until the cluster takes writes through it.
    ///
    /// # Errors
    ///
    /// When it does not get ready.
    pub fn revive(&mut self, member: usize) -> io::Result<()> {
        self.run(member)?;
        self.wait_for(member)
    }

    /// Kills all members and starts them again.
    ///
    /// # Errors
    ///
    /// When they do not get ready.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill_all()?;
        self.run_all()
    }

    /// Kills all members and starts them again with nothing, on the same ports. With `is_same` with the same flags too: the
    /// cluster's id is then the same as before.
    ///
    /// # Errors
    ///
    /// When the files cannot be removed or they do not get ready.
    pub fn restart_empty(&mut self, is_same: bool) -> io::Result<()> {
        self.kill_all()?;
        for member in 0..self.size() {
            std::fs::remove_dir_all(self.data(member))?;
        }
        if !is_same {
            self.token += "-next";
        }
        self.run_all()
    }

    fn kill_all(&mut self) -> io::Result<()> {
        (0..self.size()).try_for_each(|member| self.kill(member))
    }

    fn run_all(&mut self) -> io::Result<()> {
        (0..self.size()).try_for_each(|member| self.run(member))?;
        (0..self.size()).try_for_each(|member| self.wait_for(member))
    }

    fn running(&mut self, member: usize) -> io::Result<&mut Process> {
        let process = self.members[member].process.as_mut();
        process.ok_or_else(|| io::Error::other("the member was killed, revive it"))
    }

    fn run(&mut self, member: usize) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(self.flags(member)).args(&self.options.extra);
        self.members[member].process = Some(Process::spawn(command, &self.log(member))?);
        Ok(())
    }

    fn wait_for(&mut self, member: usize) -> io::Result<()> {
        let mut process = self.members[member].process.take().expect("it was started");
        let done = process.wait_ready(PATIENCE, || self.is_healthy(member));
        self.members[member].process = Some(process);
        done
    }

    fn flags(&self, member: usize) -> Vec<String> {
        let http = |port: &Port| format!("http://{}", port.addr());
        let Member { clients, peers, .. } = &self.members[member];
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        let client_url = format!("{scheme}://{}", clients.addr());
        let all: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(i, other)| format!("m{i}={}", http(&other.peers)))
            .collect();
        // Several members share two processors with the test: an election must not come of a pause of the scheduler's.
        let (heartbeat, election) = if self.size() > 1 { ("100", "1000") } else { ("50", "500") };
        let mut flags: Vec<String> = [
            ("name", format!("m{member}")),
            ("data-dir", self.data(member).display().to_string()),
            ("listen-client-urls", client_url.clone()),
            ("advertise-client-urls", client_url),
            ("listen-peer-urls", http(peers)),
            ("initial-advertise-peer-urls", http(peers)),
            ("initial-cluster", all.join(",")),
            ("initial-cluster-token", self.token.clone()),
            ("heartbeat-interval", heartbeat.into()),
            ("election-timeout", election.into()),
            ("logger", "zap".into()),
            ("log-level", "warn".into()),
        ]
        .into_iter()
        .map(|(flag, value)| format!("--{flag}={value}"))
        .collect();
        if let Some(tls) = &self.options.tls {
            flags.push(format!("--cert-file={}", tls.certificate.display()));
            flags.push(format!("--key-file={}", tls.key.display()));
            if tls.ask_clients {
                flags.push(format!("--trusted-ca-file={}", tls.authority.display()));
                flags.push("--client-cert-auth".into());
            }
        }
        flags.extend(self.options.token_ttl.map(|seconds| format!("--auth-token-ttl={seconds}")));
        flags
    }

    fn data(&self, member: usize) -> PathBuf {
        self.home.path().join(format!("m{member}"))
    }

    fn log(&self, member: usize) -> PathBuf {
        self.home.path().join(format!("m{member}.log"))
    }

    /// The directory of its files and logs.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.home.path()
    }
}
