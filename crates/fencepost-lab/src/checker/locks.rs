//! The rules about claims: who held the lock when, and in which order.

use super::order::{Stamped, after_a_higher};
use super::records::{Claim, NEVER, Records};
use super::{Finding, Rule, millis};

pub(super) fn exclusion(records: &Records<'_>) -> Vec<Finding> {
    let spans = records.claims.iter().map(|claim| (claim, claim.released())).collect();
    overlaps(records, Rule::Exclusion, spans, "held the lock")
}

/// A claim that was over before its owner heard of it was never believed in.
pub(super) fn belief(records: &Records<'_>) -> Vec<Finding> {
    let spans = records.claims.iter().map(|claim| (claim, claim.disbelieved()));
    let believed = spans.filter(|(claim, end)| claim.returned < *end).collect();
    overlaps(records, Rule::Belief, believed, "believed that they held the lock")
}

/// Reports each claim that begins, by its acquire's return, before the end of an earlier one. Only the earlier one
/// that ends last is named, so that there are at most as many findings as claims.
fn overlaps(records: &Records<'_>, rule: Rule, mut spans: Vec<(&Claim<'_>, u64)>, did: &str) -> Vec<Finding> {
    spans.sort_by_key(|(claim, end)| (claim.returned, *end));
    let mut findings = Vec::new();
    let mut last: Option<(&Claim<'_>, u64)> = None;
    for (claim, end) in spans {
        if let Some((other, until)) = last.filter(|(_, until)| *until > claim.returned) {
            let by = until.min(end).min(records.span.1).saturating_sub(claim.returned);
            let (since, long) = (records.when(claim.returned), millis(by));
            let text = format!("{other} and {claim} both {did} for {long} since {since}");
            findings.push(records.finding(rule, &[other.id, claim.id], claim.returned, by, text));
        }
        if last.is_none_or(|(_, until)| until < end) {
            last = Some((claim, end));
        }
    }
    findings
}

pub(super) fn fenced(records: &Records<'_>) -> Vec<Finding> {
    sweep(records, Rule::Fenced, |claim, _| claim.released())
}

pub(super) fn leased(records: &Records<'_>) -> Vec<Finding> {
    sweep(records, Rule::Leased, |claim, entered| match claim.release {
        Some(release) if release.confirmed => release.invoked,
        _ => entered,
    })
}

/// Takes the claims in the order of their tokens, and lets each enter and leave as early as it can. If that does not
/// work out, nothing does: leaving earlier never hurts those who follow. `leaves` says when a claim that entered at
/// some moment leaves; a release comes after the acquire's return, so it never has to wait for the entering.
fn sweep(records: &Records<'_>, rule: Rule, leaves: impl Fn(&Claim<'_>, u64) -> u64) -> Vec<Finding> {
    let (mut claims, mut findings) = by_token(records, rule);
    claims.sort_by_key(|(token, claim)| (*token, claim.invoked));
    let mut free_at = 0;
    // The claim that keeps the lock from being free earlier.
    let mut keeper: Option<&Claim<'_>> = None;
    for (_, claim) in claims {
        let mut entered = claim.invoked.max(free_at);
        if let Some(blamed) = keeper.filter(|_| entered > claim.returned) {
            let held = match entered {
                NEVER => "was never released".into(),
                _ => format!("ended at {} or later", records.when(entered)),
            };
            let by = entered.min(records.span.1) - claim.returned;
            let (when, late) = (records.when(claim.returned), millis(by));
            let text =
                format!("{claim} was granted by {when}, though {blamed} comes before it and {held} ({late})");
            findings.push(records.finding(rule, &[blamed.id, claim.id], claim.returned, by, text));
            // Go on from what the later claim was told, so that one fault does not taint all that follow.
            entered = claim.returned;
            keeper = None;
        }
        let end = leaves(claim, entered);
        if keeper.is_none() || end > free_at {
            keeper = Some(claim);
        }
        free_at = end;
    }
    findings.extend(repeated(records, rule));
    findings
}

pub(super) fn tokens(records: &Records<'_>) -> Vec<Finding> {
    let (claims, mut findings) = by_token(records, Rule::Tokens);
    for ((_, earlier), (_, claim)) in after_a_higher(claims.into_iter()) {
        let by = claim.invoked - earlier.returned;
        let (late, when) = (millis(by), records.when(claim.invoked));
        let text = format!("{claim} was invoked at {when}, {late} after {earlier} had its token");
        findings.push(records.finding(Rule::Tokens, &[earlier.id, claim.id], claim.invoked, by, text));
    }
    findings.extend(repeated(records, Rule::Tokens));
    findings
}

impl Stamped for (u64, &Claim<'_>) {
    fn token(self) -> u64 {
        self.0
    }

    fn invoked(self) -> u64 {
        self.1.invoked
    }

    fn returned(self) -> u64 {
        self.1.returned
    }
}

/// The claims with their tokens; a finding for each that has none.
fn by_token<'r, 'a>(records: &'r Records<'a>, rule: Rule) -> (Vec<(u64, &'r Claim<'a>)>, Vec<Finding>) {
    let without = records.claims.iter().filter(|claim| claim.token.is_none());
    let findings = without.map(|claim| {
        let text = format!("{claim} was granted without a token at {}", records.when(claim.returned));
        records.finding(rule, &[claim.id], claim.returned, 0, text)
    });
    let with = records.claims.iter().filter_map(|claim| claim.token.map(|token| (token, claim)));
    (with.collect(), findings.collect())
}

/// A finding for each claim whose token an earlier one already has.
fn repeated(records: &Records<'_>, rule: Rule) -> Vec<Finding> {
    let mut claims: Vec<&Claim<'_>> = records.claims.iter().filter(|claim| claim.token.is_some()).collect();
    claims.sort_by_key(|claim| (claim.token, claim.returned));
    let pairs = claims.windows(2).filter(|pair| pair[0].token == pair[1].token);
    let findings = pairs.map(|pair| {
        let by = pair[1].returned - pair[0].returned;
        let (first, second, later) = (pair[0], pair[1], millis(by));
        let text = format!("{second} got the same token as {first}, {later} later");
        records.finding(rule, &[first.id, second.id], second.returned, by, text)
    });
    findings.collect()
}
