//! The locker: one connection to one backend, from which locks are taken.

use std::{any::Any, sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::{
    connect,
    driver::{About, Driver, Fail, ForcedOut, Fut, Host, Level, Status},
    election::Election,
    engine::{self, Core, SystemHost, offload, to_its_end},
    error::Error,
    lock::Lock,
    name::LockName,
};

/// How long an observer waits for a hint before it asks again.
const OBSERVE_EVERY: Duration = Duration::from_millis(500);

/// How long an operator's request may take.
const OPERATOR_LIMIT: Duration = Duration::from_secs(10);

/// A connection to one backend. Cheap to clone; the clones share it.
#[derive(Clone)]
pub struct Locker {
    core: Arc<Core>,
}

impl Locker {
    /// Connects to the backend that `url` names, such as `local:` or `local:/var/lib/jobs`.
    ///
    /// # Errors
    ///
    /// `Invalid` names the part of the URL to fix; `Unsupported` lists the schemes that this build has; `Unavailable` and
    /// `Denied` as they say.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_on(url, Arc::new(SystemHost)).await
    }

    /// As [`connect`](Self::connect), over a host of your own.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn connect_on(url: &str, host: Arc<dyn Host>) -> Result<Self, Error> {
        let (url, driver_host) = (url.to_owned(), host.clone());
        let driver =
            offload(host.clone(), Box::pin(async move { connect::connect(&url, driver_host).await })).await?;
        Ok(Self::from_parts(driver, host))
    }

    /// A locker over a driver of your own, or over a simulated host.
    pub fn from_parts(driver: Arc<dyn Driver>, host: Arc<dyn Host>) -> Self {
        Self { core: Core::new(driver, host) }
    }

    /// What this backend promises.
    pub fn about(&self) -> &About {
        &self.core.about
    }

    /// The same locker, if its backend reaches `level`.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with the reason, if it does not.
    pub fn require(self, level: Level) -> Result<Self, Error> {
        self.about().require(level)?;
        Ok(self)
    }

    /// A lock of this name; what is wrong with the name is told by the acquire.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.core.clone(), name.as_ref())
    }

    /// The election of this name: the lock of the same name, whose holder leads. What is wrong with the name is told by the
    /// campaign.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.clone(), name.as_ref())
    }

    /// Who holds and who waits for one lock.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that no lock can have; otherwise as the backend says.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        let lock: LockName = name.as_ref().parse()?;
        self.ask(move |driver| Box::pin(async move { driver.inspect(&lock).await })).await
    }

    /// The locks that are held or waited for and whose names begin with `prefix`, in the order of their names.
    ///
    /// # Errors
    ///
    /// As the backend says.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    pub async fn list(&self, prefix: impl Into<String>) -> Result<Vec<Status>, Error> {
        let prefix = prefix.into();
        self.ask(move |driver| Box::pin(async move { driver.list(&prefix).await })).await
    }

    /// Takes the lock away from its holder and mints a higher token, so that a gate can be raised with it. The holder is
    /// told as soon as the backend can tell it, and may act until then.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that no lock can have; otherwise as the backend says.
    ///
    /// # Cancel safety
    ///
    /// Not safe: a dropped call may or may not have been carried out. It can be repeated.
    pub async fn force_unlock(&self, name: impl AsRef<str>) -> Result<ForcedOut, Error> {
        let lock: LockName = name.as_ref().parse()?;
        self.ask(move |driver| Box::pin(async move { driver.force_unlock(&lock).await })).await
    }

    /// Follows one lock.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that no lock can have.
    pub fn observe(&self, name: impl AsRef<str>) -> Result<Observer, Error> {
        let lock: LockName = name.as_ref().parse()?;
        let hint = Arc::new(Notify::new());
        let mut watch = None;
        self.core.host.within(&mut || watch = self.core.driver.observe(&lock, hint.clone()));
        Ok(Observer { locker: self.clone(), lock, hint, _watch: watch, last: None })
    }

    /// Waits until every claim that was given up is removed, then closes the leases. Guards that are still alive stay
    /// valid only where claims expire on their own.
    ///
    /// # Cancel safety
    ///
    /// Safe: the removals go on in the background.
    pub async fn close(self) {
        let core = self.core.clone();
        offload(
            self.core.host.clone(),
            Box::pin(async move {
                core.reaper.drained().await;
                for lease in core.drain_leases() {
                    engine::close(core.driver.clone(), core.host.clone(), lease).await;
                }
            }),
        )
        .await;
    }

    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Arc<dyn Driver>) -> Fut<'static, Result<T, Fail>> + Send + 'static,
    ) -> Result<T, Error> {
        let (driver, host) = (self.core.driver.clone(), self.core.host.clone());
        let work = to_its_end(host.clone(), OPERATOR_LIMIT, request(driver), |_| ());
        offload(host, Box::pin(async move { work.await.map_err(Error::from) })).await
    }
}

/// Follows one lock; made by [`Locker::observe`].
pub struct Observer {
    locker: Locker,
    lock: LockName,
    hint: Arc<Notify>,
    _watch: Option<Box<dyn Any + Send>>,
    last: Option<Status>,
}

impl Observer {
    /// The lock's present state at the first call; after that, its next state that differs in who holds it or who waits.
    ///
    /// # Errors
    ///
    /// As [`Locker::inspect`].
    ///
    /// # Cancel safety
    ///
    /// Safe: a change that was not returned is returned by the next call.
    pub async fn next(&mut self) -> Result<Status, Error> {
        loop {
            let status = self.locker.inspect(self.lock.as_str()).await?;
            if self.last.as_ref().is_none_or(|last| differs(last, &status)) {
                self.last = Some(status.clone());
                return Ok(status);
            }
            let (host, hint) = (self.locker.core.host.clone(), self.hint.clone());
            offload(
                host.clone(),
                Box::pin(async move {
                    tokio::select! {
                        () = hint.notified() => {}
                        () = host.sleep_until(host.now() + OBSERVE_EVERY) => {}
                    }
                }),
            )
            .await;
        }
    }
}

/// Whether two states differ in more than the time that is left.
fn differs(a: &Status, b: &Status) -> bool {
    let key = |status: &Status| status.holder.as_ref().map(|holder| (holder.token, holder.owner.clone()));
    key(a) != key(b) || a.waiters != b.waiters
}
