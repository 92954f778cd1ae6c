//! From events to what the rules look at: the granted claims of one lock, and what its resource saw.
//!
//! Invocations and returns are paired here, and nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use super::{Finding, Rule, millis};
use crate::history::{Event, Kind, Outcome, Phase};

/// No end is known.
pub(super) const NEVER: u64 = u64::MAX;

/// All that is known about one lock and its resource.
#[derive(Default)]
pub(super) struct Records<'a> {
    lock: &'a str,
    /// The first and the last moment of the whole history.
    pub(super) span: (u64, u64),
    /// The claims that were granted, in the order in which their acquires returned.
    pub(super) claims: Vec<Claim<'a>>,
    /// What was shown to the resource: by its own log if there is one, otherwise as its clients saw it.
    pub(super) accesses: Vec<Access<'a>>,
    /// The updates that were confirmed.
    pub(super) acknowledged: BTreeSet<&'a str>,
    /// The updates found in the resource at the end.
    pub(super) state: Option<HashSet<&'a str>>,
}

/// A granted claim.
pub(super) struct Claim<'a> {
    pub(super) id: &'a str,
    pub(super) lane: &'a str,
    pub(super) token: Option<u64>,
    pub(super) invoked: u64,
    pub(super) returned: u64,
    pub(super) release: Option<Release>,
    deadline: Option<u64>,
    lost: Option<u64>,
}

/// A release that was at least invoked. When it returned does not matter: it can always have taken effect at once.
#[derive(Clone, Copy)]
pub(super) struct Release {
    pub(super) invoked: u64,
    pub(super) confirmed: bool,
}

/// A token shown to the resource. In the resource's own log an access begins and ends in the same moment.
#[derive(Clone, Copy)]
pub(super) struct Access<'a> {
    pub(super) who: &'a str,
    pub(super) token: u64,
    pub(super) invoked: u64,
    pub(super) returned: u64,
    /// [`Outcome::Unknown`] until it returns.
    pub(super) outcome: Outcome,
}

impl<'a> Records<'a> {
    /// The confirmed updates that the final state lacks; none if it was not recorded.
    pub(super) fn missing(&self) -> impl Iterator<Item = &'a str> {
        let state = self.state.as_ref();
        self.acknowledged
            .iter()
            .copied()
            .filter(move |update| state.is_some_and(|state| !state.contains(update)))
    }

    pub(super) fn finding(
        &self,
        rule: Rule,
        parties: &[&str],
        at_ns: u64,
        by_ns: u64,
        text: String,
    ) -> Finding {
        let parties = parties.iter().map(ToString::to_string).collect();
        Finding { rule, lock: self.lock.into(), parties, at_ns, by_ns, text }
    }

    /// A moment for people.
    pub(super) fn when(&self, at_ns: u64) -> String {
        format!("+{}", millis(at_ns.saturating_sub(self.span.0)))
    }
}

impl Claim<'_> {
    /// When its owner stops being alone by right, if nothing expires.
    pub(super) fn released(&self) -> u64 {
        self.release.map_or(NEVER, |release| release.invoked)
    }

    /// When its owner stops believing that it holds the lock.
    pub(super) fn disbelieved(&self) -> u64 {
        self.released().min(self.deadline.unwrap_or(NEVER)).min(self.lost.unwrap_or(NEVER))
    }
}

impl fmt::Display for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {} of {}", self.id, self.lane)?;
        self.token.map_or(Ok(()), |token| write!(f, " (token {token})"))
    }
}

/// A history whose events do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the history cannot be judged, record the run again: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Sorts the events by lock, and pairs them.
pub(super) fn collect(events: &[Event]) -> Result<BTreeMap<&str, Records<'_>>, Malformed> {
    let mut ordered: Vec<&Event> = events.iter().collect();
    ordered.sort_by_key(|event| event.t_ns);
    let span = ordered.first().zip(ordered.last()).map_or((0, 0), |(first, last)| (first.t_ns, last.t_ns));
    let mut locks: BTreeMap<&str, Pairing<'_>> = BTreeMap::new();
    for event in ordered {
        match event.lock.as_deref() {
            Some(lock) => locks.entry(lock).or_default().add(event)?,
            None if event.kind == Kind::Fault => {}
            None => return Err(malformed(event, "names no lock")),
        }
    }
    Ok(locks.into_iter().map(|(lock, pairing)| (lock, pairing.finish(lock, span))).collect())
}

fn malformed(event: &Event, what: &str) -> Malformed {
    let claim = event.claim.as_deref().unwrap_or("-");
    Malformed(format!(
        "a {:?} event {what}, t_ns={} lane={} claim={claim}",
        event.kind, event.t_ns, event.lane
    ))
}

/// The events of one lock so far.
#[derive(Default)]
struct Pairing<'a> {
    records: Records<'a>,
    attempts: HashMap<&'a str, Attempt>,
    /// The accesses by clients, and those that have not returned.
    told: Vec<Access<'a>>,
    pending: HashMap<(&'a str, Kind, Option<&'a str>), usize>,
}

/// Where the acquire of a claim has got to.
enum Attempt {
    Pending { invoked: u64, released: bool },
    Granted(usize),
    Refused,
}

