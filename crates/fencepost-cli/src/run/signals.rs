//! The signals that reach this process, read where we choose to, and what they mean to us.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::libc;
use nix::sys::signal::{SigSet, Signal as Known};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::{Deserialize, Serialize};

use super::inherited::waitable;
use crate::sys;

/// A signal that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signal {
    pub(crate) number: i32,
    /// The process that sent it, or that it is about.
    pub(crate) sender: i32,
    /// Whether the kernel sent it and not a process.
    by_kernel: bool,
}

impl Signal {
    /// Sent by the terminal to its whole foreground group: a job in the same group has it, too.
    pub(crate) fn by_terminal(self) -> bool {
        let terminal = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH, libc::SIGCONT];
        self.by_kernel && (terminal.contains(&self.number) || self.stops())
    }

    /// Whether it asks us to give up waiting. A signal that our caller ignores, as under nohup, does not.
    pub(crate) fn interrupts(self) -> bool {
        [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&self.number)
            && !sys::ignores(self.number)
    }

    /// Whether it asks a running job to end, and us with it. A hang-up does not: daemons read their configuration again.
    pub(crate) fn ends(self) -> bool {
        [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&self.number)
    }

    /// Whether it stops a process that does nothing about it.
    pub(crate) fn stops(self) -> bool {
        [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&self.number)
    }
}

/// Every signal of this process; they have to be blocked.
pub(crate) struct Signals(SignalFd);

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&waitable(), flags)?))
    }

    /// The next one that arrived, if any.
    pub(crate) fn next(&self) -> io::Result<Option<Signal>> {
        let info = self.0.read_signal()?;
        Ok(info.map(|info| Signal {
            number: info.ssi_signo as i32,
            sender: info.ssi_pid as i32,
            by_kernel: info.ssi_code > 0,
        }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets a signal do to this process what it would have done without us, so that the shell sees what it would see
/// without us. Returns when a stopped process is continued, or at once where the signal does nothing.
pub(crate) fn take_signal(number: i32) -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(Known::try_from(number)?);
    sys::kill(std::process::id() as i32, number)?;
    set.thread_unblock()?;
    Ok(set.thread_block()?)
}
