//! Each way to break a lock is caught, and by no other rules than those that it breaks.

use std::collections::BTreeSet;

use fencepost_lab::checker::{Rule, Rules, Verdict, judge};
use fencepost_lab::history::{Event, Kind, Outcome, Phase};

use crate::prng::Prng;
use crate::simulated::{self, Simulated};

/// A way to break the history at a claim that is not the last, and the rules that this breaks.
type Mutant = (&'static str, fn(&mut Simulated, u64), &'static [Rule]);

const NO_LONGER_ALONE: &[Rule] = &[Rule::Exclusion, Rule::Fenced];
const OUT_OF_ORDER: &[Rule] = &[Rule::Fenced, Rule::Leased, Rule::Tokens];

const MUTANTS: &[Mutant] = &[
    ("nothing is broken", |_, _| {}, &[]),
    (
        "the reply to a release is lost",
        |h, i| h.returns(i, Kind::Release).outcome = Some(Outcome::Unknown),
        &[],
    ),
    ("the gate rejects a stale write", |h, i| late_access(h, i, Kind::Write, Outcome::Stale), &[]),
    (
        "the next claim is granted before a release that is confirmed",
        |h, i| release_late(h, i, Outcome::Ok),
        &[Rule::Exclusion, Rule::Fenced, Rule::Leased],
    ),
    ("a holder is paused past its deadline", |h, i| release_late(h, i, Outcome::Lost), NO_LONGER_ALONE),
    (
        "a holder believes past the next grant",
        |h, i| {
            release_late(h, i, Outcome::Lost);
            h.returns(i, Kind::Renew).deadline_ns = Some(granted(h, i + 1) + 25);
        },
        &[Rule::Exclusion, Rule::Fenced, Rule::Belief],
    ),
    (
        "a renewal returns after the deadline",
        |h, i| {
            release_late(h, i, Outcome::Lost);
            let late = granted(h, i) + 250;
            let renewed = h.returns(i, Kind::Renew);
            (renewed.t_ns, renewed.deadline_ns) = (late, Some(late + 5_000));
        },
        NO_LONGER_ALONE,
    ),
    (
        "a holder reports its loss in time",
        |h, i| {
            release_late(h, i, Outcome::Lost);
            h.returns(i, Kind::Renew).deadline_ns = None;
            h.returns(i, Kind::Acquire).deadline_ns = None;
            let t_ns = granted(h, i) + 300;
            let lost = Event { t_ns, kind: Kind::Lost, phase: None, ..h.returns(i, Kind::Release).clone() };
            h.events.push(lost);
        },
        NO_LONGER_ALONE,
    ),
    (
        "a holder never releases and the lease runs out",
        |h, i| {
            let id = format!("c{i}");
            h.events.retain(|event| event.kind != Kind::Release || event.claim.as_ref() != Some(&id));
        },
        NO_LONGER_ALONE,
    ),
    (
        "a token is granted twice",
        |h, i| h.returns(i + 1, Kind::Acquire).token = h.returns(i, Kind::Acquire).token,
        OUT_OF_ORDER,
    ),
    (
        "a later claim gets the smaller token",
        |h, i| {
            h.invoke(i + 1, Kind::Acquire).t_ns = granted(h, i) + 1;
            swap_tokens(h, i);
        },
        OUT_OF_ORDER,
    ),
    (
        "two waiters get each other's token",
        |h, i| {
            h.invoke(i + 1, Kind::Acquire).t_ns = granted(h, i) - 1;
            swap_tokens(h, i);
        },
        &[Rule::Fenced, Rule::Leased],
    ),
    ("a claim is granted without a token", |h, i| h.returns(i, Kind::Acquire).token = None, OUT_OF_ORDER),
    (
        "the gate accepts a stale write",
        |h, i| {
            late_access(h, i, Kind::Write, Outcome::Ok);
            h.state().push("late".into());
        },
        &[Rule::Gate],
    ),
    ("the gate accepts a stale read", |h, i| late_access(h, i, Kind::Read, Outcome::Ok), &[Rule::Gate]),
    (
        "clients see a stale write accepted, and the resource has no log",
        |h, i| {
            h.events.retain(|event| event.kind != Kind::Write || event.phase.is_some());
            let after = granted(h, i + 1) + 500;
            h.invoke(i, Kind::Write).t_ns = after;
            h.returns(i, Kind::Write).t_ns = after + 10;
        },
        &[Rule::Gate],
    ),
    (
        "the gate rejects a write for no reason",
        |h, i| {
            for phase in [None, Some(Phase::Return)] {
                h.event(i, Kind::Write, phase).outcome = Some(Outcome::Stale);
            }
            h.state().retain(|update| *update != format!("u{i}"));
        },
        &[Rule::Rejections],
    ),
    (
        "a confirmed update is lost",
        |h, i| h.state().retain(|update| *update != format!("u{i}")),
        &[Rule::Updates],
    ),
    (
        "the final state is not recorded",
        |h, _| h.events.retain(|event| event.kind != Kind::Final),
        &[Rule::Updates],
    ),
];

