//! The real host: one thread per process with a runtime of its own, the kernel's suspend-aware clock, the kernel's
//! random numbers.
//!
//! A thread of our own is why a user's blocked runtime cannot lose a lock; that there is one per process, not one
//! per locker or waiter, is why ten thousand waiters need no more threads than ten. It starts at first need: a lock
//! that is got and given back without waiting never starts it.

use std::{
    io,
    sync::{Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use tokio::runtime::{Builder, Handle};

use crate::host::{Fut, Host, Moment};

/// The host of every locker that is not simulated.
///
/// Do not `fork` a process and go on using its lockers in the child: the thread stays in the parent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

static RUNTIME: OnceLock<Handle> = OnceLock::new();

/// Taken by whoever starts the thread, so that there is never more than one.
static STARTING: Mutex<()> = Mutex::new(());

impl SystemHost {
    /// Starts the thread that waits and renews, if it does not run yet. Nobody has to: it starts at first need. But then
    /// a limit on processes or open files that forbids it is a panic, and here an error, after which to try again.
    ///
    /// # Errors
    ///
    /// What the system says of a thread, or of the descriptors that its runtime needs.
    pub fn start(&self) -> io::Result<()> {
        try_runtime().map(drop)
    }
}

fn runtime() -> &'static Handle {
    try_runtime().expect("a thread for the engine")
}

fn try_runtime() -> io::Result<&'static Handle> {
    if let Some(handle) = RUNTIME.get() {
        return Ok(handle);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = RUNTIME.get() {
        return Ok(handle);
    }
    // Built here, so that the caller need not wait until the thread runs.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("fencepost".into()).spawn(run)?;
    Ok(RUNTIME.get_or_init(|| handle))
}

impl Host for SystemHost {
    fn now(&self) -> Moment {
        boottime()
    }

    fn sleep_until(&self, at: Moment) -> Fut<'static, ()> {
        Box::pin(async move {
            while let Some(left) = Some(at.since(boottime())).filter(|left| !left.is_zero()) {
                slice(left).await;
            }
        })
    }

    fn spawn(&self, task: Fut<'static, ()>) {
        runtime().spawn(task);
    }

    /// At once: only a thread of our own can tell when the time has come.
    fn spawn_later(&self, _at: Moment, task: Fut<'static, ()>) {
        self.spawn(task);
    }

    fn within(&self, f: &mut dyn FnMut()) {
        let _context = RUNTIME.get().map(Handle::enter);
        f();
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the kernel's random numbers")
    }
}

/// Sleeps for `left`, but at most a second: the runtime's timers stop while the machine is suspended, so a sleep is
/// looked at again at least that soon after it resumes.
#[allow(clippy::disallowed_methods, reason = "the one place where a real host sleeps")]
async fn slice(left: Duration) {
    let sleep = {
        let _context = runtime().enter();
        tokio::time::sleep(left.min(Duration::from_secs(1)))
    };
    sleep.await;
}

#[cfg(target_os = "linux")]
fn boottime() -> Moment {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Moment::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Elsewhere suspend is not counted: a lock may be believed for longer than it is held after the machine slept.
#[cfg(not(target_os = "linux"))]
#[allow(clippy::disallowed_methods, reason = "no better clock in std")]
fn boottime() -> Moment {
    static ZERO: OnceLock<std::time::Instant> = OnceLock::new();
    Moment::from_nanos(ZERO.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64)
}
