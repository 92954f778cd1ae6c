//! A client that records what it does, for the checker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::{Error, ErrorKind, Guard, Locker, blocking};
use fencepost_lab::checker::{Rule, Rules, judge};
use fencepost_lab::clock::now_ns;
use fencepost_lab::history::{Event, Kind, Outcome, Phase, Recorder};

use crate::scene::{LONG, until};

pub(crate) struct Player {
    lane: String,
    locker: Locker,
    recorder: Recorder,
    count: AtomicU64,
}

/// A lock that is held, and the claim's name in the history.
pub(crate) struct Held {
    guard: Guard,
    claim: String,
}

impl Held {
    pub(crate) fn token(&self) -> u64 {
        self.guard.token().get()
    }
}

impl Player {
    pub(crate) fn new(lane: &str, locker: Locker, recorder: &Recorder) -> Self {
        Self { lane: lane.into(), locker, recorder: recorder.clone(), count: AtomicU64::new(0) }
    }

    /// Asks for something that changes nothing, as soon as the server answers.
    pub(crate) fn look(&self, lock: &str) {
        until("an answer", LONG, || blocking::wait(self.locker.inspect(lock)).ok());
    }

    fn note(&self, at: u64, kind: Kind, phase: Phase, lock: &str, claim: &str, more: Event) {
        let event = Event {
            t_ns: at,
            lane: self.lane.clone(),
            kind,
            phase: Some(phase),
            lock: Some(lock.into()),
            claim: Some(claim.into()),
            ..more
        };
        self.recorder.record(event).expect("the history takes it");
    }

    pub(crate) fn acquire(&self, lock: &str, ttl: Duration, wait: Duration) -> Result<Held, Error> {
        let claim = format!("{}-{}", self.lane, self.count.fetch_add(1, Ordering::Relaxed));
        let blank = || Event::at(0, "", Kind::Acquire);
        self.note(now_ns(), Kind::Acquire, Phase::Invoke, lock, &claim, blank());
        let outcome = blocking::wait(self.locker.lock(lock).ttl(ttl).wait(wait).acquire());
        let more = match &outcome {
            Ok(guard) => Event {
                outcome: Some(Outcome::Ok),
                token: Some(guard.token().get()),
                deadline_ns: guard.deadline().map(|end| end.as_nanos()),
                ..blank()
            },
            Err(error) => Event { outcome: Some(failed(error)), ..blank() },
        };
        self.note(now_ns(), Kind::Acquire, Phase::Return, lock, &claim, more);
        Ok(Held { guard: outcome?, claim })
    }

    pub(crate) fn release(&self, held: Held) -> Result<(), Error> {
        let (lock, claim) = (held.guard.lock().to_string(), held.claim);
        let blank = || Event::at(0, "", Kind::Release);
        self.note(now_ns(), Kind::Release, Phase::Invoke, &lock, &claim, blank());
        let outcome = blocking::wait(held.guard.release());
        let more = Event { outcome: Some(outcome.as_ref().map_or_else(failed, |()| Outcome::Ok)), ..blank() };
        self.note(now_ns(), Kind::Release, Phase::Return, &lock, &claim, more);
        outcome
    }
}

fn failed(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::Timeout => Outcome::Timeout,
        ErrorKind::Lost => Outcome::Lost,
        ErrorKind::Unknown | ErrorKind::Unavailable => Outcome::Unknown,
        _ => Outcome::Failed,
    }
}

/// No promise was broken, and no two believed at once that they held a lock. Answers the number of grants.
#[track_caller]
pub(crate) fn in_order(events: &Arc<Mutex<Vec<Event>>>) -> usize {
    let rules = Rules::from([Rule::Leased, Rule::Tokens, Rule::Belief]);
    let verdict = judge(&events.lock().expect("no panic"), &rules).expect("a history");
    assert!(verdict.holds(), "{verdict}");
    verdict.grants
}
