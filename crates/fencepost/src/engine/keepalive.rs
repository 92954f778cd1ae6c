//! Renewing: one task per locker, for all of its claims.
//!
//! The schedule holds, for each held claim (and each shared lease), the next moment at which it must be looked at:
//! the time to renew it, or its deadline, whichever comes first. Looking costs what is due, never a scan of all.
//!
//! Invariants:
//! 1. A renewal never blocks the schedule: batches run as tasks of their own, cut off after a sixth of the term, so
//!    that silence becomes Suspect early and a deadline is seen on time while a renewal hangs.
//! 2. Only a report for that very claim moves its deadline.
//! 3. The task holds no locker alive: it ends when the locker's core is dropped.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use tracing::Instrument;

use crate::{
    claim::{Claim, Loss},
    driver::{Driver, Fail, Renewed},
    host::{Host, Moment},
    lease::{Lease, deadline},
    meters,
};

/// A freshly granted claim is attended within this time. Attending at once would cost every short lock a request.
const ATTEND_AFTER: Duration = Duration::from_millis(500);

/// When each held claim must be looked at next.
pub(crate) struct Schedule {
    driver: Arc<dyn Driver>,
    host: Arc<dyn Host>,
    backend: &'static str,
    agenda: Mutex<Agenda>,
    changed: Notify,
    started: AtomicBool,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Agenda {
    due: BTreeMap<(Moment, u64), Entry>,
    fresh: BTreeMap<u64, Arc<Claim>>,
    attend_at: Option<Moment>,
}

enum Entry {
    Claim(Arc<Claim>),
    Lease(Arc<Lease>),
}

impl Schedule {
    pub(crate) fn new(driver: Arc<dyn Driver>, host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self {
            backend: driver.about().scheme,
            driver,
            host,
            agenda: Mutex::default(),
            changed: Notify::new(),
            started: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        })
    }

    /// Takes on a claim that was just granted.
    pub(crate) fn add(self: &Arc<Self>, claim: &Arc<Claim>) {
        let now = self.host.now();
        let mut agenda = self.agenda();
        let before = agenda.next();
        agenda.fresh.insert(claim.serial, claim.clone());
        agenda.attend_at.get_or_insert(now + ATTEND_AFTER);
        if let Some(term) = claim.lease().term().filter(|_| !claim.lease().is_shared()) {
            agenda.put(claim, renew_at(now, term).min(claim.hold().deadline.unwrap_or_default()));
        }
        // The task sleeps until `before` at the latest: waking it for less would cost each grant a thread change.
        let is_sooner = before.is_none_or(|before| agenda.next() < Some(before));
        drop(agenda);
        if is_sooner {
            self.wake();
        }
    }

    /// Takes on a shared lease that was just opened.
    pub(crate) fn add_lease(self: &Arc<Self>, lease: &Arc<Lease>) {
        if let (Some(term), Some(end)) = (lease.term(), lease.deadline()) {
            let key = (renew_at(self.host.now(), term).min(end), lease.serial);
            self.agenda().due.insert(key, Entry::Lease(lease.clone()));
            self.wake();
        }
    }

    /// Drops a claim that is released or given up.
    pub(crate) fn remove(&self, claim: &Arc<Claim>) {
        let mut agenda = self.agenda();
        agenda.fresh.remove(&claim.serial);
        agenda.take(claim);
    }

    /// Verifies a held claim soon.
    pub(crate) fn hasten(self: &Arc<Self>, claim: &Arc<Claim>) {
        let mut agenda = self.agenda();
        if agenda.take(claim).is_some() {
            agenda.put(claim, soon(self.host.now(), claim.lease()));
            drop(agenda);
            self.wake();
        }
    }

    /// Verifies a shared lease soon.
    pub(crate) fn hasten_lease(self: &Arc<Self>, lease: &Arc<Lease>) {
        if self.move_lease(lease, soon(self.host.now(), lease)) {
            self.wake();
        }
    }

    /// Drops a shared lease that is about to be closed.
    pub(crate) fn remove_lease(&self, lease: &Arc<Lease>) {
        self.agenda()
            .due
            .retain(|_, entry| !matches!(entry, Entry::Lease(other) if Arc::ptr_eq(other, lease)));
    }

