//! The guardian: a small process that holds the job to its deadline whatever happens to the supervisor.
//!
//! Forked early, before the supervisor has threads or connections, it knows nothing but the deadlines it is told:
//! 1. TERM at the deadline less the grace, KILL just before the deadline, whether or not anybody still talks to it.
//! 2. When the connection ends the supervisor is dead: the ending begins at once.
//! 3. After a stop it reports the end only when the kernel says that it has no child left: the job, and all that
//!    came of it, is dead, because a subreaper's descendants never leave it.
//! 4. Where it may, it runs before everything else: a busy machine must not let a job outlive its lease.
//! 5. Were it itself stopped, its parent continues it; and should that be dead, the kernel does (parent-death signal).
//! 6. It serves one job, or, if more are to come, one after the other: the next starts when nothing of the last is left.
//! 7. Where the lock is one that a descriptor keeps and the job is not to have that, the guardian has it until then.
//!
//! It reads no signal but SIGCHLD, opens no files, and must never talk to a backend.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::libc;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, setpgid};
use serde::{Deserialize, Serialize};

use super::keeper::{Event, Keeper, Launch, Order};
use super::schedule::{Cause, Schedule};
use super::tree::kill_below;
use super::wake::{Alarm, wait_readable};
use super::wire::{Channel, Received};
use crate::exit;
use crate::sys::{self, Fork};

/// From the supervisor.
#[derive(Serialize, Deserialize)]
enum Command {
    Start(Order),
    Deadline(u64),
    Signal(i32),
    Stop,
}

/// The supervisor's end.
pub(crate) struct Guardian {
    pid: i32,
    channel: Channel,
}

impl Guardian {
    /// Forks the guardian. Every descriptor that the job is to inherit must be open by now.
    pub(crate) fn fork(launch: &Launch) -> io::Result<Self> {
        let (ours, theirs) = Channel::pair()?;
        match sys::fork()? {
            Fork::Parent(pid) => Ok(Self { pid, channel: ours }),
            Fork::Child => {
                drop(ours);
                let Err(error) = serve(launch, &theirs) else { sys::leave(exit::OK) };
                kill_below();
                eprintln!("fencepost: the guardian process failed, so the command was killed: {error}");
                sys::leave(exit::INTERNAL)
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn start(&self, order: Order, passed: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.channel.send(&Command::Start(order), passed)
    }

    // A guardian that cannot be told is gone, or stopped for long: its own deadline, and our backstop, see to the job.

    pub(crate) fn extend(&self, deadline: u64) {
        let _ = self.channel.send(&Command::Deadline(deadline), None);
    }

    pub(crate) fn signal(&self, signal: i32) {
        let _ = self.channel.send(&Command::Signal(signal), None);
    }

    pub(crate) fn stop(&self) {
        let _ = self.channel.send(&Command::Stop, None);
    }

    /// The next event, or [`Received::End`] when the guardian is gone.
    pub(crate) fn next_event(&self) -> io::Result<Received<Event>> {
        self.channel.receive()
    }
}

impl AsFd for Guardian {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn serve(launch: &Launch, supervisor: &Channel) -> io::Result<()> {
    if launch.own_group {
        // Whoever kills the supervisor's group does not kill the guardian. On a terminal it has to stay in the
        // caller's group: the job's parent counts when the kernel decides whether a Ctrl-Z may stop that group.
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    }
    set_child_subreaper(true)?;
    set_pdeathsig(Signal::SIGCONT)?;
    while let Some((order, passed)) = await_start(supervisor)? {
        let (inherited, kept) = if order.inherits { (passed, None) } else { (None, passed) };
        match start(launch, order, inherited) {
            Ok(keeper) => {
                if !launch.terms {
                    sys::let_go_of_stdio()?;
                }
                // After the start: the job keeps the priority that it was given, and so does the next.
                let usual = sys::hurry();
                keep(keeper, supervisor, kept)?;
                sys::set_priority(usual);
            }
            Err(event) => {
                drop(kept);
                tell(supervisor, event);
            }
        }
        if !launch.terms {
            break;
        }
    }
    Ok(())
}

/// Starts the job, or says why it does not run.
fn start(launch: &Launch, order: Order, passed: Option<OwnedFd>) -> Result<Keeper, Event> {
    // The machine may have stood still, or we alone, since the order was given.
    let now = sys::now();
    if Schedule::new(launch.grace, order.deadline, order.until, now).is_over(now) {
        return Err(Event::Ended { status: 0, cause: Cause::Deadline });
    }
    let failed = |error: io::Error| Event::Failed { errno: error.raw_os_error().unwrap_or(libc::EINVAL) };
    Keeper::start(launch, order, passed).map_err(failed)
}

fn await_start(supervisor: &Channel) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
    loop {
        wait_readable(&[supervisor.as_fd()])?;
        match supervisor.receive()? {
            Received::Message(Command::Start(order), passed) => return Ok(Some((order, passed))),
            Received::End => return Ok(None),
            _ => {}
        }
    }
}

/// Keeps the job, and `lock`, a descriptor that ends the lock when it is closed, until nothing of it is left to end.
fn keep(mut keeper: Keeper, supervisor: &Channel, mut lock: Option<OwnedFd>) -> io::Result<()> {
    tell(supervisor, Event::Started { pid: keeper.pid() });
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    let children = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let alarm = Alarm::new()?;
    let mut supervised = true;
    loop {
        while supervised {
            match supervisor.receive()? {
                Received::Message(Command::Deadline(deadline), _) => keeper.extend(deadline),
                Received::Message(Command::Signal(signal), _) => keeper.signal(signal),
                Received::Message(Command::Stop, _) => keeper.stop(Cause::Stop, sys::now()),
                Received::Message(Command::Start(_), _) => {}
                Received::Nothing => break,
                Received::End => {
                    supervised = false;
                    keeper.stop(Cause::Stop, sys::now());
                }
            }
        }
        // Before the look at the children, so that a later SIGCHLD is not lost.
        while children.read_signal()?.is_some() {}
        while let Some(event) = keeper.advance(sys::now()) {
            let is_over = matches!(event, Event::Ended { .. });
            if is_over {
                // Before the supervisor hears of it, which then gives back what must no longer be kept.
                lock.take();
            }
            tell(supervisor, event);
            if is_over {
                return Ok(());
            }
        }
        alarm.set(keeper.wake_at())?;
        // The end of a connection stays readable: once seen it must not be waited for again.
        let connection = if supervised { supervisor.as_fd() } else { alarm.as_fd() };
        wait_readable(&[connection, children.as_fd(), alarm.as_fd()])?;
    }
}

/// A supervisor that cannot be told is gone, or will see by the connection's end that we are.
fn tell(supervisor: &Channel, event: Event) {
    let _ = supervisor.send(&event, None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::inherited::Inherited;

    #[test]
    fn an_order_that_comes_too_late_starts_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let ran = directory.path().join("ran");
        let argv = vec!["touch".into(), ran.clone().into()];
        let launch =
            Launch { argv, own_group: false, grace: 0, terms: false, inherited: Inherited::nothing() };
        let deadline = Some(sys::now());
        let order =
            Order { env: Vec::new(), deadline, until: None, dies_with_parent: false, inherits: false };
        let Err(event) = start(&launch, order, None) else { panic!("the job was started") };
        assert_eq!(event, Event::Ended { status: 0, cause: Cause::Deadline });
        assert!(!ran.exists());
    }
}
