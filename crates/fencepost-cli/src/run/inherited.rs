//! The state of signals and descriptors that our caller gave us and the job is to find unchanged.
//!
//! Two parts of it are gone before `main`: Rust's start-up ignores SIGPIPE, and opens `/dev/null` where one of the
//! first three descriptors was closed. A function in `.init_array` runs before that and notes both.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use crate::sys;

/// Bits 0 to 2: that descriptor was closed. Bit 3: SIGPIPE was ignored.
static BEFORE_MAIN: AtomicU8 = AtomicU8::new(0);
const PIPE_IGNORED: u8 = 1 << 3;

#[used]
#[allow(unsafe_code, reason = "only the loader calls us early enough")]
// SAFETY: the section holds pointers to functions of this type; this one needs nothing that start-up prepares.
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

#[allow(unsafe_code, reason = "nothing safe can ask about a descriptor that may be closed")]
extern "C" fn note() {
    let mut state = if sys::ignores(libc::SIGPIPE) { PIPE_IGNORED } else { 0 };
    for fd in 0..3 {
        // SAFETY: F_GETFD takes no pointer and fails cleanly on a closed descriptor.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            state |= 1 << fd;
        }
    }
    BEFORE_MAIN.store(state, Ordering::Relaxed);
}

/// What to give back to the job.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    mask: SigSet,
    child_ignored: bool,
}

impl Inherited {
    /// Notes the caller's state and blocks every signal that can be waited for: from here on they are read, by
    /// signalfd, where we choose to. SIGCHLD gets its default back, as with it ignored the kernel would reap for us.
    pub(crate) fn take() -> io::Result<Self> {
        let child_ignored = sys::ignores(libc::SIGCHLD);
        sys::set_ignored(libc::SIGCHLD, false);
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&waitable()), Some(&mut mask))?;
        Ok(Self { mask, child_ignored })
    }

    /// A caller that gave us nothing out of the ordinary.
    #[cfg(test)]
    pub(crate) fn nothing() -> Self {
        Self { mask: SigSet::empty(), child_ignored: false }
    }

    /// Puts the caller's state back. For the job, between fork and exec: async-signal-safe.
    #[allow(unsafe_code, reason = "nothing safe can close a descriptor by number")]
    pub(crate) fn restore(&self) -> io::Result<()> {
        let before = BEFORE_MAIN.load(Ordering::Relaxed);
        sys::set_ignored(libc::SIGPIPE, before & PIPE_IGNORED != 0);
        sys::set_ignored(libc::SIGCHLD, self.child_ignored);
        for fd in (0..3).filter(|fd| before & (1 << fd) != 0) {
            // SAFETY: what is open there is the `/dev/null` of Rust's start-up, which has no owner.
            unsafe { libc::close(fd) };
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)?;
        Ok(())
    }
}

/// Everything but the signals that report a fault of the very instruction that runs, and SIGPIPE, which a write to a
/// closed pipe would otherwise leave pending for us to read as if somebody had sent it.
pub(crate) fn waitable() -> SigSet {
    let mut set = SigSet::all();
    for fault in [
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGTRAP,
        Signal::SIGSYS,
        Signal::SIGABRT,
        Signal::SIGPIPE,
    ] {
        set.remove(fault);
    }
    set
}
