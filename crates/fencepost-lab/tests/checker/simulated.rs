//! The history of a correct lock, with a gate at its resource, to be broken on purpose.

use fencepost_lab::history::{Event, Kind, Outcome, Phase};

use crate::prng::Prng;

/// The time from one grant to the next, give or take.
const TURN: u64 = 1_000;

pub(crate) struct Simulated {
    pub(crate) events: Vec<Event>,
    pub(crate) claims: u64,
}

/// One claim after the other gets the lock, renews it, writes and releases; each waits for a while before its turn.
pub(crate) fn lock(claims: u64, prng: &mut Prng) -> Simulated {
    let mut events = Vec::new();
    let mut token = 0;
    for i in 0..claims {
        token += 1 + prng.below(3);
        let granted = 5_000 + i * TURN + prng.below(50);
        let waited = 20 + prng.below(3 * TURN);
        let operation = |kind, invoke, returns, outcome| {
            let event = |t, phase| Event {
                phase: Some(phase),
                lock: Some("orders/4821".into()),
                claim: Some(format!("c{i}")),
                ..Event::at(t, &format!("p{i}"), kind)
            };
            [event(invoke, Phase::Invoke), Event { outcome: Some(outcome), ..event(returns, Phase::Return) }]
        };
        let [asked, mut got] = operation(Kind::Acquire, granted - waited, granted, Outcome::Ok);
        got.token = Some(token);
        got.deadline_ns = Some(granted + 200);
        let [renew, mut renewed] = operation(Kind::Renew, granted + 100, granted + 150, Outcome::Ok);
        renewed.deadline_ns = Some(granted + 400);
        let writes = operation(Kind::Write, granted + 200, granted + 240, Outcome::Ok);
        let [write, wrote] =
            writes.map(|event| Event { token: Some(token), update: Some(format!("u{i}")), ..event });
        let at_resource = Event { t_ns: granted + 220, lane: "db".into(), phase: None, ..wrote.clone() };
        let releases = operation(Kind::Release, granted + 300, granted + 350, Outcome::Ok);
        events.extend([asked, got, renew, renewed, write, at_resource, wrote]);
        events.extend(releases);
    }
    let state = Some((0..claims).map(|i| format!("u{i}")).collect());
    let end = Event {
        lock: Some("orders/4821".into()),
        state,
        ..Event::at(5_000 + claims * TURN, "db", Kind::Final)
    };
    events.push(end);
    Simulated { events, claims }
}

impl Simulated {
    pub(crate) fn event(&mut self, claim: u64, kind: Kind, phase: Option<Phase>) -> &mut Event {
        let id = format!("c{claim}");
        let found = |event: &&mut Event| {
            event.kind == kind && event.phase == phase && event.claim.as_ref() == Some(&id)
        };
        self.events.iter_mut().find(found).unwrap()
    }

    pub(crate) fn invoke(&mut self, claim: u64, kind: Kind) -> &mut Event {
        self.event(claim, kind, Some(Phase::Invoke))
    }

    pub(crate) fn returns(&mut self, claim: u64, kind: Kind) -> &mut Event {
        self.event(claim, kind, Some(Phase::Return))
    }

    /// The updates in the final state.
    pub(crate) fn state(&mut self) -> &mut Vec<String> {
        self.events.iter_mut().find_map(|event| event.state.as_mut()).unwrap()
    }
}
