//! What the cases share: lockers, names, stamps, and ways to wait that cannot hang unseen.

use std::{future::Future, sync::Arc, thread, time::Duration};

use tokio::sync::oneshot;

use super::harness::{Harness, NotApplicable, Path};
use crate::{
    driver::{Host, LeaseKind, Status},
    engine::SystemHost,
    error::Error,
    guard::Guard,
    host::Moment,
    lock::Lock,
    locker::Locker,
};

/// Why a case did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The backend cannot be broken in this way, or does not promise this.
    NotApplicable(String),
    /// The promise is broken.
    Failed(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(format!("unexpected error of kind {:?}: {error}", error.kind()))
    }
}

impl From<NotApplicable> for Stop {
    fn from(reason: NotApplicable) -> Self {
        Self::NotApplicable(reason.0)
    }
}

pub(crate) type Verdict = Result<(), Stop>;

/// Fails the case unless `kept`.
pub(crate) fn ensure(kept: bool, broken: impl Into<String>) -> Verdict {
    if kept { Ok(()) } else { Err(Stop::Failed(broken.into())) }
}

/// The other half of an error that is expected.
pub(crate) fn refused<T>(result: Result<T, Error>, what: &str) -> Result<Error, Stop> {
    result.err().ok_or_else(|| Stop::Failed(format!("{what} succeeded")))
}

/// The scene of one case.
pub(super) struct Stage<'a> {
    pub(super) harness: &'a dyn Harness,
    pub(super) ttl: Duration,
    /// The lock that the case is about.
    pub(super) name: String,
}

impl<'a> Stage<'a> {
    pub(super) fn new(case: &str, harness: &'a dyn Harness) -> Self {
        Self { harness, ttl: harness.ttl(), name: format!("conformance/{case}") }
    }

    /// A locker whose connection is never broken.
    pub(super) async fn rival(&self) -> Result<Locker, Error> {
        self.locker(Path::Sound).await
    }

    /// A locker that the faults are aimed at.
    pub(super) async fn subject(&self) -> Result<Locker, Error> {
        self.locker(Path::Subject).await
    }

    async fn locker(&self, path: Path) -> Result<Locker, Error> {
        Ok(Locker::from_parts(self.harness.connect(path).await?, Arc::new(SystemHost)))
    }

    /// The case's lock with the harness's TTL, and a limit that is longer than any wait should be.
    pub(super) fn lock(&self, locker: &Locker) -> Lock {
        self.other(locker, "")
    }

    /// The case's lock with ten times the TTL: what happens within a few TTLs is then not the lease running out.
    pub(super) fn long(&self, locker: &Locker) -> Lock {
        self.lock(locker).ttl(self.ttl * 10)
    }

    /// Another lock of the case.
    pub(super) fn other(&self, locker: &Locker, suffix: &str) -> Lock {
        locker.lock(format!("{}{suffix}", self.name)).ttl(self.ttl).wait(self.ttl * 8)
    }

    pub(super) async fn inspect(&self, locker: &Locker) -> Result<Status, Error> {
        locker.inspect(&self.name).await
    }

    /// Waits until so many stand in the case's line.
    pub(super) async fn until_waiting(&self, locker: &Locker, waiters: usize) -> Verdict {
        self.until(locker, |status| status.waiters.len() == waiters).await
    }

    /// Waits until nobody holds the case's lock or waits for it, and fails if that takes longer than `limit`.
    pub(super) async fn free_within(&self, limit: Duration, locker: &Locker) -> Verdict {
        let start = now();
        self.until(locker, |status| status.holder.is_none() && status.waiters.is_empty()).await?;
        let took = now().since(start);
        ensure(took <= limit, format!("the lock was free only {took:?} later, not within {limit:?}"))
    }

