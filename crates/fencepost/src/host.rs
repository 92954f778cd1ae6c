//! What the engine needs from its surroundings: time, tasks and randomness. They are parameters, so that a
//! simulation owns all three and replays exactly.

use std::{fmt, future::Future, ops, pin::Pin, time::Duration};

/// A boxed future, as the object-safe traits of this crate return it.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A moment on a clock that never steps and counts suspend (`CLOCK_BOOTTIME` on Linux).
///
/// Comparable between the processes of one machine until it is rebooted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(Duration);

impl Moment {
    /// The moment that lies `nanos` nanoseconds after the clock's zero.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Nanoseconds since the clock's zero; saturates after 584 years.
    pub fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time from `earlier` to this moment, zero if it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `by` earlier, at the earliest the clock's zero.
    pub fn back(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}

/// Saturates: waiting "400 years" is legal, and is as good as for ever.
impl ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Time, tasks and randomness for one locker and its driver.
pub trait Host: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Moment;

    /// Completes at `at` or a little later, never earlier. Called where a task of this host runs.
    fn sleep_until(&self, at: Moment) -> Fut<'static, ()>;

    /// Runs `task` to its end, whatever becomes of the caller and its runtime. Callable from any thread.
    fn spawn(&self, task: Fut<'static, ()>);

    /// As [`spawn`](Self::spawn) for a task that has nothing to do before `at`: a host that would have to start a
    /// thread for it alone may keep it until then.
    fn spawn_later(&self, at: Moment, task: Fut<'static, ()>);

    /// Runs `f` at once on this thread, in a context in which a driver's sockets may be polled. The real host has that
    /// context once a locker with leases is made; a driver connects in a task of the host, not at its first poll.
    fn within(&self, f: &mut dyn FnMut());

    /// 64 bits that nobody can guess, or that a seed determines in a simulation.
    fn random(&self) -> u64;
}
