//! The rules about the resource: what its gate let through, and what became of the updates.

use super::order::{Stamped, after_a_higher};
use super::records::{Access, Records};
use super::{Finding, Rule, millis};
use crate::history::Outcome;

pub(super) fn gate(records: &Records<'_>) -> Vec<Finding> {
    let accepted = records.accesses.iter().filter(|access| access.outcome == Outcome::Ok);
    let findings = after_a_higher(accepted).into_iter().map(|(best, access)| {
        let by = access.invoked - best.returned;
        let text = format!(
            "token {} of {} was accepted at {}, {} after token {} of {}",
            access.token,
            access.who,
            records.when(access.invoked),
            millis(by),
            best.token,
            best.who
        );
        records.finding(Rule::Gate, &[best.who, access.who], access.invoked, by, text)
    });
    findings.collect()
}

impl Stamped for &Access<'_> {
    fn token(self) -> u64 {
        self.token
    }

    fn invoked(self) -> u64 {
        self.invoked
    }

    fn returned(self) -> u64 {
        self.returned
    }
}

/// One pass over time: by the time a token was rejected, a higher one must have been on its way.
/// For the resource's own log that is exact. An access with an unknown outcome is reason enough.
pub(super) fn rejections(records: &Records<'_>) -> Vec<Finding> {
    let (mut rejected, mut reasons): (Vec<&Access<'_>>, Vec<&Access<'_>>) = records
        .accesses
        .iter()
        .filter(|access| matches!(access.outcome, Outcome::Ok | Outcome::Unknown | Outcome::Stale))
        .partition(|access| access.outcome == Outcome::Stale);
    rejected.sort_by_key(|access| access.returned);
    reasons.sort_by_key(|access| access.invoked);
    let mut reasons = reasons.into_iter().peekable();
    let mut highest = None;
    let mut findings = Vec::new();
    for access in rejected {
        while let Some(reason) = reasons.next_if(|reason| reason.invoked <= access.returned) {
            highest = highest.max(Some(reason.token));
        }
        if highest <= Some(access.token) {
            let (token, who, when) = (access.token, access.who, records.when(access.returned));
            let text =
                format!("token {token} of {who} was rejected at {when}, though no higher one had come");
            findings.push(records.finding(Rule::Rejections, &[who], access.returned, 0, text));
        }
    }
    findings
}

pub(super) fn updates(records: &Records<'_>) -> Vec<Finding> {
    let end = records.span.1;
    if records.state.is_none() && !records.acknowledged.is_empty() {
        let text = "updates were confirmed, but the final state was not recorded".into();
        return vec![records.finding(Rule::Updates, &[], end, 0, text)];
    }
    let lost = records.missing().map(|update| {
        let text = format!("update {update} was confirmed and is not in the final state");
        records.finding(Rule::Updates, &[update], end, 0, text)
    });
    lost.collect()
}