fn granted(history: &mut Simulated, claim: u64) -> u64 {
    history.returns(claim, Kind::Acquire).t_ns
}

/// The release begins 10 ns after the next claim was granted.
fn release_late(history: &mut Simulated, claim: u64, outcome: Outcome) {
    let late = granted(history, claim + 1) + 10;
    history.invoke(claim, Kind::Release).t_ns = late;
    let returns = history.returns(claim, Kind::Release);
    (returns.t_ns, returns.outcome) = (late + 10, Some(outcome));
}

fn swap_tokens(history: &mut Simulated, claim: u64) {
    let token = history.returns(claim, Kind::Acquire).token;
    let next = std::mem::replace(&mut history.returns(claim + 1, Kind::Acquire).token, token);
    history.returns(claim, Kind::Acquire).token = next;
}

/// A token comes to the resource 100 ns after its successor's.
fn late_access(history: &mut Simulated, claim: u64, kind: Kind, outcome: Outcome) {
    let t_ns = history.event(claim + 1, Kind::Write, None).t_ns + 100;
    let access = history.event(claim, Kind::Write, None).clone();
    let update = Some("late".into());
    history.events.push(Event { t_ns, kind, outcome: Some(outcome), update, ..access });
}

/// The verdict on a mutant at a random claim, and that claim.
fn broken(seed: u64, mutate: fn(&mut Simulated, u64)) -> (Verdict, u64) {
    let mut prng = Prng(seed);
    let claims = 2 + prng.below(20);
    let mut history = simulated::lock(claims, &mut prng);
    let victim = prng.below(history.claims - 1);
    mutate(&mut history, victim);
    (judge(&history.events, &Rules::all()).unwrap(), victim)
}

#[test]
fn every_mutant_breaks_exactly_the_rules_that_name_it() {
    let mut seen = BTreeSet::new();
    for (name, mutate, expected) in MUTANTS {
        let expected: BTreeSet<Rule> = expected.iter().copied().collect();
        for seed in 0..200 {
            let (verdict, victim) = broken(seed, *mutate);
            assert_eq!(verdict.broken(), expected, "{name}, seed={seed} victim=c{victim}\n{verdict}");
        }
        seen.extend(expected);
    }
    assert_eq!(seen, Rule::ALL.into(), "every rule has a mutant");
}

#[test]
fn only_the_rules_asked_for_count() {
    let (_, mutate, _) = MUTANTS.iter().find(|(name, ..)| name.contains("believes past")).unwrap();
    let mut history = simulated::lock(3, &mut Prng(1));
    mutate(&mut history, 1);
    let verdict = judge(&history.events, &Rules::leased()).unwrap();
    assert!(verdict.holds(), "{verdict}");
    assert_eq!(verdict.longest_overlap_ns(), 10, "the overlap is reported all the same");
    assert!(!judge(&history.events, &[Rule::Belief].into()).unwrap().holds());
}

#[test]
fn lost_updates_are_counted() {
    let mut history = simulated::lock(8, &mut Prng(1));
    history.state().truncate(6);
    let verdict = judge(&history.events, &Rules::all()).unwrap();
    assert_eq!((verdict.grants, verdict.acknowledged, verdict.lost), (8, 8, 2));
    assert_eq!(verdict.lost_percent(), 25.0);
    assert!(verdict.to_string().ends_with("2 of 8 confirmed updates are lost (25.0%)"), "{verdict}");
}

#[test]
fn locks_are_judged_apart() {
    let mut history = simulated::lock(3, &mut Prng(1));
    let other = simulated::lock(3, &mut Prng(2)).events.into_iter();
    history.events.extend(other.map(|event| Event { lock: Some("orders/4822".into()), ..event }));
    let verdict = judge(&history.events, &Rules::all()).unwrap();
    assert!(verdict.holds(), "{verdict}");
    assert_eq!(verdict.grants, 6);
}
