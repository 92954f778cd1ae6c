//! A finding says which two claims, since when and for how long.

use fencepost_lab::checker::{Finding, Rule, judge};
use fencepost_lab::history::{Event, Kind, Outcome, Phase};

/// Claims `a`, `b`, ... with tokens 1, 2, ...: when each acquire was invoked and returned, when its release was invoked
/// and whether that was confirmed. Times are in milliseconds.
fn findings(rule: Rule, claims: &[(u64, u64, u64, bool)]) -> Vec<Finding> {
    let mut events = Vec::new();
    for (token, (invoked, returned, released, confirmed)) in (1..).zip(claims) {
        let claim = char::from(b'a' + token as u8 - 1).to_string();
        let event = |ms, kind, phase, outcome| Event {
            phase: Some(phase),
            lock: Some("orders/4821".into()),
            claim: Some(claim.clone()),
            outcome,
            token: Some(token),
            ..Event::at(ms * 1_000_000, "p1", kind)
        };
        let released_as = if *confirmed { Outcome::Ok } else { Outcome::Unknown };
        events.extend([
            event(*invoked, Kind::Acquire, Phase::Invoke, None),
            event(*returned, Kind::Acquire, Phase::Return, Some(Outcome::Ok)),
            event(*released, Kind::Release, Phase::Invoke, None),
            event(*released + 1, Kind::Release, Phase::Return, Some(released_as)),
        ]);
    }
    let verdict = judge(&events, &[rule].into()).unwrap();
    if rule == Rule::Belief { verdict.overlaps } else { verdict.findings }
}

fn told(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn each_claim_inside_a_longer_one_is_found() {
    let claims = [(10, 11, 100, true), (12, 20, 30, true), (31, 40, 140, true)];
    let found = findings(Rule::Exclusion, &claims);
    assert_eq!(
        told(&found),
        [
            "exclusion: orders/4821: claim a of p1 (token 1) and claim b of p1 (token 2) both held the lock \
             for 10.000 ms since +10.000 ms",
            "exclusion: orders/4821: claim a of p1 (token 1) and claim c of p1 (token 3) both held the lock \
             for 60.000 ms since +30.000 ms",
        ]
    );
    assert_eq!((found[1].at_ns, found[1].by_ns), (40_000_000, 60_000_000));
    assert_eq!(found[1].parties, ["a", "c"]);
    assert_eq!(findings(Rule::Belief, &claims).len(), 2);
}

#[test]
fn the_claim_that_is_in_the_way_is_blamed() {
    // The lease of `b` may end at once, so it is `a` that `c` could not come after.
    let claims = [(10, 11, 100, true), (12, 120, 130, false), (13, 60, 160, true)];
    assert_eq!(
        told(&findings(Rule::Leased, &claims)),
        [
            "leased: orders/4821: claim c of p1 (token 3) was granted by +50.000 ms, though claim a of p1 (token 1) \
          comes before it and ended at +90.000 ms or later (40.000 ms)"
        ]
    );
}

#[test]
fn one_fault_does_not_taint_what_follows() {
    let claims = [(10, 11, 100, true), (12, 20, 30, true), (31, 40, 50, true), (51, 60, 70, true)];
    assert_eq!(findings(Rule::Fenced, &claims).len(), 1);
}

#[test]
fn each_fault_has_its_own_blame() {
    let claims = [(10, 11, 100, true), (12, 20, 30, true), (13, 25, 50, true)];
    let parties: Vec<_> = findings(Rule::Fenced, &claims).into_iter().map(|found| found.parties).collect();
    assert_eq!(parties, [["a", "b"], ["b", "c"]]);
}