impl<'a> Pairing<'a> {
    fn add(&mut self, event: &'a Event) -> Result<(), Malformed> {
        match (event.kind, event.phase) {
            (Kind::Acquire, Some(Phase::Invoke)) => self.acquire(event),
            (Kind::Acquire, Some(Phase::Return)) => self.acquired(event),
            (Kind::Release | Kind::Renew, Some(_)) | (Kind::Lost, None) => self.later(event),
            (Kind::Write | Kind::Read, _) => self.access(event),
            (Kind::Final, None) => {
                self.records.state = Some(event.state.iter().flatten().map(String::as_str).collect());
                Ok(())
            }
            (Kind::Fault, _) => Ok(()),
            (Kind::Acquire | Kind::Release | Kind::Renew, None) => Err(malformed(event, "has no phase")),
            (Kind::Lost | Kind::Final, Some(_)) => Err(malformed(event, "has a phase")),
        }
    }

    fn acquire(&mut self, event: &'a Event) -> Result<(), Malformed> {
        let attempt = Attempt::Pending { invoked: event.t_ns, released: false };
        match self.attempts.insert(claim(event)?, attempt) {
            None => Ok(()),
            Some(_) => Err(malformed(event, "invokes a claim again")),
        }
    }

    fn acquired(&mut self, event: &'a Event) -> Result<(), Malformed> {
        let id = claim(event)?;
        let Some(attempt) = self.attempts.get_mut(id) else {
            return Err(malformed(event, "returns without an invocation"));
        };
        let Attempt::Pending { invoked, released } = *attempt else {
            return Err(malformed(event, "returns twice"));
        };
        if event.outcome != Some(Outcome::Ok) {
            *attempt = Attempt::Refused;
            return Ok(());
        }
        if released {
            return Err(malformed(event, "grants a claim whose release was already invoked"));
        }
        *attempt = Attempt::Granted(self.records.claims.len());
        self.records.claims.push(Claim {
            id,
            lane: &event.lane,
            token: event.token,
            invoked,
            returned: event.t_ns,
            release: None,
            deadline: event.deadline_ns,
            lost: None,
        });
        Ok(())
    }

    /// What happens to a claim after it was granted. For one that was not granted it means nothing.
    fn later(&mut self, event: &'a Event) -> Result<(), Malformed> {
        let granted = match self.attempts.get_mut(claim(event)?) {
            None => return Err(malformed(event, "is about a claim that was never invoked")),
            Some(Attempt::Granted(index)) => &mut self.records.claims[*index],
            Some(Attempt::Pending { released, .. }) => {
                *released |= event.kind == Kind::Release;
                return Ok(());
            }
            Some(Attempt::Refused) => return Ok(()),
        };
        let ok = event.phase == Some(Phase::Return) && event.outcome == Some(Outcome::Ok);
        match (event.kind, event.phase) {
            (Kind::Lost, _) => granted.lost = granted.lost.or(Some(event.t_ns)),
            // A reply that comes after the deadline does not bring the belief back.
            (Kind::Renew, _) if ok && granted.deadline.is_none_or(|deadline| event.t_ns < deadline) => {
                granted.deadline = event.deadline_ns.or(granted.deadline);
            }
            // A release may be repeated: it was under way since the first invocation.
            (Kind::Release, Some(Phase::Invoke)) => {
                granted.release.get_or_insert(Release { invoked: event.t_ns, confirmed: false });
            }
            (Kind::Release, _) => match &mut granted.release {
                Some(release) => release.confirmed |= ok,
                None => return Err(malformed(event, "returns without an invocation")),
            },
            _ => {}
        }
        Ok(())
    }

    fn access(&mut self, event: &'a Event) -> Result<(), Malformed> {
        let key = (event.lane.as_str(), event.kind, event.update.as_deref());
        let confirmed = event.outcome == Some(Outcome::Ok) && event.phase != Some(Phase::Invoke);
        if confirmed && event.kind == Kind::Write {
            self.records.acknowledged.extend(event.update.as_deref());
        }
        let access = event.token.map(|token| Access {
            who: event.claim.as_deref().unwrap_or(&event.lane),
            token,
            invoked: event.t_ns,
            returned: event.t_ns,
            outcome: event.outcome.unwrap_or(Outcome::Unknown),
        });
        match event.phase {
            None => self.records.accesses.extend(access),
            Some(Phase::Invoke) => {
                if let Some(access) = access {
                    if self.pending.insert(key, self.told.len()).is_some() {
                        return Err(malformed(event, "begins before the one before it has returned"));
                    }
                    self.told.push(Access { returned: NEVER, outcome: Outcome::Unknown, ..access });
                }
            }
            Some(Phase::Return) => match (self.pending.remove(&key), access) {
                (Some(index), _) => {
                    self.told[index].returned = event.t_ns;
                    self.told[index].outcome = event.outcome.unwrap_or(Outcome::Unknown);
                }
                (None, Some(_)) => return Err(malformed(event, "returns without an invocation")),
                (None, None) => {}
            },
        }
        Ok(())
    }

    fn finish(self, lock: &'a str, span: (u64, u64)) -> Records<'a> {
        let mut records = Records { lock, span, ..self.records };
        if records.accesses.is_empty() {
            records.accesses = self.told;
        }
        records
    }
}

fn claim(event: &Event) -> Result<&str, Malformed> {
    event.claim.as_deref().ok_or_else(|| malformed(event, "names no claim"))
}
