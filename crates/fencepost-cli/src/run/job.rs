//! The job as the supervisor sees it: its own child, or that of the guardian.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;

use nix::libc;

use super::guardian::Guardian;
use super::keeper::{Event, Keeper};
use super::schedule::{Cause, Due, Schedule};
use super::wire::Received;
use crate::sys;

/// A started job.
pub(crate) enum Job<'a> {
    /// We are its parent.
    Ours(Keeper),
    /// The guardian is; the schedule is the time by which it must have reported the end.
    Guarded(&'a Guardian, Schedule),
}

/// What happened to the job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    Event(Event),
    /// The guardian died: nobody holds the job to its deadline any more.
    Unguarded,
    /// The guardian did not do its work in time, for this cause.
    Overdue(Cause),
}

impl Job<'_> {
    pub(crate) fn extend(&mut self, deadline: u64) {
        match self {
            Self::Ours(keeper) => keeper.extend(deadline),
            Self::Guarded(guardian, backstop) => {
                guardian.extend(deadline);
                backstop.extend(deadline, sys::now());
            }
        }
    }

    pub(crate) fn signal(&self, signal: i32) {
        match self {
            Self::Ours(keeper) => keeper.signal(signal),
            Self::Guarded(guardian, _) => guardian.signal(signal),
        }
    }

    pub(crate) fn stop(&mut self, now: u64) {
        match self {
            Self::Ours(keeper) => keeper.stop(Cause::Stop, now),
            Self::Guarded(guardian, backstop) => {
                if backstop.stop(Cause::Stop, now) {
                    guardian.stop();
                }
            }
        }
    }

    pub(crate) fn next(&mut self, now: u64) -> io::Result<Option<Happening>> {
        match self {
            Self::Ours(keeper) => Ok(keeper.advance(now).map(Happening::Event)),
            Self::Guarded(guardian, backstop) => {
                tend(guardian);
                match guardian.next_event()? {
                    Received::Message(event, _) => Ok(Some(Happening::Event(event))),
                    Received::End => Ok(Some(Happening::Unguarded)),
                    Received::Nothing => {
                        // TERM is the guardian's affair: for us it only begins the count towards KILL.
                        let overdue = backstop.due(now) == Due::Kill || backstop.due(now) == Due::Kill;
                        Ok(backstop.cause().filter(|_| overdue).map(Happening::Overdue))
                    }
                }
            }
        }
    }

    pub(crate) fn wake_at(&self) -> Option<u64> {
        match self {
            Self::Ours(keeper) => keeper.wake_at(),
            Self::Guarded(_, backstop) => backstop.wake_at(),
        }
    }

    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Ours(_) => None,
            Self::Guarded(guardian, _) => Some(guardian.as_fd()),
        }
    }
}

/// Reaps what ended, and continues a guardian that somebody stopped: stopped, it would protect nobody.
fn tend(guardian: &Guardian) {
    while let Ok(Some((pid, status))) = sys::wait_any() {
        if pid == guardian.pid() && status.stopped_signal().is_some() {
            let _ = sys::kill(pid, libc::SIGCONT);
        }
    }
}
