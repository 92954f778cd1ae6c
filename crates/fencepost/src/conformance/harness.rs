//! What the suite asks of those who run it: a way to connect to the backend, and ways to break it.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    driver::{Driver, Fut},
    error::Error,
    host::Moment,
    token::Token,
};

/// Why a hook cannot exist on a backend, as a sentence that the report shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotApplicable(pub String);

impl NotApplicable {
    /// Not applicable for this reason.
    pub fn new<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self(reason.into()))
    }
}

impl fmt::Display for NotApplicable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The outcome of a hook. A hook that exists and does not work panics: nothing can be judged after that.
pub type Hook<T = ()> = Result<T, NotApplicable>;

/// Which way a driver reaches the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// A way that is never broken.
    Sound,
    /// The way that [`Harness::cut`] cuts and whose messages are lost and repeated.
    Subject,
}

/// The verbs whose messages can be lost, late or repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// [`Driver::enter`].
    Enter,
    /// [`Driver::renew`].
    Renew,
    /// [`Driver::leave`].
    Leave,
}

/// One backend that nobody else uses, and the ways to break it.
pub trait Harness: Send + Sync {
    /// A driver with a connection of its own.
    fn connect(&self, path: Path) -> Fut<'_, Result<Arc<dyn Driver>, Error>>;

    /// A TTL that is short, and long enough for renewals to come in time on a busy machine.
    fn ttl(&self) -> Duration;

    /// Starts a process that takes this lock, and returns while it may still be waiting for it.
    fn hold_elsewhere(&self, lock: &str, ttl: Duration) -> Hook<Box<dyn HolderProcess>>;

    /// Stops the backend from answering; its clocks go on.
    fn freeze(&self) -> Hook;

    /// Lets a frozen backend go on.
    fn thaw(&self) -> Hook;

    /// Cuts the subject's connections and refuses new ones.
    fn cut(&self) -> Hook;

    /// Lets the subject connect again.
    fn heal(&self) -> Hook;

    /// The subject's next request of this kind is carried out and its reply lost.
    fn lose_reply(&self, verb: Verb) -> Hook;

    /// The subject's next request of this kind is carried out only `by` later; requests that follow overtake it.
    fn hold_back(&self, verb: Verb, by: Duration) -> Hook;

    /// The subject's next request of this kind is carried out, and once more `after` that.
    fn repeat(&self, verb: Verb, after: Duration) -> Hook;

    /// Lets the lease of this lock's holder run out now.
    fn expire_holder(&self, lock: &str) -> Hook;

    /// Lets the leases of those who wait for this lock run out now.
    fn expire_waiters(&self, lock: &str) -> Hook;

    /// Deletes this lock's holder, as an operator with the backend's own tools would.
    fn delete_holder(&self, lock: &str) -> Hook;

    /// Stops the backend and starts it again; what it has acknowledged survives.
    fn restart(&self) -> Hook;

    /// Stops the backend and starts it again from nothing.
    fn wipe(&self) -> Hook;
}

/// A process that takes one lock and tells what becomes of it. It is killed when dropped.
pub trait HolderProcess: Send {
    /// Waits until the process holds the lock.
    fn held(&mut self) -> Fut<'_, Token>;

    /// Kills it so that it cannot clean up.
    fn kill(&mut self);

    /// Stops it.
    fn pause(&mut self);

    /// Lets it go on.
    fn resume(&mut self);

    /// Waits until the process finds that it has lost the lock.
    fn lost(&mut self) -> Fut<'_, LossReport>;
}

/// What a holder process tells of its loss, on the clock that the processes of one machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossReport {
    /// When it was told.
    pub told: Moment,
    /// The guard's last deadline.
    pub deadline: Option<Moment>,
}
