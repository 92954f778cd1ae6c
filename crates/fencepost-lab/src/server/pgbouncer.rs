//! A PgBouncer of our own in front of a PostgreSQL: it lends its connections for one transaction at a time.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::nobody::write_for_nobody;
use super::postgres::{self, Postgres};
use super::{Missing, Port, Process, as_nobody, give_to_nobody, home, require};

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a pool is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most connections to the server for one user and database.
    pub pool_size: u32,
    /// Users besides the superuser, with their passwords. Nobody else may connect.
    pub users: Vec<(String, String)>,
    /// Lines for the end of the section `[pgbouncer]`.
    pub extra: Vec<String>,
}

impl Default for Options {
    /// Two connections for the superuser: few enough that sessions do not keep theirs.
    fn default() -> Self {
        Self { pool_size: 2, users: Vec::new(), extra: Vec::new() }
    }
}

/// A running PgBouncer, which ends when dropped. Its files go with it.
#[derive(Debug)]
pub struct PgBouncer {
    program: PathBuf,
    // Declared before what it uses, so that it ends first.
    process: Option<Process>,
    password: String,
    port: Port,
    home: TempDir,
}

/// Finds the program.
///
/// # Errors
///
/// [`Missing`], which names the package.
pub fn installed() -> Result<PathBuf, Missing> {
    require("pgbouncer", "pgbouncer")
}

impl PgBouncer {
    /// Starts a pool in front of a server and waits until it listens. It asks for passwords if the server does. Root
    /// has it run as `nobody`.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not get ready; the message ends with the last lines of its log.
    pub fn start(server: &Postgres, options: &Options) -> io::Result<Self> {
        let program = installed().map_err(io::Error::other)?;
        let (port, home) = (Port::free()?, home("pgbouncer")?);
        give_to_nobody(home.path())?;
        let password = server.password().unwrap_or_default().to_owned();
        let mut bouncer = Self { program, process: None, password, port, home };
        write_for_nobody(&bouncer.file("pgbouncer.ini"), &bouncer.config(server, options))?;
        let mut users = credential(postgres::OPERATOR, &bouncer.password);
        options.users.iter().for_each(|(user, password)| users += &credential(user, password));
        write_for_nobody(&bouncer.file("users"), &users)?;
        bouncer.run()?;
        Ok(bouncer)
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
    /// After [`PgBouncer::kill`].
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("the pool is running").id()
    }

    /// A URL of a database for the superuser. The database `pgbouncer` is the pool's own console.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_as(database, postgres::OPERATOR, &self.password)
    }

    /// A URL of a database for another user.
    #[must_use]
    pub fn url_as(&self, database: &str, user: &str, password: &str) -> String {
        postgres::url(self.addr(), database, user, password)
    }

    /// Freezes it. Connections are still accepted, by the kernel.
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

    /// Kills it, as a crash does. Its port stays reserved.
    ///
    /// # Errors
    ///
    /// Whatever the kernel reports.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill().map(drop))
    }

    /// Kills it if it runs and starts it again.
    ///
    /// # Errors
    ///
    /// When it does not get ready.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.run()
    }

    fn running(&mut self) -> io::Result<&mut Process> {
        self.process.as_mut().ok_or_else(|| io::Error::other("PgBouncer was killed, restart it"))
    }

    fn run(&mut self) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        as_nobody(&mut command)?;
        command.arg(self.file("pgbouncer.ini")).current_dir("/");
        let mut process = Process::spawn(command, &self.file("log"))?;
        let ready = process.wait_listening(self.addr(), PATIENCE);
        self.process = Some(process);
        ready
    }

    fn config(&self, server: &Postgres, options: &Options) -> String {
        let mut lines = vec![
            "[databases]".into(),
            format!("* = host=127.0.0.1 port={}", server.addr().port()),
            "[pgbouncer]".into(),
            "listen_addr = 127.0.0.1".into(),
            format!("listen_port = {}", self.port.number()),
            // None, since nobody needs it.
            "unix_socket_dir =".into(),
            format!("auth_type = {}", if self.password.is_empty() { "trust" } else { "scram-sha-256" }),
            format!("auth_file = {}", self.file("users").display()),
            format!("admin_users = {}", postgres::OPERATOR),
            "pool_mode = transaction".into(),
            format!("default_pool_size = {}", options.pool_size),
        ];
        lines.extend(options.extra.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

fn credential(user: &str, password: &str) -> String {
    let quote = |word: &str| word.replace('"', "\"\"");
    format!("\"{}\" \"{}\"\n", quote(user), quote(password))
}
