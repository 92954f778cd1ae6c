//! The sweeps against an exhaustive search for an order, on random small histories.
//!
//! The search knows nothing of cursors and greed: it tries every order of grants and releases that respects real time.

use std::collections::HashSet;

use fencepost_lab::checker::{Rule, judge};
use fencepost_lab::history::{Event, Kind, Outcome, Phase};

use crate::prng::Prng;

const HISTORIES: u64 = 40_000;

#[derive(Clone, Debug)]
struct Claim {
    acquire: (u64, u64),
    token: u64,
    release: Option<(u64, u64, Outcome)>,
    deadline: u64,
}

/// An operation that takes effect at one moment between two.
#[derive(Clone, Copy)]
struct Op {
    claim: usize,
    grant: bool,
    from: u64,
    to: u64,
    /// Whether an order without it is no order.
    must: bool,
}

fn random_claims(prng: &mut Prng) -> Vec<Claim> {
    let count = 1 + prng.below(6);
    let pace = 1 + prng.below(10);
    let mut claims: Vec<Claim> = Vec::new();
    for i in 0..count {
        let mut at = (i * pace + prng.below(4)).saturating_sub(prng.below(4));
        let [invoked, returned, release, released] = [1, 4, 4, 3].map(|longest| {
            at += prng.below(longest);
            at
        });
        let release = match prng.below(8) {
            0 => None,
            1 => Some((release, released, Outcome::Lost)),
            2 => Some((release, released, Outcome::Unknown)),
            _ => Some((release, released, Outcome::Ok)),
        };
        let token = if prng.one_in(8) { prng.below(count) } else { i };
        let deadline = returned + prng.below(8);
        claims.push(Claim { acquire: (invoked, returned), token, release, deadline });
    }
    if prng.one_in(4) {
        let (a, b) = (prng.below(count) as usize, prng.below(count) as usize);
        (claims[a].token, claims[b].token) = (claims[b].token, claims[a].token);
    }
    claims
}

fn events(claims: &[Claim]) -> Vec<Event> {
    let mut events = Vec::new();
    for (i, claim) in claims.iter().enumerate() {
        let event = |t, kind, phase| Event {
            phase: Some(phase),
            lock: Some("a".into()),
            claim: Some(format!("c{i}")),
            ..Event::at(t, &format!("p{i}"), kind)
        };
        events.push(event(claim.acquire.0, Kind::Acquire, Phase::Invoke));
        events.push(Event {
            outcome: Some(Outcome::Ok),
            token: Some(claim.token),
            deadline_ns: Some(claim.deadline),
            ..event(claim.acquire.1, Kind::Acquire, Phase::Return)
        });
        if let Some((invoked, returned, outcome)) = claim.release {
            events.push(event(invoked, Kind::Release, Phase::Invoke));
            let returns = event(returned, Kind::Release, Phase::Return);
            events.push(Event { outcome: Some(outcome), ..returns });
        }
    }
    events
}

/// Whether the grants and releases have an order in which holders are alone and tokens rise.
fn has_order(claims: &[Claim], leased: bool) -> bool {
    let mut ops = Vec::new();
    for (claim, Claim { acquire: (from, to), release, .. }) in claims.iter().enumerate() {
        ops.push(Op { claim, grant: true, from: *from, to: *to, must: true });
        if let Some((from, returned, outcome)) = *release {
            let must = outcome == Outcome::Ok;
            ops.push(Op { claim, grant: false, from, to: if must { returned } else { u64::MAX }, must });
        }
    }
    let expires = |claim: usize| leased && !matches!(claims[claim].release, Some((.., Outcome::Ok)));
    let mut tried = HashSet::new();
    let mut open = vec![(0_u32, None::<usize>, None::<u64>)];
    while let Some((done, holder, last)) = open.pop() {
        let left: Vec<(usize, &Op)> = ops.iter().enumerate().filter(|(i, _)| done & (1 << i) == 0).collect();
        if left.iter().all(|(_, op)| !op.must) {
            return true;
        }
        for (i, op) in &left {
            if left.iter().any(|(_, other)| other.to < op.from) {
                continue;
            }
            let token = claims[op.claim].token;
            let next = if op.grant {
                let free = holder.is_none_or(expires);
                (free && last < Some(token)).then_some((done | 1 << i, Some(op.claim), Some(token)))
            } else {
                (holder == Some(op.claim)).then_some((done | 1 << i, None, last))
            };
            open.extend(next.filter(|next| tried.insert(*next)));
        }
    }
    false
}

/// Whether any two of these spans share some time.
fn some_overlap(spans: &[(u64, u64)]) -> bool {
    pairs(spans).any(|(a, b)| a.0 < b.1 && b.0 < a.1)
}

fn pairs<T>(items: &[T]) -> impl Iterator<Item = (&T, &T)> {
    items.iter().enumerate().flat_map(|(i, a)| items[i + 1..].iter().map(move |b| (a, b)))
}

