//! One file a command.

pub(crate) mod gate;
pub(crate) mod held;
pub(crate) mod hold;
#[cfg(feature = "scenes")]
pub(crate) mod lab;
pub(crate) mod pages;
pub(crate) mod run;
pub(crate) mod unlock;
pub(crate) mod view;

use std::{
    future::Future,
    io,
    os::fd::{AsFd, BorrowedFd},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use fencepost::{Error, ErrorKind, Guard, Lock, Locker, SystemHost, driver::Host};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{
    args::{Global, Wanted},
    backend::Backend,
    duration, exit, report,
    run::{FdWaker, block_on, wait_readable},
};

/// The lock that was asked for, with its options.
fn lock(locker: &Locker, name: &str, wanted: &Wanted) -> Lock {
    let mut lock = locker.lock(name).ttl(wanted.ttl).patience(wanted.connect_timeout);
    if let Some(wait) = wanted.wait {
        lock = lock.wait(wait);
    }
    if let Some(label) = &wanted.label {
        lock = lock.label(label);
    }
    if let Some(above) = wanted.above {
        lock = lock.floor(above);
    }
    lock
}

/// Takes the lock in the way that was asked for.
async fn take(lock: &Lock, wanted: &Wanted) -> Result<Guard, Error> {
    let at_once = wanted.no_wait || wanted.wait == Some(Duration::ZERO);
    if at_once { lock.try_acquire().await } else { lock.acquire().await }
}

/// Connects to a backend that gives what is required, or says why not and answers the exit status.
async fn connected(
    backend: &Backend,
    host: Arc<dyn Host>,
    global: &Global,
    wanted: &Wanted,
) -> Result<Locker, u8> {
    let connected = backend.connect_on(host, global.quiet, wanted.connect_timeout).await;
    let locker = connected.map_err(|error| report::fail(Backend::code(&error), error))?;
    match wanted.require {
        None => Ok(locker),
        Some(level) => locker
            .require(level.into())
            .map_err(|error| report::fail(exit::CONFIG, format_args!("--require: {error}"))),
    }
}

/// What to tell of a lock that was taken. A lease that is longer than was asked for is no news to everybody; a shorter one
/// leaves less time than was planned with.
fn show(guard: &Guard, backend: &str, global: &Global, wanted: &Wanted) {
    let ttl = guard.ttl().map(|ttl| format!(" ttl={}", duration::exact(ttl))).unwrap_or_default();
    if global.verbose {
        report::note(format_args!("lock={} token={}{ttl} backend={backend}", guard.lock(), guard.token()));
    } else if !global.quiet && guard.ttl().is_some_and(|ttl| ttl < wanted.ttl) {
        let asked = duration::exact(wanted.ttl);
        report::note(format_args!(
            "the backend granted a shorter lease than --ttl {asked}:{ttl} backend={backend}"
        ));
    }
}

/// How long to wait for a backend of which nothing is wanted any more: what is left there ends with its lease.
const COURTESY: Duration = Duration::from_secs(1);

/// Waits for the last removals, within a limit.
fn close(locker: Locker, limit: Duration) -> io::Result<()> {
    block_on(within(limit, locker.close())).map(drop)
}

/// What a future of the library comes to, if it does within a limit.
async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let host = SystemHost;
    tokio::select! {
        biased;
        output = future => Some(output),
        () = host.sleep_until(host.now() + limit) => None,
    }
}

/// Says why the lock was not taken, and answers the exit status to end with.
fn not_taken(error: &Error, lock: &str, at: &str, global: &Global, wanted: &Wanted) -> u8 {
    if error.kind() != ErrorKind::Timeout {
        return report::error(error);
    }
    if !global.quiet {
        let wait = wanted.wait.filter(|wait| !wait.is_zero());
        // In the words of `status`.
        let mut text = match error.holder().map(|holder| &holder.owner) {
            Some(Some(owner)) => format!("lock={lock} is held by {owner} for {}, at {at}", view::ago(owner)),
            Some(None) => format!("lock={lock} is held by somebody who left no record, at {at}"),
            None if wait.is_none() => format!("lock={lock} is held, at {at}"),
            // Perhaps nobody holds it: the backend may not have answered in that time.
            None => format!("lock={lock} was not taken in time, at {at}"),
        };
        if let Some(wait) = wait {
            text += &format!("; gave up after {}", duration::exact(wait));
        }
        report::note(text);
    }
    wanted.conflict_exit_code.unwrap_or(report::code(error))
}

/// Polls a future of the library until it is done, or something happens on one of `others`: then `None`.
fn poll_beside<F: Future>(future: F, others: &[BorrowedFd<'_>]) -> io::Result<Option<F::Output>> {
    let wakes = FdWaker::new()?;
    let waker = Waker::from(Arc::clone(&wakes));
    let mut future = pin!(future);
    loop {
        wakes.reset();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(Some(output));
        }
        let mut all = vec![wakes.as_fd()];
        all.extend(others);
        wait_readable(&all)?;
        for other in others {
            if is_ready(*other)? {
                return Ok(None);
            }
        }
    }
}

/// Whether a descriptor can be read, or its other end is gone.
fn is_ready(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO)? > 0)
}
