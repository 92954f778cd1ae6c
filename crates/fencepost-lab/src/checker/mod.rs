//! The judge: does a recorded history keep the promises of a lock, a lease, a token and a gate?
//!
//! Each rule is exact and needs no search, O(n log n) at most. `tests/checker` compares the sweeps with an exhaustive
//! search on random small histories.
//!
//! - A claim counts only if its `acquire` returned `ok`. An attempt with any other answer cannot break a promise.
//! - Some rules imply others: what breaks [`Rule::Exclusion`] or [`Rule::Leased`] breaks [`Rule::Fenced`] too, and what
//!   breaks [`Rule::Tokens`] breaks [`Rule::Leased`].
//! - Only exclusive locks are judged.

mod locks;
mod order;
mod records;
mod resource;

use std::collections::BTreeSet;
use std::fmt;

use crate::history::Event;
pub use records::Malformed;
use records::Records;

/// One promise that a history may keep or break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Without expiry: from the return of its acquire to the invocation of its release, a holder is alone.
    Exclusion,
    /// Without expiry: there is an order of all grants and releases in which holders are alone and tokens rise. A
    /// claim that is never released keeps the lock for ever.
    Fenced,
    /// As [`Rule::Fenced`], but a lease may run out at any moment unless its release was confirmed.
    Leased,
    /// Tokens are distinct, and a claim that was invoked after another had returned has the larger one.
    Tokens,
    /// No two owners believe at once that they hold the lock. A paused owner breaks this on every lease, which is
    /// why it is reported apart from the rest.
    Belief,
    /// The resource never accepts a token after a higher one.
    Gate,
    /// The resource rejects a token only after a higher one was shown to it.
    Rejections,
    /// Every update that was confirmed is in the final state.
    Updates,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 8] = [
        Self::Exclusion,
        Self::Fenced,
        Self::Leased,
        Self::Tokens,
        Self::Belief,
        Self::Gate,
        Self::Rejections,
        Self::Updates,
    ];

    fn check(self, records: &Records<'_>) -> Vec<Finding> {
        match self {
            Self::Exclusion => locks::exclusion(records),
            Self::Fenced => locks::fenced(records),
            Self::Leased => locks::leased(records),
            Self::Tokens => locks::tokens(records),
            Self::Belief => locks::belief(records),
            Self::Gate => resource::gate(records),
            Self::Rejections => resource::rejections(records),
            Self::Updates => resource::updates(records),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exclusion => "exclusion",
            Self::Fenced => "fenced",
            Self::Leased => "leased",
            Self::Tokens => "tokens",
            Self::Belief => "belief",
            Self::Gate => "gate",
            Self::Rejections => "rejections",
            Self::Updates => "updates",
        })
    }
}

/// The rules that a history has to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(BTreeSet<Rule>);

impl Rules {
    /// Every rule: a lock that never expires, with a gate at its resource.
    #[must_use]
    pub fn all() -> Self {
        Self::from(Rule::ALL)
    }

    /// What a lease with a gate promises. Beliefs may overlap.
    #[must_use]
    pub fn leased() -> Self {
        Self::from([Rule::Leased, Rule::Tokens, Rule::Gate, Rule::Rejections, Rule::Updates])
    }
}

impl<const N: usize> From<[Rule; N]> for Rules {
    fn from(rules: [Rule; N]) -> Self {
        Self(rules.into())
    }
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The promise.
    pub rule: Rule,
    /// The lock, or the resource of that name.
    pub lock: String,
    /// The ids of the claims, or the update, that it is about.
    pub parties: Vec<String>,
    /// Since when, on the clock of the history.
    pub at_ns: u64,
    /// For how long, or how much too late; 0 if time plays no part.
    pub by_ns: u64,
    /// One sentence for people, its times counted from the first event.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule, self.lock, self.text)
    }
}

/// What a history shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The broken promises among the rules asked for, except belief.
    pub findings: Vec<Finding>,
    /// Where two owners believed at once: always looked for.
    pub overlaps: Vec<Finding>,
    /// Whether belief was among the rules asked for, so that an overlap breaks the history.
    pub belief_required: bool,
    /// How many claims were granted. A history without grants proves nothing.
    pub grants: usize,
    /// How many updates were confirmed, by a resource or to a client.
    pub acknowledged: usize,
    /// How many of those are not in the final state.
    pub lost: usize,
}

impl Verdict {
    /// Whether every rule asked for was kept.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken().is_empty()
    }

    /// The rules asked for that were broken.
    #[must_use]
    pub fn broken(&self) -> BTreeSet<Rule> {
        let overlaps = self.overlaps.iter().filter(|_| self.belief_required);
        self.findings.iter().chain(overlaps).map(|finding| finding.rule).collect()
    }

    /// The longest time for which two owners believed at once.
    #[must_use]
    pub fn longest_overlap_ns(&self) -> u64 {
        self.overlaps.iter().map(|overlap| overlap.by_ns).max().unwrap_or(0)
    }

    /// The share of confirmed updates that are missing, in percent.
    #[must_use]
    pub fn lost_percent(&self) -> f64 {
        if self.acknowledged == 0 { 0.0 } else { self.lost as f64 * 100.0 / self.acknowledged as f64 }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds() { "holds" } else { "broken" };
        writeln!(f, "{verdict}: {} grants, {} broken promises", self.grants, self.findings.len())?;
        self.findings.iter().try_for_each(|finding| writeln!(f, "  {finding}"))?;
        let longest = millis(self.longest_overlap_ns());
        writeln!(f, "beliefs overlap {} times, at most for {longest}", self.overlaps.len())?;
        self.overlaps.iter().try_for_each(|overlap| writeln!(f, "  {overlap}"))?;
        let (lost, of, percent) = (self.lost, self.acknowledged, self.lost_percent());
        write!(f, "{lost} of {of} confirmed updates are lost ({percent:.1}%)")
    }
}

/// Judges a history by the rules asked for, lock by lock. The events need not be in order of time.
///
/// # Errors
///
/// When the events do not fit together, such as a return without an invocation: then nothing was shown either way.
pub fn judge(events: &[Event], rules: &Rules) -> Result<Verdict, Malformed> {
    let mut verdict = Verdict { belief_required: rules.0.contains(&Rule::Belief), ..Verdict::default() };
    for records in records::collect(events)?.values() {
        for rule in rules.0.iter().filter(|rule| **rule != Rule::Belief) {
            verdict.findings.extend(rule.check(records));
        }
        verdict.overlaps.extend(Rule::Belief.check(records));
        verdict.grants += records.claims.len();
        verdict.acknowledged += records.acknowledged.len();
        verdict.lost += records.missing().count();
    }
    Ok(verdict)
}

/// A duration for people.
fn millis(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}