    /// Moves a shared lease to another moment of the schedule, if it is on it. Leases are few: looking at all is cheap
    /// beside the request that follows.
    fn move_lease(&self, lease: &Arc<Lease>, at: Moment) -> bool {
        let due = &mut self.agenda().due;
        let key = due.iter().find_map(|(key, entry)| match entry {
            Entry::Lease(other) if Arc::ptr_eq(other, lease) => Some(*key),
            _ => None,
        });
        let Some(entry) = key.and_then(|key| due.remove(&key)) else { return false };
        due.insert((at, lease.serial), entry);
        true
    }

    /// The backend's scheme.
    pub(crate) fn backend(&self) -> &'static str {
        self.backend
    }

    /// Ends the task.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        *self.agenda() = Agenda::default();
        self.changed.notify_one();
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(self: &Arc<Self>) {
        if self.started.swap(true, Ordering::AcqRel) {
            self.changed.notify_one();
        } else {
            let at = self.agenda().next().unwrap_or_default();
            self.host.spawn_later(at, Box::pin(keepalive(self.clone())));
        }
    }

    /// Everything due at `now`, taken off the schedule, with the next moment to look at the rest.
    fn take_due(&self, now: Moment) -> (Vec<Entry>, Vec<Arc<Claim>>) {
        let mut agenda = self.agenda();
        let later = agenda.due.split_off(&(now, u64::MAX));
        let due: Vec<_> = std::mem::replace(&mut agenda.due, later).into_values().collect();
        for entry in &due {
            if let Entry::Claim(claim) = entry {
                claim.due.store(0, Ordering::Relaxed);
            }
        }
        let fresh = match agenda.attend_at {
            Some(at) if at <= now => {
                agenda.attend_at = None;
                std::mem::take(&mut agenda.fresh).into_values().collect()
            }
            _ => Vec::new(),
        };
        (due, fresh)
    }
}

impl Agenda {
    fn next(&self) -> Option<Moment> {
        let first = self.due.first_key_value().map(|((at, _), _)| *at);
        first.into_iter().chain(self.attend_at).min()
    }

    fn put(&mut self, claim: &Arc<Claim>, at: Moment) {
        claim.due.store(at.as_nanos(), Ordering::Relaxed);
        self.due.insert((at, claim.serial), Entry::Claim(claim.clone()));
    }

    fn take(&mut self, claim: &Arc<Claim>) -> Option<Entry> {
        let at = Moment::from_nanos(claim.due.swap(0, Ordering::Relaxed));
        self.due.remove(&(at, claim.serial))
    }
}

/// The time to renew what was renewed at `now`: a third of the term later, brought forward to a multiple of a
/// twelfth so that the claims of one term are renewed together.
fn renew_at(now: Moment, term: Duration) -> Moment {
    let (at, grid) = ((now + term / 3).as_nanos(), (term.as_nanos() / 12).clamp(1, u64::MAX.into()) as u64);
    Moment::from_nanos(at - at % grid)
}

/// When to verify what a driver doubts: at the next of a few moments a second, so that a driver that doubts at every
/// failed reconnect asks no more often than that.
fn soon(now: Moment, lease: &Lease) -> Moment {
    let grid =
        (lease.term().unwrap_or_default() / 48).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let (now, grid) = (now.as_nanos(), grid.as_nanos() as u64);
    Moment::from_nanos(now - now % grid + grid)
}

async fn keepalive(schedule: Arc<Schedule>) {
    while !schedule.stopped.load(Ordering::Acquire) {
        let (due, fresh) = schedule.take_due(schedule.host.now());
        if !fresh.is_empty() {
            // As a task, like every call of a driver: one that panics must not end the renewals of all others.
            let driver = schedule.driver.clone();
            schedule.host.spawn(Box::pin(async move { driver.attend(&fresh) }));
        }
        let mut batches: BTreeMap<u64, (Arc<Lease>, Vec<Arc<Claim>>)> = BTreeMap::new();
        for entry in due {
            match entry {
                Entry::Claim(claim) => {
                    if let Some(lease) = schedule.look_at(&claim) {
                        batches.entry(lease.serial).or_insert_with(|| (lease, Vec::new())).1.push(claim);
                    }
                }
                Entry::Lease(lease) => {
                    if schedule.look_at_lease(&lease) {
                        // Only what is held when the request is sent: a claim granted meanwhile must not be told lost.
                        let now = schedule.host.now();
                        let held = |claim: &Arc<Claim>| claim.hold().is_held_at(now);
                        let claims = lease.claims().into_iter().filter(held).collect();
                        batches.insert(lease.serial, (lease, claims));
                    }
                }
            }
        }
        for (lease, claims) in batches.into_values() {
            let span = tracing::debug_span!("renew", claims = claims.len());
            schedule.host.spawn(Box::pin(renew(schedule.clone(), lease, claims).instrument(span)));
        }
        let next = schedule.agenda().next();
        tokio::select! {
            biased;
            () = schedule.changed.notified() => {}
            () = schedule.host.sleep_until(next.unwrap_or_default()), if next.is_some() => {}
        }
    }
}

