//! The guard: proof of a held lock, with its token, its deadline and its loss signal.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::sync::watch;
use tracing::Instrument;

use crate::{
    claim::{Claim, Hold, Loss, State},
    engine::{self, Ward, offload},
    error::{Error, ErrorKind},
    host::Moment,
    name::LockName,
    token::{Lineage, Token},
};

/// A held lock.
///
/// Dropping a guard gives the lock back in the background, as best it can: if the process ends first, the lock is
/// free when its lease ends. [`release`](Guard::release) waits for the backend's word.
///
/// A guard is a belief, not a fence: if this process is paused past the deadline, another holder may be at work when
/// it resumes. Hand the [token](Guard::token) to the resource and let it reject the lower one.
#[must_use = "a guard that is dropped gives the lock back at once"]
pub struct Guard {
    /// Dropped, it gives the lock back.
    ward: Ward,
    token: Token,
}

impl Guard {
    pub(crate) fn new(ward: Ward, token: Token) -> Self {
        Self { ward, token }
    }

    /// The fencing token of this hold. It never changes.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The lineage within which the token compares.
    pub fn lineage(&self) -> &Lineage {
        &self.ward.core.about.lineage
    }

    /// The lock's name.
    pub fn lock(&self) -> &LockName {
        self.claim().lock()
    }

    /// The moment after which the lock must be assumed gone unless a renewal moves it; `None` where nothing expires.
    pub fn deadline(&self) -> Option<Moment> {
        self.claim().hold().deadline
    }

    /// The length of the lease that the backend granted, which may differ from the one that was asked for: etcd counts whole
    /// seconds, ZooKeeper has limits of its own. `None` where nothing expires.
    pub fn ttl(&self) -> Option<Duration> {
        self.claim().lease().term()
    }

    /// The host's present moment, to compare with [`deadline`](Guard::deadline).
    pub fn now(&self) -> Moment {
        self.ward.core.now()
    }

    /// Whether the lock is surely held at this moment. Never true at or after the deadline, also while a renewal
    /// hangs. It may be false a moment later: use [`lost`](Guard::lost) or [`run`](Guard::run) to be told.
    pub fn is_held(&self) -> bool {
        self.claim().is_held()
    }

    /// Completes when the lock is lost, with the reason; never completes otherwise.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is missed between two calls.
    pub async fn lost(&self) -> Loss {
        let mut changes = self.changes();
        loop {
            if let State::Lost(loss) = changes.hold().state {
                return loss;
            }
            changes.changed().await;
        }
    }

    /// Follows the hold's state and deadline, for those who hand them on to another process.
    pub fn changes(&self) -> Changes {
        Changes { seen: self.claim().watch() }
    }

    /// Runs `work` for as long as the lock is held.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] as soon as the lock is lost; `work` is dropped then, at its current await. Loss wins over a
    /// completion at the same moment. Work that does not await cannot be stopped.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work` is; the guard stays as it was.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencepost::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let locker = fencepost::Locker::connect(&format!("local:{}", dir.path().display())).await?;
    /// let guard = locker.lock("report").acquire().await?;
    /// let pages = guard.run(async { 42 }).await?;
    /// assert_eq!(pages, 42);
    /// # Ok(()) }
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        let output = tokio::select! {
            biased;
            loss = self.lost() => return Err(self.lost_error(loss)),
            output = work => output,
        };
        if self.is_held() { Ok(output) } else { Err(self.lost_error(Loss::Deadline)) }
    }

    fn lost_error(&self, loss: Loss) -> Error {
        Error::new(ErrorKind::Lost, format!("lock={} was lost: {loss}", self.lock()))
    }

    /// Gives the lock back and waits until the backend confirms it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lock was lost before: the work since then was not protected.
    /// [`ErrorKind::Unknown`] if the backend did not answer: the removal is repeated in the background, and the lock is
    /// free one lease length later at the latest.
    ///
    /// # Cancel safety
    ///
    /// Safe: once called, the release goes on in the background if the future is dropped.
    pub fn release(self) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let host = self.ward.core.host.clone();
        let span = tracing::debug_span!("release", lock = %self.lock(), token = %self.token);
        offload(host, Box::pin(engine::release(self.ward).instrument(span)))
    }

    /// Makes `value` what others see beside the owner, for as long as this guard holds the lock.
    pub(crate) fn proclaim(&self, value: String) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (core, claim) = (&self.ward.core, self.claim().clone());
        offload(core.host.clone(), Box::pin(engine::proclaim(core.driver.clone(), claim, value)))
    }

    /// The claim behind the guard, for a driver's own extensions.
    pub(crate) fn claim(&self) -> &Arc<Claim> {
        self.ward.claim()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("token", &self.token).field("claim", self.claim()).finish()
    }
}

/// The changes of one hold; see [`Guard::changes`].
#[derive(Clone, Debug)]
pub struct Changes {
    seen: watch::Receiver<Hold>,
}

impl Changes {
    /// The present state and deadline.
    pub fn hold(&self) -> Hold {
        *self.seen.borrow()
    }

    /// Completes when the hold is no longer what the last call of this function, or the making of this value, found.
    /// Never completes once the claim is gone for good.
    ///
    /// # Cancel safety
    ///
    /// Safe: a change that was not awaited is told by the next call.
    pub async fn changed(&mut self) -> Hold {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.seen.borrow_and_update()
    }
}
