//! One process that the test started, and that ends with the test at the latest.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpid, getppid};

use crate::clock::now_ns;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(5);

/// A process of ours. Dropping it kills it; so does the end of the process that spawned it, even by SIGKILL.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its output is appended to the file `log`; it reads nothing.
    ///
    /// # Errors
    ///
    /// When the log cannot be opened or the program cannot be started.
    pub fn spawn(command: Command, log: &Path) -> io::Result<Self> {
        Self::spawn_reading(command, Stdio::null(), log)
    }

    /// As [`Process::spawn`], for a program that reads `input`.
    ///
    /// # Errors
    ///
    /// As [`Process::spawn`].
    pub fn spawn_reading(mut command: Command, input: impl Into<Stdio>, log: &Path) -> io::Result<Self> {
        let output = OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(input).stdout(output.try_clone()?).stderr(output);
        // In a group of its own the keys of the terminal do not reach it: it ends when we say so, and after what needs it.
        command.process_group(0);
        let child = on_keeper(move || spawn_bound(command))?;
        Ok(Self { child, log: log.into() })
    }

    /// The process id, as recorded at the start.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` says yes.
    ///
    /// # Errors
    ///
    /// When the time is over or the process has exited; the message ends with the last lines of its log.
    pub fn wait_ready(&mut self, within: Duration, mut ready: impl FnMut() -> bool) -> io::Result<()> {
        let end = now_ns() + within.as_nanos() as u64;
        while !ready() {
            if let Some(status) = self.exited()? {
                return Err(self.trouble(&format!("ended before it was ready ({status})")));
            }
            if now_ns() >= end {
                return Err(self.trouble(&format!("was not ready within {within:?}")));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until something listens at `addr`.
    ///
    /// # Errors
    ///
    /// As [`Process::wait_ready`].
    pub fn wait_listening(&mut self, addr: SocketAddr, within: Duration) -> io::Result<()> {
        self.wait_ready(within, || TcpStream::connect(addr).is_ok())
    }

    /// Stops it in its tracks, as a long garbage collection or a suspended machine does. True when this returns.
    ///
    /// # Errors
    ///
    /// When it has exited.
    pub fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::SIGSTOP)?;
        // Waits without collecting anything, so that the exit status stays for `Child`.
        let seen = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid()), seen)? {
            WaitStatus::Stopped(..) => Ok(()),
            _ => Err(self.trouble("ended while it was being paused")),
        }
    }

    /// Lets it go on after [`Process::pause`].
    ///
    /// # Errors
    ///
    /// When it has exited.
    pub fn resume(&mut self) -> io::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Kills it at once, paused or not, and collects its exit status. Says nothing if it has exited before.
    ///
    /// # Errors
    ///
    /// Whatever the kernel reports.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        if self.exited()?.is_none() {
            // A stopped one takes it too. With SIGCONT it could go on for a moment, and see what has become of others.
            self.child.kill()?;
        }
        self.child.wait()
    }

    /// Asks it to end, and kills it if it has not done so within `grace`.
    ///
    /// # Errors
    ///
    /// Whatever the kernel reports.
    pub fn terminate(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        if self.exited()?.is_none() {
            self.signal(Signal::SIGTERM)?;
            self.signal(Signal::SIGCONT)?;
        }
        let end = now_ns() + grace.as_nanos() as u64;
        while self.exited()?.is_none() && now_ns() < end {
            thread::sleep(POLL);
        }
        self.kill()
    }

    /// Its exit status, once it has exited.
    ///
    /// # Errors
    ///
    /// Whatever the kernel reports.
    pub fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The id stays ours until its exit status was collected, so no stranger is hit.
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        match self.exited()? {
            Some(status) => Err(self.trouble(&format!("cannot take {signal}, it has exited ({status})"))),
            None => Ok(kill(self.pid(), signal)?),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn trouble(&self, what: &str) -> io::Error {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(10)..].join("\n");
        let (pid, log) = (self.child.id(), self.log.display());
        io::Error::other(format!("the server {what}, see its log: pid={pid} log={log}\n{tail}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already, and there is nobody to tell.
        let _ = self.kill();
    }
}

/// Starts a child that is killed when the calling *thread* ends, which is how Linux understands "parent".
#[allow(unsafe_code, reason = "there is no safe way to run code between fork and exec")]
fn spawn_bound(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    let bind = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the line above.
        if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `bind` makes two system calls, prctl and
    // getppid, and allocates nothing: both of its errors are plain numbers.
    unsafe { command.pre_exec(bind) };
    command.spawn()
}

/// Runs a job on a thread that lives as long as this process, so that the children started there do too.
fn on_keeper<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    type Job = Box<dyn FnOnce() + Send>;
    static KEEPER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (keeper, jobs) = mpsc::channel::<Job>();
        thread::spawn(|| jobs.into_iter().for_each(|job| job()));
        keeper
    });
    let (reply, result) = mpsc::channel();
    // Nobody waits for a reply any more only if the line below has panicked.
    let job = Box::new(move || drop(reply.send(job())));
    keeper.send(job).expect("the keeper never ends");
    result.recv().expect("a job does not panic")
}