impl Schedule {
    /// Declares a claim lost whose deadline has passed; otherwise puts it down for its next look and answers the lease
    /// to renew it with.
    fn look_at(&self, claim: &Arc<Claim>) -> Option<Arc<Lease>> {
        let (now, hold) = (self.host.now(), claim.hold());
        let end = hold.deadline?;
        if !hold.is_held_at(now) {
            claim.expire(now);
            return None;
        }
        let lease = claim.lease().clone();
        self.agenda().put(claim, end.min(now + retry_after(&lease)));
        Some(lease)
    }

    fn look_at_lease(&self, lease: &Arc<Lease>) -> bool {
        let now = self.host.now();
        match lease.deadline() {
            Some(_) if lease.is_retired() && lease.is_idle() => {
                let closing = super::close(self.driver.clone(), self.host.clone(), lease.clone());
                self.host.spawn(Box::pin(closing));
                false
            }
            Some(end) if now < end => {
                let key = (end.min(now + retry_after(lease)), lease.serial);
                self.agenda().due.insert(key, Entry::Lease(lease.clone()));
                true
            }
            _ => {
                lease.end(Loss::Deadline);
                false
            }
        }
    }

    /// One claim's report in a renewal that was sent at `sent`.
    fn report(&self, lease: &Arc<Lease>, claim: &Arc<Claim>, sent: Moment, fate: Renewed) {
        meters::renewed(self.backend, fate);
        match fate {
            Renewed::Extended(term) => {
                let now = self.host.now();
                if claim.extend(deadline(sent, term), now) && !lease.is_shared() {
                    let mut agenda = self.agenda();
                    if agenda.take(claim).is_some() {
                        agenda.put(claim, renew_at(sent, term).max(now));
                    }
                }
            }
            Renewed::Lost => claim.lose(Loss::Gone),
            Renewed::Unknown => claim.suspect(),
        }
    }
}

/// A failed renewal is repeated after a sixth of the term: four times before the deadline.
fn retry_after(lease: &Lease) -> Duration {
    lease.term().unwrap_or_default() / 6
}

/// Renews one batch.
async fn renew(schedule: Arc<Schedule>, lease: Arc<Lease>, claims: Vec<Arc<Claim>>) {
    let sent = schedule.host.now();
    let told: Vec<AtomicBool> = claims.iter().map(|_| AtomicBool::new(false)).collect();
    let report = |index: usize, fate: Renewed| {
        if let Some(claim) = claims.get(index) {
            told[index].store(true, Ordering::Relaxed);
            schedule.report(&lease, claim, sent, fate);
        }
    };
    let outcome = tokio::select! {
        biased;
        outcome = schedule.driver.renew(&lease, &claims, &report) => outcome,
        () = schedule.host.sleep_until(sent + retry_after(&lease)) => Err(Fail::Unknown("no answer in time".into())),
    };
    match outcome {
        Ok(()) => {
            if let Some(term) = lease.term().filter(|_| lease.is_shared()) {
                let now = schedule.host.now();
                lease.extend(sent, term, now);
                // Also the claims that were granted while the request was under way hang on what it renewed.
                for claim in lease.claims() {
                    if !claim.extend(deadline(sent, term), now) {
                        claim.expire(now);
                    }
                }
                schedule.move_lease(&lease, renew_at(sent, term).max(now));
            }
        }
        Err(Fail::NoLease) => lease.dead(),
        Err(why) => {
            tracing::debug!(ttl = ?lease.ttl(), claims = claims.len(), %why, "renewal failed");
            for (claim, told) in claims.iter().zip(&told) {
                if !told.load(Ordering::Relaxed) {
                    meters::renewed(schedule.backend, Renewed::Unknown);
                    claim.suspect();
                }
            }
        }
    }
}
