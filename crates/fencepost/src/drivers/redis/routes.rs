//! Who is told what the server pushes, and what those who wait have been told already.
//!
//! A claim that waits need not ask the server while it knows the answer. It is *quiet* until a moment that the server's last
//! answer or message named; and heartbeats are a locker's, not a claim's: while one of them was answered lately, the others
//! that wait for the same lock keep still.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    claim::{Claim, ClaimId, State},
    host::Moment,
    redis::Listener,
};

/// How long an offer stands before the second in line looks after it. The scripts have the same number.
pub(super) const OFFER: Duration = Duration::from_millis(500);

/// How long those who lean on one another's asking give it before they ask themselves.
const ANSWER: Duration = Duration::from_millis(100);

/// A claim's state of the protocol.
#[derive(Default)]
pub(super) struct Seat {
    /// Nothing need be asked before.
    pub(super) quiet_until: Option<Moment>,
    /// The server has said that the claim stands in line.
    pub(super) is_queued: bool,
    /// The claim knows that it is the first in line.
    pub(super) is_first: bool,
    /// Nothing is expected: it is enough that one of those who wait with it is heard of.
    pub(super) leans: bool,
    /// Counts what was pushed: an answer that was under way meanwhile may know less.
    pub(super) news: u64,
}

#[derive(Default)]
pub(super) struct Routes {
    tables: Mutex<Tables>,
    /// How many connections have ended.
    cuts: AtomicU64,
}

#[derive(Default)]
struct Tables {
    claims: HashMap<ClaimId, Weak<Claim>>,
    lines: HashMap<Box<str>, Line>,
}

/// The claims of this locker on one lock key.
#[derive(Default)]
struct Line {
    members: Vec<ClaimId>,
    /// When the server last answered one of those who wait.
    beat: Option<Moment>,
    /// When one of them last went to ask for all.
    asked: Option<Moment>,
    stirred: Option<Moment>,
}

impl Routes {
    /// How many connections have ended so far.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    /// Lets `claim`, on the lock of this key, be told.
    pub(super) fn add(&self, key: &str, claim: &Arc<Claim>) {
        let mut tables = self.tables();
        if tables.claims.insert(claim.id(), Arc::downgrade(claim)).is_some() {
            return;
        }
        if let Some(line) = tables.lines.get_mut(key) {
            line.members.push(claim.id());
        } else {
            tables.lines.insert(key.into(), Line { members: vec![claim.id()], ..Line::default() });
        }
    }

    /// Forgets a claim that has left.
    pub(super) fn remove(&self, key: &str, claim: ClaimId) {
        let mut tables = self.tables();
        if tables.claims.remove(&claim).is_none() {
            return;
        }
        if let Some(line) = tables.lines.get_mut(key) {
            line.members.retain(|member| *member != claim);
            if line.members.is_empty() {
                tables.lines.remove(key);
            }
        }
    }

    /// How long a claim that waits for the lock of this key may still keep still, if it may.
    pub(super) fn quiet(&self, key: &str, claim: &Claim, heartbeat: Duration) -> Option<Duration> {
        let now = claim.now();
        let (until, leans) = claim.seat(|seat: &mut Seat| (seat.quiet_until, seat.leans));
        let left = until?.since(now);
        if !left.is_zero() {
            return Some(left);
        }
        if !leans {
            return None;
        }
        let mut tables = self.tables();
        let line = tables.lines.get_mut(key)?;
        // Those who lean on one answer come to the end of their patience as one; the first of them asks for all.
        let is_asked_for = line.asked.map_or(Duration::ZERO, |at| (at + ANSWER).since(now));
        let left = (line.beat? + heartbeat).since(now).max(is_asked_for);
        if left.is_zero() {
            line.asked = Some(now);
            return None;
        }
        Some(left)
    }

    /// The server has answered one of those who wait for the lock of this key.
    pub(super) fn beat(&self, key: &str, now: Moment) {
        if let Some(line) = self.tables().lines.get_mut(key) {
            line.beat = Some(now);
        }
    }

