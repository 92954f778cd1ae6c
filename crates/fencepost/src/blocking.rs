//! The same API for programs without async: every call blocks its thread.
//!
//! The futures of this crate need no runtime around them, so blocking on one is a few lines; renewal and clean-up happen
//! on the library's own thread as ever. Do not call these from async code: they block it.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use crate::{
    claim::Loss,
    driver::{About, ForcedOut, Level, Status},
    error::Error,
    token::{Lineage, Token},
};

/// Blocks this thread until `future`, one of this crate's, is done.
pub fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// A connection to one backend; the blocking form of [`Locker`](crate::Locker).
///
/// ```
/// # fn main() -> Result<(), fencepost::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let url = format!("local:{}", dir.path().display());
/// use fencepost::blocking::Locker;
/// let locker = Locker::connect(&url)?;
/// let guard = locker.acquire(&locker.lock("orders/4821"))?;
/// println!("token {}", guard.token());
/// guard.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locker(crate::Locker);

impl Locker {
    /// Connects to the backend that `url` names.
    ///
    /// # Errors
    ///
    /// As [`Locker::connect`](crate::Locker::connect).
    pub fn connect(url: &str) -> Result<Self, Error> {
        wait(crate::Locker::connect(url)).map(Self)
    }

    /// What this backend promises.
    pub fn about(&self) -> &About {
        self.0.about()
    }

    /// The same locker, if its backend reaches `level`.
    ///
    /// # Errors
    ///
    /// As [`Locker::require`](crate::Locker::require).
    pub fn require(self, level: Level) -> Result<Self, Error> {
        self.0.require(level).map(Self)
    }

    /// A lock of this name, with the options of the next acquire.
    pub fn lock(&self, name: impl AsRef<str>) -> crate::Lock {
        self.0.lock(name)
    }

    /// Waits for the lock and takes it.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self, lock: &crate::Lock) -> Result<Guard, Error> {
        wait(lock.acquire()).map(Guard)
    }

    /// Takes the lock if it is free, without standing in line.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self, lock: &crate::Lock) -> Result<Guard, Error> {
        wait(lock.try_acquire()).map(Guard)
    }

    /// Who holds and who waits for one lock.
    ///
    /// # Errors
    ///
    /// As [`Locker::inspect`](crate::Locker::inspect).
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        wait(self.0.inspect(name))
    }

    /// The locks that are held or waited for and whose names begin with `prefix`.
    ///
    /// # Errors
    ///
    /// As [`Locker::list`](crate::Locker::list).
    pub fn list(&self, prefix: impl Into<String>) -> Result<Vec<Status>, Error> {
        wait(self.0.list(prefix))
    }

    /// Takes the lock away from its holder and mints a higher token.
    ///
    /// # Errors
    ///
    /// As [`Locker::force_unlock`](crate::Locker::force_unlock).
    pub fn force_unlock(&self, name: impl AsRef<str>) -> Result<ForcedOut, Error> {
        wait(self.0.force_unlock(name))
    }

    /// Waits until every claim that was given up is removed.
    pub fn close(self) {
        wait(self.0.close());
    }
}

impl From<crate::Locker> for Locker {
    fn from(locker: crate::Locker) -> Self {
        Self(locker)
    }
}

/// A held lock; the blocking form of [`Guard`](crate::Guard).
#[derive(Debug)]
#[must_use = "a guard that is dropped gives the lock back at once"]
pub struct Guard(crate::Guard);

impl Guard {
    /// The fencing token of this hold.
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// The lineage within which the token compares.
    pub fn lineage(&self) -> &Lineage {
        self.0.lineage()
    }

    /// Whether the lock is surely held at this moment; ask before each step that must be protected.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Blocks until the lock is lost.
    pub fn lost(&self) -> Loss {
        wait(self.0.lost())
    }

    /// Gives the lock back and waits until the backend confirms it.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<(), Error> {
        wait(self.0.release())
    }
}
