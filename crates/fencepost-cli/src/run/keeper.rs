//! The parent of the job: starts it, signals it, sees it end, and makes it end when its time is over.
//!
//! It lives in the guardian, or, where nothing expires and no guardian is needed, in the supervisor. Its process must
//! be a subreaper without children of its own, so that everything below it is the job.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid, setpgid};
use serde::{Deserialize, Serialize};

use super::inherited::Inherited;
use super::schedule::{Cause, Due, Schedule};
use super::spawn::spawn;
use super::tree::{Denied, Known, kill_below_once, terminate_below};
use crate::sys;

/// What is known of the job before the lock is held.
pub(crate) struct Launch {
    pub(crate) argv: Vec<OsString>,
    /// Whether the job gets a process group of its own: everywhere but on a terminal.
    pub(crate) own_group: bool,
    pub(crate) grace: u64,
    /// Whether a job that had to be stopped may be started again, with the same stdin and stdout.
    pub(crate) terms: bool,
    pub(crate) inherited: Inherited,
}

/// What is known once it is.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    /// Replaces what the environment has under these names.
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) deadline: Option<u64>,
    pub(crate) until: Option<u64>,
    /// Whether the kernel kills the job's first process when its parent dies.
    pub(crate) dies_with_parent: bool,
    /// Whether the job inherits the descriptor that comes with this, or the guardian keeps it until the job is over.
    pub(crate) inherits: bool,
}

/// What becomes of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    Started {
        pid: i32,
    },
    /// It could not be executed.
    Failed {
        errno: i32,
    },
    /// Its first process stopped, as after Ctrl-Z.
    Stopped {
        signal: i32,
    },
    /// It goes on.
    Continued,
    /// It ended, with this raw wait status. Unless it ended by itself, everything of it is dead.
    Ended {
        status: i32,
        cause: Cause,
    },
}

/// While KILL is at work, how long until the first look for processes that it missed; doubled a few times.
const AGAIN: u64 = 2_000_000;
const DOUBLED: u32 = 5;

/// A job that was started.
pub(crate) struct Keeper {
    pid: i32,
    own_group: bool,
    schedule: Schedule,
    status: Option<ExitStatus>,
    sweep_at: Option<u64>,
    sweeps: u32,
    /// What got TERM.
    known: Known,
    denied: Denied,
}

impl Keeper {
    /// Starts the job. It inherits `passed`, of which this process keeps nothing.
    pub(crate) fn start(launch: &Launch, order: Order, passed: Option<OwnedFd>) -> io::Result<Self> {
        let schedule = Schedule::new(launch.grace, order.deadline, order.until, sys::now());
        let pid = spawn(&launch.argv, order.env, setup(launch, order.dies_with_parent, passed))?;
        let (own_group, known, denied) = (launch.own_group, Known::default(), Denied::default());
        Ok(Self { pid, own_group, schedule, status: None, sweep_at: None, sweeps: 0, known, denied })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Takes a later deadline.
    pub(crate) fn extend(&mut self, deadline: u64) {
        self.schedule.extend(deadline, sys::now());
    }

    /// Passes a signal on to the job: to its group where that is its own, else to its first process.
    pub(crate) fn signal(&self, signal: i32) {
        // Once its first process is reaped its id may name a stranger, and a group that is gone is no failure.
        if self.status.is_none() {
            let _ = sys::kill(if self.own_group { -self.pid } else { self.pid }, signal);
        }
    }

    /// Begins to end the job: TERM now, KILL after the grace.
    pub(crate) fn stop(&mut self, cause: Cause, now: u64) {
        if self.schedule.stop(cause, now) {
            self.terminate();
        }
    }

    /// Does what is due and says what happened. To be called until it says nothing, after every SIGCHLD and at
    /// [`Keeper::wake_at`].
    pub(crate) fn advance(&mut self, now: u64) -> Option<Event> {
        let none_left = loop {
            match sys::wait_any() {
                Ok(Some((pid, _))) if pid != self.pid => {}
                Ok(Some((_, status))) => match status.stopped_signal() {
                    Some(signal) => return Some(Event::Stopped { signal }),
                    None if status.continued() => return Some(Event::Continued),
                    None => self.status = Some(status),
                },
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        let cause = self.schedule.cause();
        match self.status {
            Some(status) if none_left || cause.is_none() => {
                Some(Event::Ended { status: status.into_raw(), cause: cause.unwrap_or(Cause::Itself) })
            }
            _ => {
                self.act(now);
                None
            }
        }
    }

    /// When [`Keeper::advance`] has something to do without a SIGCHLD.
    pub(crate) fn wake_at(&self) -> Option<u64> {
        self.sweep_at.or_else(|| self.schedule.wake_at())
    }

    fn act(&mut self, now: u64) {
        if self.schedule.due(now) == Due::Term {
            self.terminate();
        }
        if self.schedule.due(now) == Due::Kill && self.sweep_at.is_none_or(|at| at <= now) {
            // Those that are known first: finding the others takes its time.
            self.known.kill();
            self.denied.note(kill_below_once(self.sweeps > 0));
            self.sweep_at = Some(sys::now() + (AGAIN << self.sweeps));
            self.sweeps = DOUBLED.min(self.sweeps + 1);
        }
    }

    fn terminate(&mut self) {
        self.denied.note(terminate_below(&mut self.known));
    }
}

/// Everything between the birth of the job's first process and exec: only async-signal-safe calls.
fn setup(
    launch: &Launch,
    dies_with_parent: bool,
    passed: Option<OwnedFd>,
) -> impl FnMut() -> io::Result<()> + 'static {
    let parent = Pid::this();
    let (own_group, inherited) = (launch.own_group, launch.inherited);
    move || {
        if own_group {
            setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        }
        if dies_with_parent {
            set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        if let Some(fd) = &passed {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        inherited.restore()
    }
}
