//! What the tests of all real backends do with locks and with time.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use fencepost::driver::Host;
use fencepost::{Error, Guard, Locker, Moment, SystemHost, blocking};

use crate::scene::LONG;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn now() -> Moment {
    SystemHost.now()
}

/// Time that has to pass while nothing happens: it cannot be polled for.
pub(crate) fn pass(time: Duration) {
    thread::sleep(time);
}

/// Polls until a condition gives something.
#[track_caller]
pub(crate) fn until<T>(what: &str, within: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = now() + within;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(now() < end, "not within {within:?}: {what}");
        pass(ms(2));
    }
}

#[track_caller]
pub(crate) fn take(locker: &Locker, lock: &str, ttl: Duration) -> Guard {
    blocking::wait(locker.lock(lock).ttl(ttl).wait(LONG).acquire()).expect("the lock")
}

#[track_caller]
pub(crate) fn give(guard: Guard) {
    blocking::wait(guard.release()).expect("it was held");
}

/// An acquire on a thread of its own.
pub(crate) struct Waiter(JoinHandle<(Result<Guard, Error>, Moment)>);

impl Waiter {
    pub(crate) fn start(locker: &Locker, lock: &str, ttl: Duration, wait: Duration) -> Self {
        let lock = locker.lock(lock).ttl(ttl).wait(wait);
        Self(thread::spawn(move || {
            let outcome = blocking::wait(lock.acquire());
            (outcome, now())
        }))
    }

    /// What became of it, and when.
    pub(crate) fn outcome(self) -> (Result<Guard, Error>, Moment) {
        self.0.join().expect("it does not panic")
    }

    #[track_caller]
    pub(crate) fn granted(self) -> (Guard, Moment) {
        let (outcome, at) = self.outcome();
        (outcome.expect("the lock"), at)
    }
}
