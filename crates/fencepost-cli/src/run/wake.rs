//! Waiting: descriptors, an alarm, and the wake-ups of a future, all in one poll(2).

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Returns when one of `fds` can be read or has come to its end.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut fds: Vec<_> = fds.iter().map(|&fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            answer => return Ok(answer.map(drop)?),
        }
    }
}

/// A timer on `CLOCK_BOOTTIME`, which fires at once when the machine wakes up after the time was over.
pub(crate) struct Alarm(TimerFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?))
    }

    /// Sets it anew, which also takes back an expiry that was not looked at.
    pub(crate) fn set(&self, at: Option<u64>) -> io::Result<()> {
        let Some(at) = at else { return Ok(self.0.unset()?) };
        // A time of zero would disarm it; the past is always late enough.
        let at = TimeSpec::new((at / 1_000_000_000) as i64, (at % 1_000_000_000).max(1) as i64);
        Ok(self.0.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Turns the wake-up of a future, from whatever thread, into a readable descriptor.
pub(crate) struct FdWaker(EventFd);

impl FdWaker {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Arc::new(Self(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Forgets earlier wake-ups. To be called before polling, so that none after it is missed.
    pub(crate) fn reset(&self) {
        // An error says that there was none.
        let _ = self.0.read();
    }
}

impl Wake for FdWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // It can only fail when the counter is full, and then it is readable anyway.
        let _ = self.0.write(1);
    }
}

impl AsFd for FdWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Drives a future to its end and lets nothing interrupt it: for a release.
pub(crate) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let fd = FdWaker::new()?;
    let waker = Waker::from(Arc::clone(&fd));
    let mut future = pin!(future);
    loop {
        fd.reset();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        wait_readable(&[fd.as_fd()])?;
    }
}
