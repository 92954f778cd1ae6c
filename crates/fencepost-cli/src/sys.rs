//! System calls that neither std nor nix offers in a form that is of use here, each as one small safe function.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::errno::Errno;
use nix::libc;
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_BOOTTIME`: the clock of every deadline, because it goes on while the machine is suspended.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME exists since Linux 2.6.39");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Which side of [`fork`] this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process, and the id of the new one.
    Parent(i32),
}

/// Forks this process, which must not have started a thread yet.
#[allow(unsafe_code, reason = "a fork of a program without threads has no safe wrapper")]
pub(crate) fn fork() -> io::Result<Fork> {
    debug_assert_eq!(
        std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count),
        1,
        "fork before any thread"
    );
    // SAFETY: there is one thread, so that no lock can be left taken in the child, which may go on as it likes.
    let pid = Errno::result(unsafe { libc::fork() })?;
    Ok(if pid == 0 { Fork::Child } else { Fork::Parent(pid) })
}

/// Ends a forked process at once, without the clean-up that belongs to the process it was forked from.
#[allow(unsafe_code, reason = "std only offers exit, which runs the handlers of the process forked from")]
pub(crate) fn leave(code: u8) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Sends a signal by number, since nix knows no realtime signals. A negative `pid` names a process group.
#[allow(unsafe_code, reason = "nix knows no realtime signals")]
pub(crate) fn kill(pid: i32, signal: i32) -> nix::Result<()> {
    // SAFETY: `kill` has no memory preconditions.
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Gives this process the best place among those that want to run, and answers the one it had. Only root and those with the
/// right to may.
#[allow(unsafe_code, reason = "nix does not wrap getpriority")]
pub(crate) fn hurry() -> i32 {
    // SAFETY: the call takes integers.
    let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    set_priority(-20);
    before
}

/// Gives this process such a place, if it may have it.
#[allow(unsafe_code, reason = "nix does not wrap setpriority")]
pub(crate) fn set_priority(nice: i32) {
    // SAFETY: the call takes integers; without the right to, it changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// How many columns the terminal at stdout has, if it is one and says so.
#[cfg(feature = "scenes")]
#[allow(unsafe_code, reason = "nix wraps ioctl in macros that are unsafe to call, too")]
pub(crate) fn columns() -> Option<usize> {
    // SAFETY: all zeroes are a valid `winsize`, and the call writes at most one.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) == 0).then_some(size)
    };
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether this process ignores a signal.
#[allow(unsafe_code, reason = "nix can only read a disposition by replacing it")]
pub(crate) fn ignores(signal: i32) -> bool {
    // SAFETY: all zeroes are a valid `sigaction`, and with a null new action the call only writes to `old`.
    let old = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0).then_some(old)
    };
    old.is_some_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

/// Sets a signal to be ignored, or back to its default. Async-signal-safe.
#[allow(unsafe_code, reason = "used between fork and exec, where only the plain call is known to be safe")]
pub(crate) fn set_ignored(signal: i32, ignored: bool) {
    // SAFETY: neither disposition runs code of this process.
    unsafe { libc::signal(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL }) };
}

/// One child that ended, stopped or went on; `None` while there are children and none did; `ECHILD` when there are none.
#[allow(unsafe_code, reason = "nix reports a death by realtime signal as an error")]
pub(crate) fn wait_any() -> nix::Result<Option<(i32, ExitStatus)>> {
    let mut status = 0;
    let changes = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: `status` outlives the call, which writes nothing else.
    let pid = Errno::result(unsafe { libc::waitpid(-1, &raw mut status, changes) })?;
    Ok((pid != 0).then(|| (pid, ExitStatus::from_raw(status))))
}

/// Whether this process has children, which an `exec` may have left to it.
pub(crate) fn has_children() -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, look) != Err(Errno::ECHILD)
}

/// A descriptor that keeps naming one process, even after its id was given to another.
#[allow(unsafe_code, reason = "nix does not wrap pidfd_open")]
pub(crate) fn pidfd(pid: i32) -> nix::Result<OwnedFd> {
    // SAFETY: the call takes two integers; the descriptor it returns is new and ours.
    Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Sends a signal to the very process that a [`pidfd`] names.
#[allow(unsafe_code, reason = "nix does not wrap pidfd_send_signal")]
pub(crate) fn pidfd_kill(process: &OwnedFd, signal: i32) -> nix::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null `siginfo` is allowed and means what `kill` would send.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, no_info, 0)
    })
    .map(drop)
}

/// Points standard input and output at `/dev/null`, so that the ends of the caller's pipes are the job's alone.
pub(crate) fn let_go_of_stdio() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    Ok(())
}

/// Closes every descriptor from 3 on but these, which must be all that this process owns.
#[allow(unsafe_code, reason = "nix does not wrap close_range")]
pub(crate) fn close_all_but(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    let mut first = 3_u32;
    for last in kept.into_iter().chain([u32::MAX]) {
        if first < last {
            // SAFETY: nobody owns what is closed. A kernel that does not know the call closes nothing.
            unsafe { libc::syscall(libc::SYS_close_range, first, last.saturating_sub(1), 0) };
        }
        first = last.saturating_add(1);
    }
}