/// What each rule says by the plainest means there are.
fn plainly_holds(rule: Rule, claims: &[Claim]) -> bool {
    let end = |claim: &Claim| claim.release.map_or(u64::MAX, |release| release.0);
    match rule {
        Rule::Fenced => has_order(claims, false),
        Rule::Leased => has_order(claims, true),
        Rule::Exclusion => {
            let spans: Vec<_> = claims.iter().map(|claim| (claim.acquire.1, end(claim))).collect();
            !some_overlap(&spans)
        }
        Rule::Belief => {
            let spans = claims.iter().map(|claim| (claim.acquire.1, end(claim).min(claim.deadline)));
            !some_overlap(&spans.filter(|(from, to)| from < to).collect::<Vec<_>>())
        }
        Rule::Tokens => pairs(claims).all(|(a, b)| {
            let ordered = |a: &Claim, b: &Claim| a.acquire.1 >= b.acquire.0 || a.token < b.token;
            a.token != b.token && ordered(a, b) && ordered(b, a)
        }),
        Rule::Gate | Rule::Rejections | Rule::Updates => unreachable!("these are about a resource"),
    }
}

#[test]
fn the_sweeps_agree_with_the_search() {
    for rule in [Rule::Exclusion, Rule::Fenced, Rule::Leased, Rule::Tokens, Rule::Belief] {
        let mut kept = 0;
        for seed in 0..HISTORIES {
            let claims = random_claims(&mut Prng(seed));
            let verdict = judge(&events(&claims), &[rule].into()).unwrap();
            let expected = plainly_holds(rule, &claims);
            assert_eq!(verdict.holds(), expected, "{rule}, seed={seed}\n{claims:#?}\n{verdict}");
            kept += u64::from(expected);
        }
        assert!(
            (HISTORIES / 10..HISTORIES * 9 / 10).contains(&kept),
            "{rule}: only {kept} hold, or too many"
        );
    }
}

#[derive(Clone, Copy, Debug)]
struct Access {
    from: u64,
    to: u64,
    token: u64,
    accepted: bool,
}

fn random_accesses(prng: &mut Prng, longest: u64) -> Vec<Access> {
    let count = 1 + prng.below(5);
    let access = |i| {
        let from = 10 * i + prng.below(5) + prng.below(2) * prng.below(30);
        let token = if prng.one_in(2) { i } else { prng.below(5) };
        Access { from, to: from + prng.below(longest), token, accepted: !prng.one_in(4) }
    };
    (0..count).map(access).collect()
}

/// The accesses as the resource's own log if each is a moment, otherwise as its clients saw them.
fn access_events(accesses: &[Access]) -> Vec<Event> {
    let mut events = Vec::new();
    for (i, access) in accesses.iter().enumerate() {
        let outcome = if access.accepted { Outcome::Ok } else { Outcome::Stale };
        let event = |t, phase, outcome| Event {
            phase,
            outcome,
            lock: Some("a".into()),
            token: Some(access.token),
            ..Event::at(t, &format!("p{i}"), Kind::Write)
        };
        if accesses.iter().all(|access| access.from == access.to) {
            events.push(event(access.from, None, Some(outcome)));
        } else {
            events.push(event(access.from, Some(Phase::Invoke), None));
            events.push(event(access.to, Some(Phase::Return), Some(outcome)));
        }
    }
    events
}

/// Whether these have an order that respects real time and in which tokens never fall.
fn rises(left: &[Access], last: u64) -> bool {
    left.is_empty()
        || (0..left.len()).any(|i| {
            let mut rest = left.to_vec();
            let next = rest.remove(i);
            rest.iter().all(|other| other.to >= next.from) && next.token >= last && rises(&rest, next.token)
        })
}

#[test]
fn the_gate_agrees_with_the_search() {
    let mut kept = 0;
    for seed in 0..HISTORIES {
        let accesses = random_accesses(&mut Prng(seed), 30);
        let verdict = judge(&access_events(&accesses), &[Rule::Gate].into()).unwrap();
        let accepted: Vec<_> = accesses.iter().copied().filter(|access| access.accepted).collect();
        let expected = rises(&accepted, 0);
        assert_eq!(verdict.holds(), expected, "seed={seed}\n{accesses:#?}\n{verdict}");
        kept += u64::from(expected);
    }
    assert!((HISTORIES / 10..HISTORIES * 9 / 10).contains(&kept), "only {kept} hold, or too many");
}

/// Replays a resource's own log through a gate, and says which rules it breaks.
#[test]
fn the_resource_log_agrees_with_a_replay() {
    let (mut gates, mut rejections) = (0, 0);
    for seed in 0..HISTORIES {
        let mut log = random_accesses(&mut Prng(seed), 1);
        log.sort_by_key(|access| access.from);
        log.dedup_by_key(|access| access.from);
        let (mut highest, mut gate, mut rejection) = (0, true, true);
        for access in &log {
            gate &= !access.accepted || access.token >= highest;
            rejection &= access.accepted || access.token < highest;
            highest = if access.accepted { highest.max(access.token) } else { highest };
        }
        for (rule, expected, kept) in
            [(Rule::Gate, gate, &mut gates), (Rule::Rejections, rejection, &mut rejections)]
        {
            let verdict = judge(&access_events(&log), &[rule].into()).unwrap();
            assert_eq!(verdict.holds(), expected, "seed={seed}\n{log:#?}\n{verdict}");
            *kept += u64::from(expected);
        }
    }
    for kept in [gates, rejections] {
        assert!((HISTORIES / 10..HISTORIES * 9 / 10).contains(&kept), "only {kept} hold, or too many");
    }
}
