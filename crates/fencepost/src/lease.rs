//! Leases: what keeps claims alive at the backend, and the arithmetic of deadlines.
//!
//! On a session backend many claims hang on one lease; where each claim expires on its own, a lease is only the
//! batch in which claims of one TTL are renewed; where nothing expires it has no term.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    claim::{Claim, ClaimId, Loss, with_seat},
    driver::LeaseKind,
    engine::Schedule,
    host::{Host, Moment},
};

/// When to assume that a lease is gone: counted from just before the request was sent, never from the reply, and
/// early by a margin for the difference between two clock rates.
///
/// Source: the validity arithmetic of the Redlock description in the Redis documentation (drift of one per cent
/// plus 2 ms).
pub(crate) fn deadline(sent: Moment, term: Duration) -> Moment {
    let margin = term / 100 + Duration::from_millis(2);
    sent + term.saturating_sub(margin)
}

/// What keeps claims alive at the backend.
pub struct Lease {
    id: ClaimId,
    kind: LeaseKind,
    ttl: Duration,
    term: OnceLock<Duration>,
    schedule: Weak<Schedule>,
    life: Mutex<Life>,
    /// Set for good once something may come late at the backend that this lease would keep alive.
    retired: AtomicBool,
    /// The claims on a shared lease: they fall together.
    claims: Mutex<BTreeMap<u64, Weak<Claim>>>,
    seat: Mutex<Option<Box<dyn Any + Send>>>,
    /// Tells leases with the same due moment apart.
    pub(crate) serial: u64,
}

#[derive(Clone, Copy)]
enum Life {
    Unopened,
    Until(Moment),
    Over,
}

impl Lease {
    pub(crate) fn new(
        kind: LeaseKind,
        ttl: Duration,
        host: &dyn Host,
        schedule: Weak<Schedule>,
        serial: u64,
    ) -> Self {
        Self {
            id: ClaimId::random(host),
            kind,
            ttl,
            term: OnceLock::new(),
            schedule,
            life: Mutex::new(Life::Unopened),
            retired: AtomicBool::new(false),
            claims: Mutex::default(),
            seat: Mutex::new(None),
            serial,
        }
    }

    /// The lease's random id, made before it is opened, so that opening can be repeated.
    pub fn id(&self) -> ClaimId {
        self.id
    }

    /// The length that was asked for.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The length that the backend granted; `None` before it is opened and where nothing expires.
    pub fn term(&self) -> Option<Duration> {
        self.term.get().copied().filter(|_| self.kind != LeaseKind::None)
    }

    /// Gives `f` the driver's private state of this lease, made by `Default` at first use.
    pub fn seat<S: Default + Send + 'static, R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        with_seat(&self.seat, f)
    }

    /// From the driver, a fact: the backend has ended this lease.
    pub fn dead(&self) {
        self.end(Loss::LeaseEnded);
    }

    pub(crate) fn end(&self, loss: Loss) {
        *self.life() = Life::Over;
        for claim in self.claims() {
            claim.lose(loss);
        }
    }

    /// From the driver, a hint: the lease may be gone, verify it now.
    pub fn doubt(self: &Arc<Self>) {
        if let Some(schedule) = self.schedule.upgrade() {
            schedule.hasten_lease(self);
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.kind == LeaseKind::Shared
    }

    pub(crate) fn opened(&self, term: Duration, sent: Moment) {
        let _ = self.term.set(term);
        if self.is_shared() {
            *self.life() = Life::Until(deadline(sent, term));
        }
    }

    /// Whether no claim that anybody wants hangs on this lease; asked of leases at hand, which one table holds.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        if self.is_shared() {
            self.claims().iter().all(|claim| claim.is_over())
        } else {
            Arc::strong_count(self) == 1
        }
    }

    /// Lets a shared lease take no new claims: it is closed when those that it has are over.
    pub(crate) fn retire(&self) {
        self.retired.store(self.is_shared(), Ordering::Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Whether claims may be entered and granted on this lease.
    pub(crate) fn is_usable(&self, now: Moment) -> bool {
        match *self.life() {
            Life::Unopened => !self.is_shared(),
            Life::Until(end) => now < end,
            Life::Over => false,
        }
    }

    /// Whether claims that nobody renews stay at the backend because the lease that they share goes on.
    pub(crate) fn keeps_alive(&self, now: Moment) -> bool {
        self.is_shared() && self.is_usable(now)
    }

    /// The deadline of a shared lease.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match *self.life() {
            Life::Until(end) => Some(end),
            Life::Unopened | Life::Over => None,
        }
    }

    /// A shared lease was renewed by a request sent at `sent`; a passed deadline stays passed.
    pub(crate) fn extend(&self, sent: Moment, term: Duration, now: Moment) {
        let mut life = self.life();
        if let Life::Until(end) = *life
            && now < end
        {
            *life = Life::Until(end.max(deadline(sent, term)));
        }
    }

    pub(crate) fn enlist(&self, claim: &Arc<Claim>) {
        if self.is_shared() {
            lock(&self.claims).insert(claim.serial, Arc::downgrade(claim));
        }
    }

    pub(crate) fn discharge(&self, serial: u64) {
        if self.is_shared() {
            lock(&self.claims).remove(&serial);
        }
    }

    /// The living claims on a shared lease.
    pub(crate) fn claims(&self) -> Vec<Arc<Claim>> {
        lock(&self.claims).values().filter_map(Weak::upgrade).collect()
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        lock(&self.life)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("ttl", &self.ttl).field("term", &self.term()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_lies_before_the_term_and_never_underflows() {
        let sent = Moment::from_nanos(1_000_000_000);
        assert_eq!(deadline(sent, Duration::from_secs(10)).since(sent), Duration::from_millis(9_898));
        assert_eq!(deadline(sent, Duration::from_millis(1)), sent);
        assert_eq!(deadline(sent, Duration::ZERO), sent);
        assert!(deadline(sent, Duration::MAX) > sent);
    }
}
