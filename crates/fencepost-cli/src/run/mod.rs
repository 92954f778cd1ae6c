//! The process side of `fencepost run`: a command, started under a lock and never outliving it.
//!
//! | role | process | promise |
//! |---|---|---|
//! | supervisor | owns the lock and renews it | tells the others every new deadline |
//! | guardian | parent and subreaper of the job | ends everything of the job before the last deadline it was told |
//! | job | the command | its caller's signals, descriptors and, on a terminal, process group |
//! | relay | what the caller started and waits for | stops and goes on with the job, as the shell expects |
//!
//! ```text
//! no terminal     caller's group: supervisor      guardian and job: a group each
//! a terminal      caller's group: relay, guardian, job             supervisor: a session of its own
//! no guardian     caller's group: supervisor, which is the job's parent (job: its own group without a terminal)
//! ```
//!
//! Where nothing expires the job keeps the lock itself, by a descriptor, and no guardian is needed. If it is not to have
//! that (`--close-fd`), the guardian has it.
//!
//! On a terminal the guardian stays in the caller's group and the supervisor leaves the session, so that the kernel
//! judges the group as if we were not there: whether a Ctrl-Z may stop it depends on the session and the group of its
//! members' parents. We never react to such a key ourselves. The job gets it from the terminal; if it stops, so do
//! we, and if it does not (an editor may not want to), neither do we. If Ctrl-C kills it we die of SIGINT as well:
//! that, and not a status of 130, is what makes a shell leave the loop we were called from.
//!
//! What is *not* promised: a signal that somebody sends to the whole group on a terminal (`kill %1`) reaches the job
//! directly and once more through us, for nothing tells it from a signal to us alone. A job that runs as another user
//! cannot be killed by us; then a message says so, and the wait for its end goes on.

mod guardian;
mod inherited;
mod job;
mod keeper;
mod late;
mod outcome;
mod relay;
mod schedule;
mod signals;
mod spawn;
mod supervise;
mod tree;
mod wake;
mod watch;
mod wire;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use outcome::Outcome;
pub(crate) use supervise::Supervisor;
pub(crate) use wake::{FdWaker, block_on, wait_readable};

use guardian::Guardian;
use inherited::Inherited;
use keeper::Launch;
use relay::Relay;
use wire::Channel;

use crate::exit;
use crate::sys::{self, Fork};

/// What is asked for, before anything is locked.
pub(crate) struct Plan {
    /// The command and its arguments, executed as given.
    pub(crate) argv: Vec<OsString>,
    /// Whether the lock can end before the command does: it expires, or is not the command's to keep.
    pub(crate) guardian: bool,
    /// The time between TERM and KILL.
    pub(crate) grace: Duration,
    pub(crate) max_hold: Option<Duration>,
    /// Whether the command may be run again, in a later term, after it had to be stopped.
    pub(crate) terms: bool,
}

/// What the command gets once the lock is held.
#[derive(Default)]
pub(crate) struct Start {
    /// Replaces what the environment has under these names.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// A descriptor that keeps the lock for as long as the job runs, whatever becomes of us.
    pub(crate) keep: Option<Kept>,
}

/// Who has the descriptor that keeps the lock. We let go of it in either case.
pub(crate) enum Kept {
    /// All processes of the job, as they inherit it.
    ByJob(OwnedFd),
    /// The guardian, until the job is over. There has to be one.
    ByGuardian(OwnedFd),
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let (Self::ByJob(fd) | Self::ByGuardian(fd)) = self;
        fd.as_fd()
    }
}

/// A lock that is held.
pub(crate) trait Hold {
    /// The deadline by which everything has to be over, on [`sys::now`]'s clock, if the lock expires.
    fn deadline(&self) -> Option<u64>;

    /// The next change. Not called again after [`Change::Lost`].
    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Change>;
}

/// What can happen to a held lock.
pub(crate) enum Change {
    /// It was renewed up to this deadline.
    Deadline(u64),
    Lost,
}

/// What came of waiting.
pub(crate) enum Waited<T> {
    Done(T),
    /// This signal asked us to give up.
    Interrupted(i32),
}

/// Splits into the processes that the plan needs and calls `body` in the supervisor. Must come before any thread.
///
/// It can return in two processes, the supervisor and the relay, each with the exit status of the whole. There is
/// nothing left to do then but to exit with it.
pub(crate) fn supervised(plan: Plan, body: impl FnOnce(&mut Supervisor) -> u8) -> io::Result<u8> {
    let inherited = Inherited::take()?;
    let terminal = std::fs::File::open("/dev/tty").is_ok();
    // A program that was replaced by us may have left children to us. They are not the job's, so neither the process
    // that counts its descendants as the job nor the one that catches the guardian's orphans may be their parent.
    let strangers = sys::has_children();
    let guarded = plan.guardian || plan.max_hold.is_some() || strangers;
    let (argv, terms, grace) = (plan.argv, plan.terms, nanoseconds(plan.grace));
    let launch = Launch { argv, own_group: !terminal, grace, terms, inherited };
    let max_hold = plan.max_hold.map(nanoseconds);
    let relayed = strangers || (guarded && terminal);
    if !relayed {
        let guardian = guarded.then(|| Guardian::fork(&launch)).transpose()?;
        let mut supervisor = Supervisor::new(launch, terminal, max_hold, guardian, None)?;
        let code = caught(|| body(&mut supervisor));
        return supervisor.end(code);
    }
    let (ours, theirs) = Channel::pair()?;
    let pid = std::process::id() as i32;
    match sys::fork()? {
        Fork::Parent(supervisor) => {
            drop(theirs);
            relay::serve(supervisor, &ours)
        }
        Fork::Child => {
            drop(ours);
            let guardian = Guardian::fork(&launch)?;
            nix::unistd::setsid()?;
            let relay = Relay { pid, channel: theirs };
            let mut supervisor = Supervisor::new(launch, terminal, max_hold, Some(guardian), Some(relay))?;
            let code = caught(|| body(&mut supervisor));
            supervisor.end(code)
        }
    }
}

/// A mistake of ours is told by the status that is documented for it. What it was stands on stderr.
fn caught(body: impl FnOnce() -> u8) -> u8 {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(exit::INTERNAL)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
