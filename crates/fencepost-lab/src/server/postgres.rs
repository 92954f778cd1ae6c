//! A PostgreSQL cluster of our own, one per value.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::nobody::write_for_nobody;
use super::{Clock, Missing, Port, Process, as_nobody, escape, family, give_to_nobody, home, require};

/// The superuser.
pub(super) const OPERATOR: &str = "postgres";

/// How long a start may take; a recovery after a crash is part of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a cluster is set up. The default trusts everybody and survives no power loss.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The password of the superuser. With one, everybody has to show a password (SCRAM) on the port.
    pub password: Option<String>,
    /// Whether it waits for the disk. What a killed server had committed is there without it.
    pub fsync: bool,
    /// The wall clock that it runs by, instead of the machine's.
    pub clock: Option<Arc<Clock>>,
    /// Lines for the end of `postgresql.conf`.
    pub extra: Vec<String>,
}

/// A running PostgreSQL, which ends with all of its processes when dropped. Its files go with it.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    // Declared before what it uses, so that it ends first.
    process: Option<Process>,
    options: Options,
    port: Port,
    home: TempDir,
}

/// Finds the directory of the newest server's programs: Debian keeps them out of `PATH`.
///
/// # Errors
///
/// [`Missing`], which names the package.
pub fn installed() -> Result<PathBuf, Missing> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let folders = versions.map(|version| (version, format!("/usr/lib/postgresql/{version}/bin")));
    let newest = folders.filter(|(_, folder)| Path::new(folder).join("postgres").exists()).max();
    match newest {
        Some((_, folder)) => Ok(folder.into()),
        None => require("postgres", "postgresql").map(|program| program.with_file_name("")),
    }
}

impl Postgres {
    /// Makes a cluster, starts it on a free port and waits until it answers. Root has it run as `nobody`.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not get ready; the message ends with the last lines of its log.
    pub fn start(options: Options) -> io::Result<Self> {
        let programs = installed().map_err(io::Error::other)?;
        let (port, home) = (Port::free()?, home("postgres")?);
        give_to_nobody(home.path())?;
        let mut postgres = Self { programs, process: None, options, port, home };
        postgres.make_cluster()?;
        postgres.run()?;
        Ok(postgres)
    }

    /// Its address, the same for as long as the value lives.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The process id of the present postmaster, the parent of all others.
    ///
    /// # Panics
    ///
    /// After [`Postgres::kill`].
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("the server is running").id()
    }

    /// A URL of a database for the superuser. There is a database `postgres`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_as(database, OPERATOR, self.password().unwrap_or_default())
    }

    /// A URL of a database for another user. The password is not looked at unless the options have one.
    #[must_use]
    pub fn url_as(&self, database: &str, user: &str, password: &str) -> String {
        url(self.addr(), database, user, password)
    }

    /// Runs statements as the superuser, each in a transaction of its own unless they say otherwise, and returns what
    /// they print: a line for each row, with `|` between columns.
    ///
    /// It goes through a Unix socket: no proxy or password is in its way.
    ///
    /// # Errors
    ///
    /// The first refusal of the server, with its SQLSTATE, or a server that is gone.
    pub fn psql(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut command = self.program("psql");
        command.arg("-h").arg(self.home.path()).args(["-p", &self.port.number().to_string()]);
        command.args(["-U", OPERATOR, "-d", database, "-XAtq", "-f", "-"]);
        command.args(["-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut psql = command.spawn()?;
        // One that has ended by itself says more than a broken pipe.
        let _ = psql.stdin.take().expect("it is piped").write_all(sql.as_bytes());
        printed("psql", psql.wait_with_output()?)
    }

    /// Freezes all of its processes. Connections are still accepted, by the kernel.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn pause(&mut self) -> io::Result<()> {
        family::freeze(self.running()?.id()).map(drop)
    }

    /// Lets them go on: they answer what they were asked meanwhile.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn resume(&mut self) -> io::Result<()> {
        family::thaw(self.running()?.id())
    }

    /// Kills all of its processes, as a crash of the machine does. Its port stays reserved and its files stay.
    ///
    /// # Errors
    ///
    /// Whatever the kernel reports.
    pub fn kill(&mut self) -> io::Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        if process.exited()?.is_none() {
            family::kill_descendants(process.id())?;
        }
        process.kill()?;
        self.remove_remains()
    }

    /// Kills it if it runs and starts it again, with what was committed.
    ///
    /// # Errors
    ///
    /// When it does not get ready.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.run()
    }

    /// The password of the superuser.
    pub(super) fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    fn running(&mut self) -> io::Result<&mut Process> {
        self.process.as_mut().ok_or_else(|| io::Error::other("PostgreSQL was killed, restart it"))
    }

    fn make_cluster(&self) -> io::Result<()> {
        let mut initdb = self.program("initdb");
        as_nobody(&mut initdb)?;
        initdb.arg("-D").arg(self.data()).args(["-U", OPERATOR, "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "--auth-local=trust"]);
        if let Some(password) = &self.options.password {
            let file = self.home.path().join("password");
            write_for_nobody(&file, password)?;
            initdb.arg("--auth-host=scram-sha-256").arg("--pwfile").arg(file);
        } else {
            initdb.arg("--auth-host=trust");
        }
        printed("initdb", initdb.output()?)?;
        let mut config = OpenOptions::new().append(true).open(self.data().join("postgresql.conf"))?;
        config.write_all(self.config().as_bytes())
    }

    fn config(&self) -> String {
        let mut lines = vec![
            "listen_addresses = '127.0.0.1'".into(),
            format!("port = {}", self.port.number()),
            format!("unix_socket_directories = '{}'", self.home.path().display()),
            // A killed server leaves its shared memory behind: in its own files it goes with them.
            "dynamic_shared_memory_type = mmap".into(),
            format!("fsync = {}", if self.options.fsync { "on" } else { "off" }),
        ];
        lines.extend(self.options.extra.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn run(&mut self) -> io::Result<()> {
        let mut command = self.program("postgres");
        as_nobody(&mut command)?;
        command.arg("-D").arg(self.data());
        if let Some(clock) = &self.options.clock {
            clock.preload(&mut command);
        }
        let mut process = Process::spawn(command, &self.home.path().join("log"))?;
        let ready = process.wait_ready(PATIENCE, || self.psql("postgres", "select 1").is_ok());
        self.process = Some(process);
        ready
    }

    /// What a killed server leaves outside of its files, and the files that would make the next one hesitate.
    fn remove_remains(&self) -> io::Result<()> {
        let lock = self.data().join("postmaster.pid");
        let Ok(text) = fs::read_to_string(&lock) else { return Ok(()) };
        // The seventh line is the key and the id of a segment of a few bytes.
        if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            printed("ipcrm", Command::new("ipcrm").args(["-m", id]).output()?)?;
        }
        fs::remove_file(lock)?;
        fs::remove_file(self.home.path().join(format!(".s.PGSQL.{}.lock", self.port.number())))
    }

    /// One of the programs, in a directory that everybody may enter and untouched by the caller's settings.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir("/");
        command
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = self.kill();
    }
}

pub(super) fn url(addr: SocketAddr, database: &str, user: &str, password: &str) -> String {
    let (database, user, password) = (escape(database), escape(user), escape(password));
    format!("postgres://{user}:{password}@{addr}/{database}")
}

fn printed(program: &str, output: Output) -> io::Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} failed ({})\n{}", output.status, said.trim_end())))
}
