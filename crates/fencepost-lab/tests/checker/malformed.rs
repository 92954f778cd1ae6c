//! A history whose events do not fit together is not judged.

use fencepost_lab::checker::{Rules, judge};
use fencepost_lab::history::{Kind, Outcome};

use crate::prng::Prng;
use crate::simulated::{self, Simulated};

type Spoil = fn(&mut Simulated);

fn reason(spoil: Spoil) -> String {
    let mut history = simulated::lock(3, &mut Prng(7));
    spoil(&mut history);
    judge(&history.events, &Rules::all()).unwrap_err().to_string()
}

fn repeat(history: &mut Simulated, index: usize) {
    let event = history.events[index].clone();
    history.events.push(event);
}

#[test]
fn each_misfit_is_named() {
    let cases: [(&str, Spoil); 12] = [
        ("names no lock", |h| h.invoke(1, Kind::Acquire).lock = None),
        ("names no claim", |h| h.invoke(1, Kind::Acquire).claim = None),
        ("has no phase", |h| h.invoke(1, Kind::Renew).phase = None),
        ("has a phase", |h| h.invoke(1, Kind::Renew).kind = Kind::Lost),
        ("invokes a claim again", |h| repeat(h, 0)),
        ("returns twice", |h| repeat(h, 1)),
        ("returns without an invocation", |h| drop(h.events.remove(0))),
        ("returns without an invocation", |h| drop(h.events.remove(7))),
        ("returns without an invocation", |h| drop(h.events.remove(4))),
        ("is about a claim that was never invoked", |h| h.invoke(1, Kind::Release).claim = Some("c9".into())),
        ("grants a claim whose release was already invoked", |h| h.returns(1, Kind::Acquire).t_ns += 900),
        ("begins before the one before it has returned", |h| repeat(h, 4)),
    ];
    for (expected, spoil) in cases {
        let reason = reason(spoil);
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

#[test]
fn a_claim_that_was_not_granted_may_be_released() {
    let mut history = simulated::lock(3, &mut Prng(7));
    history.returns(1, Kind::Acquire).outcome = Some(Outcome::Timeout);
    let verdict = judge(&history.events, &Rules::all()).unwrap();
    assert_eq!((verdict.grants, verdict.holds()), (2, true), "{verdict}");
}
