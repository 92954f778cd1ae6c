//! Did it come out as it had to?

use std::collections::BTreeSet;

use super::act::{Act, Late};
use crate::checker::{self, Malformed, Rule, Verdict};
use crate::history::{Event, Kind, Outcome as Answer, Phase};

/// What an act came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The checker's findings.
    pub verdict: Verdict,
    /// What became of a write that came after the lock had gone to another, if there was one.
    pub late: Option<LateWrite>,
    /// What was in the stock at the end.
    pub left: String,
    /// What is not as it had to be, in sentences; nothing if all is.
    pub surprises: Vec<String>,
}

/// A write whose lock had gone to another.
#[derive(Clone, Debug)]
pub struct LateWrite {
    /// Who wrote.
    pub lane: String,
    /// Who had been granted the lock meanwhile.
    pub next: String,
    /// How long ago that was.
    pub by_ns: u64,
    /// The token that was shown, if one was.
    pub token: Option<u64>,
    /// The highest token that the gate had seen, if it rejected the write.
    pub highest: Option<u64>,
    /// What became of it.
    pub what: Late,
}

/// Judges the history of an act by what the act expects.
///
/// # Errors
///
/// When the events do not fit together.
pub fn judge(act: &Act, events: &[Event]) -> Result<Outcome, Malformed> {
    let verdict = checker::judge(events, &act.rules())?;
    let late = late_write(events);
    let end = events.iter().find(|event| event.kind == Kind::Final);
    let left = end.and_then(|event| event.note.clone()).unwrap_or_default();
    let mut outcome = Outcome { verdict, late, left, surprises: Vec::new() };
    outcome.surprises = surprises(act, &outcome);
    Ok(outcome)
}

/// The first answered write of a worker that came after another one, later than it, had been granted the lock.
fn late_write(events: &[Event]) -> Option<LateWrite> {
    let of = |kind, phase| move |event: &&Event| event.kind == kind && event.phase == Some(phase);
    let granted: Vec<&Event> = events
        .iter()
        .filter(of(Kind::Acquire, Phase::Return))
        .filter(|event| event.outcome == Some(Answer::Ok))
        .collect();
    events.iter().filter(of(Kind::Write, Phase::Return)).find_map(|answer| {
        let invoked = |event: &&Event| event.lane == answer.lane && event.update == answer.update;
        let write = events.iter().filter(of(Kind::Write, Phase::Invoke)).find(invoked)?;
        let own = granted.iter().find(|grant| grant.lane == write.lane)?.t_ns;
        let next = granted.iter().filter(|grant| grant.t_ns > own).min_by_key(|grant| grant.t_ns)?;
        let what = match answer.outcome? {
            Answer::Ok => Late::Accepted,
            Answer::Stale => Late::Rejected,
            _ => return None,
        };
        let by_ns = write.t_ns.checked_sub(next.t_ns)?;
        let (token, highest) = (answer.token, answer.highest);
        Some(LateWrite { lane: write.lane.clone(), next: next.lane.clone(), by_ns, token, highest, what })
    })
}

fn surprises(act: &Act, outcome: &Outcome) -> Vec<String> {
    let (expected, verdict) = (&act.expected, &outcome.verdict);
    let mut found = Vec::new();
    let mut differ = |what: &str, expected: String, got: String| {
        if expected != got {
            found.push(format!("{what}: expected {expected}, got {got}"));
        }
    };
    differ("late writes", late(expected.late), late(outcome.late.as_ref().map(|late| late.what)));
    differ("confirmed sales", expected.confirmed.to_string(), verdict.acknowledged.to_string());
    differ("lost sales", expected.lost.to_string(), verdict.lost.to_string());
    differ("broken promises", names(&expected.broken.iter().copied().collect()), names(&verdict.broken()));
    if let Some(write) = outcome.late.as_ref().filter(|late| late.what == Late::Rejected)
        && write.token >= write.highest
    {
        found.push(format!("the gate rejected token {:?} after {:?}", write.token, write.highest));
    }
    found
}

fn late(late: Option<Late>) -> String {
    match late {
        None => "none",
        Some(Late::Accepted) => "accepted",
        Some(Late::Rejected) => "rejected",
    }
    .into()
}

fn names(rules: &BTreeSet<Rule>) -> String {
    if rules.is_empty() {
        return "none".into();
    }
    rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(", ")
}