    /// Fails if anybody holds the case's lock while this much time passes.
    pub(super) async fn stays_free(&self, by: Duration, locker: &Locker) -> Verdict {
        let end = now() + by;
        while now() < end {
            let holder = self.inspect(locker).await?.holder;
            ensure(holder.is_none(), format!("the lock has a holder that nobody asked for: {holder:?}"))?;
            pause(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Fails unless the backend shows this guard, and nobody else, as the holder.
    pub(super) async fn is_held_by(&self, guard: &Guard, locker: &Locker) -> Verdict {
        let holder = self.inspect(locker).await?.holder;
        let token = holder.as_ref().and_then(|holder| holder.token);
        let text = format!("token={} is held, and the backend shows {holder:?}", guard.token());
        ensure(guard.is_held() && token == Some(guard.token()), text)
    }

    /// Waits until the case's lock is in such a state; the case's own deadline bounds it.
    pub(super) async fn until(&self, locker: &Locker, is: impl Fn(&Status) -> bool) -> Verdict {
        while !is(&self.inspect(locker).await?) {
            pause(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// A few hundred milliseconds more than `terms` TTLs: what a busy machine may add to a wait that ends by itself.
    pub(super) fn within(&self, terms: u32) -> Duration {
        self.ttl * terms + Duration::from_millis(700)
    }
}

pub(super) fn now() -> Moment {
    SystemHost.now()
}

pub(super) async fn pause(by: Duration) {
    SystemHost.sleep_until(now() + by).await;
}

/// Polls `future` for a while, and drops it if it is not done by then.
pub(super) async fn drop_after<T>(by: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = pause(by) => None,
    }
}

/// Drops `future` once `moment` has come.
pub(super) async fn drop_when<T>(
    moment: impl Future<Output = Verdict>,
    future: impl Future<Output = T>,
) -> Verdict {
    tokio::select! {
        biased;
        verdict = moment => verdict,
        _ = future => Err(Stop::Failed("the future to be dropped came to its end".into())),
    }
}

/// Starts work that goes on beside the case.
pub(super) fn beside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Beside<T> {
    let (tell, told) = oneshot::channel();
    SystemHost.spawn(Box::pin(async move {
        // The case may have failed meanwhile; a guard in the result then releases itself.
        let _ = tell.send(work.await);
    }));
    Beside(told)
}

/// Work that goes on beside the case.
pub(super) struct Beside<T>(oneshot::Receiver<T>);

impl<T> Beside<T> {
    /// The result; work that panicked fails the case.
    pub(super) async fn done(self) -> Result<T, Stop> {
        self.0.await.map_err(|_| Stop::Failed("work beside the case panicked".into()))
    }
}

/// Starts an acquire beside the case; its guard comes with the moment at which the acquire returned.
pub(super) fn acquiring(lock: Lock) -> Beside<Result<(Guard, Moment), Error>> {
    beside(async move {
        let guard = lock.acquire().await?;
        Ok((guard, now()))
    })
}

/// Runs blocking work on a thread of its own.
pub(super) fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Beside<T> {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || tell.send(work()));
    Beside(told)
}

/// Fails if the guard is lost while this much time passes.
pub(super) async fn holds_for(guard: &Guard, by: Duration) -> Verdict {
    match drop_after(by, guard.lost()).await {
        Some(loss) => Err(Stop::Failed(format!("the lock was lost: {loss}"))),
        None => ensure(guard.is_held(), "the guard is not lost and says that it is not held"),
    }
}

/// Stops the case where nothing expires.
pub(super) fn needs_expiry(locker: &Locker) -> Verdict {
    match locker.about().lease {
        LeaseKind::None => Err(Stop::NotApplicable("nothing expires on this backend".into())),
        LeaseKind::PerClaim | LeaseKind::Shared => Ok(()),
    }
}

/// Waits until a guard's loss is told; when that was.
pub(super) async fn told_loss(guard: &Guard) -> Moment {
    guard.lost().await;
    now()
}

/// Asks a guard again and again until it is lost: the last moment just before which it said that it was held.
pub(super) async fn last_belief(guard: &Guard) -> Option<Moment> {
    let mut believed = None;
    loop {
        let before = now();
        if !guard.is_held() {
            return believed;
        }
        believed = Some(before);
        pause(Duration::from_millis(2)).await;
    }
}