    /// Lets a claim of this locker that is the first in line, and does not know it, ask.
    pub(super) fn is_first(&self, claim: &str) {
        if let Some(claim) = ClaimId::from_hex(claim).and_then(|id| self.claim(id)) {
            let knows = claim.seat(|seat: &mut Seat| seat.is_first);
            if !knows {
                stir(&claim);
            }
        }
    }

    /// Lets all who wait for the lock of this key ask: the line may have been lost. At most once a second, since each of them
    /// will find the same.
    pub(super) fn stir_line(&self, key: &str, now: Moment) {
        let mut tables = self.tables();
        let Some(line) = tables.lines.get_mut(key) else { return };
        if line.stirred.is_some_and(|at| now < at + Duration::from_secs(1)) {
            return;
        }
        line.stirred = Some(now);
        line.beat = None;
        let members = tables.members(key);
        drop(tables);
        members.iter().filter(|claim| claim.hold().state == State::Waiting).for_each(stir);
    }

    fn claim(&self, id: ClaimId) -> Option<Arc<Claim>> {
        self.tables().claims.get(&id)?.upgrade()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// Drops claims whose leave was never answered.
    fn forget_the_dead(&mut self) {
        self.claims.retain(|_, claim| claim.strong_count() > 0);
        let claims = &self.claims;
        self.lines.retain(|_, line| {
            line.members.retain(|member| claims.contains_key(member));
            !line.members.is_empty()
        });
    }

    fn members(&self, key: &str) -> Vec<Arc<Claim>> {
        let members = self.lines.get(key).map_or(&[][..], |line| &line.members);
        members.iter().filter_map(|id| self.claims.get(id)?.upgrade()).collect()
    }
}

/// Lets a claim ask the server now, whatever it was told.
fn stir(claim: &Arc<Claim>) {
    tell(claim, |seat| seat.quiet_until = None);
}

fn tell(claim: &Arc<Claim>, news: impl FnOnce(&mut Seat)) {
    claim.seat(|seat: &mut Seat| {
        seat.news += 1;
        seat.leans = false;
        news(seat);
    });
    claim.poke();
}

impl Listener for Routes {
    /// `turn CLAIM`: the lock is free and offered to it. `next CLAIM`: it is offered to the one before. `first MS CLAIM`: it is
    /// the first in line, and the holder's lease goes on for so long. `out CLAIM`: it was forced out.
    fn message(&self, payload: &[u8]) {
        let Ok(text) = std::str::from_utf8(payload) else { return };
        let words: Vec<&str> = text.split(' ').collect();
        let Some(claim) = words.last().and_then(|hex| ClaimId::from_hex(hex)).and_then(|id| self.claim(id))
        else {
            return;
        };
        let is_waiting = claim.hold().state == State::Waiting;
        match words.as_slice() {
            ["turn", _] if is_waiting => stir(&claim),
            ["next", _] if is_waiting => {
                let until = claim.now() + OFFER + Duration::from_millis(10);
                tell(&claim, |seat| seat.quiet_until = Some(until));
            }
            ["first", left, _] if is_waiting => {
                let Ok(left) = left.parse() else { return };
                let until = claim.now() + first_looks_again(Duration::from_millis(left));
                tell(&claim, |seat| {
                    seat.is_first = true;
                    seat.quiet_until = Some(until);
                });
            }
            ["out", _] => claim.poke(),
            _ => {}
        }
    }

    fn changed(&self, key: Option<&[u8]>) {
        let members = match key.map(std::str::from_utf8) {
            Some(Ok(key)) => self.tables().members(key),
            Some(Err(_)) => return,
            None => self.tables().claims.values().filter_map(Weak::upgrade).collect(),
        };
        members.iter().for_each(stir);
    }

    fn cut(&self) {
        self.cuts.fetch_add(1, Ordering::Relaxed);
        self.tables().forget_the_dead();
        self.changed(None);
    }
}

/// How often those who wait tell the server that they live; it believes them for three times as long.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(6);

/// When the first in line looks again: just after the holder's lease, which may end without a word, and no later than is good
/// for a line that was lost with all else.
pub(super) fn first_looks_again(left: Duration) -> Duration {
    (left + Duration::from_millis(2)).min(HEARTBEAT / 2)
}
