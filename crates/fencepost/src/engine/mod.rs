//! The engine: the only loops of the library. Waiting is written once ([`acquire`]), renewal once
//! ([`keepalive`]), clean-up once ([`reaper`]); the declaration of loss is `Claim::lose`.
//!
//! The engine knows the driver contract and no backend.

mod acquire;
mod keepalive;
mod offload;
mod proclaim;
mod reaper;
mod system;
mod verb;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    claim::{Claim, Loss},
    driver::{About, Driver, Fail, LeaseKind},
    host::{Host, Moment},
    lease::Lease,
    name::LockName,
    owner::Owner,
    token::Token,
};

pub(crate) use acquire::{Want, acquire};
pub(crate) use keepalive::Schedule;
pub(crate) use offload::offload;
pub(crate) use proclaim::proclaim;
pub(crate) use reaper::{Reaper, Ward, release};
pub use system::SystemHost;
pub(crate) use verb::{to_its_end, verb};

/// The bounds of the time that one request may take. Between them it is half a lease: an answer that comes later is of
/// little use.
pub(crate) const REQUEST_MIN: Duration = Duration::from_millis(50);
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(5);

/// How many different TTLs one locker keeps leases for.
const MAX_LEASES: usize = 64;

/// The part of a locker that its clones and guards share.
pub(crate) struct Core {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) about: About,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) reaper: Arc<Reaper>,
    leases: Mutex<HashMap<Duration, Arc<Lease>>>,
    /// Held while a shared lease is opened, so that a crowd of first claims opens one.
    opening: Arc<tokio::sync::Mutex<()>>,
    serial: AtomicU64,
}

impl Core {
    pub(crate) fn new(driver: Arc<dyn Driver>, host: Arc<dyn Host>) -> Arc<Self> {
        let about = driver.about();
        if about.lease != LeaseKind::None {
            // From here on the driver's sockets may be polled on any thread: see `Host::within`.
            host.spawn(Box::pin(async {}));
        }
        Arc::new(Self {
            about,
            schedule: Schedule::new(driver.clone(), host.clone()),
            reaper: Arc::default(),
            driver,
            host,
            leases: Mutex::default(),
            opening: Arc::default(),
            serial: AtomicU64::new(1),
        })
    }

    pub(crate) fn now(&self) -> Moment {
        self.host.now()
    }

    /// A lease of this length that new claims may be put on: the one at hand, or one just opened.
    pub(crate) async fn lease(self: &Arc<Self>, ttl: Duration) -> Result<Arc<Lease>, Fail> {
        if let Some(lease) = self.lease_at_hand(ttl) {
            return Ok(lease);
        }
        let one_at_a_time = self.opening.clone().lock_owned().await;
        if let Some(lease) = self.lease_at_hand(ttl) {
            return Ok(lease);
        }
        let schedule = Arc::downgrade(&self.schedule);
        let lease = Arc::new(Lease::new(self.about.lease, ttl, &*self.host, schedule, self.next_serial()));
        let (core, opening, sent) = (self.clone(), lease.clone(), self.now());
        let settle = move |opened: &Result<Duration, Fail>| {
            match opened {
                Ok(term) => core.keep(&opening, *term, sent),
                // It may have been opened all the same.
                Err(Fail::Unknown(_)) => core.close_lease(opening),
                Err(_) => {}
            }
            drop(one_at_a_time);
        };
        let (driver, opening) = (self.driver.clone(), lease.clone());
        let open = Box::pin(async move { driver.open(&opening).await });
        to_its_end(self.host.clone(), (ttl / 2).clamp(REQUEST_MIN, REQUEST_MAX), open, settle).await?;
        Ok(lease)
    }

    fn keep(&self, lease: &Arc<Lease>, term: Duration, sent: Moment) {
        lease.opened(term, sent);
        if lease.is_shared() {
            self.schedule.add_lease(lease);
        }
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.len() >= MAX_LEASES {
            // A claim that was about to be put on one of these finds it over, and takes another.
            let idle: Vec<_> =
                leases.extract_if(|_, lease| lease.is_idle()).map(|(_, lease)| lease).collect();
            for lease in idle.into_iter().filter(|lease| lease.is_shared()) {
                self.schedule.remove_lease(&lease);
                self.close_lease(lease);
            }
        }
        leases.insert(lease.ttl(), lease.clone());
    }

    /// Closes a lease in the background.
    fn close_lease(&self, lease: Arc<Lease>) {
        // At once, and not when the task comes to it: nothing may be granted on it meanwhile.
        lease.end(Loss::LeaseEnded);
        self.host.spawn(Box::pin(close(self.driver.clone(), self.host.clone(), lease)));
    }

    fn lease_at_hand(&self, ttl: Duration) -> Option<Arc<Lease>> {
        let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.get(&ttl).filter(|lease| lease.is_usable(self.now()) && !lease.is_retired()).cloned()
    }

    pub(crate) fn claim(
        &self,
        lock: LockName,
        owner: Owner,
        floor: Option<Token>,
        lease: Arc<Lease>,
    ) -> Arc<Claim> {
        let schedule = Arc::downgrade(&self.schedule);
        Claim::new(lock, owner, floor, lease, self.host.clone(), schedule, self.next_serial())
    }

    /// The leases to close when the locker ends.
    pub(crate) fn drain_leases(&self) -> Vec<Arc<Lease>> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.drain().map(|(_, lease)| lease).collect()
    }

    fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }
}

/// Closes a lease; one that cannot be closed ends by itself.
pub(crate) async fn close(driver: Arc<dyn Driver>, host: Arc<dyn Host>, lease: Arc<Lease>) {
    // Those who hold something on it must not believe a moment longer than the backend does.
    lease.end(Loss::LeaseEnded);
    let closing = Box::pin(async move { driver.close(&lease).await });
    let _ = to_its_end(host, REQUEST_MAX, closing, |_| ()).await;
}

impl Drop for Core {
    fn drop(&mut self) {
        self.schedule.stop();
        if self.about.lease == LeaseKind::Shared {
            for lease in self.drain_leases() {
                self.close_lease(lease);
            }
        }
    }
}
