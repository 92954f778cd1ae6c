//! Random interleavings of several holders at one gate, judged by the checker.
//!
//! Each history has a resource of its own and a few holders that read and write in the steps that a seed draws, one after the other: the
//! order is exact, so every rule about it is too. Some holders are late, some come twice with one token, some write without
//! having read.

use std::sync::Arc;

use fencepost::{
    Error, ErrorKind, Token,
    gate::{
        Pass,
        conformance::{Client, Harness},
    },
};

use crate::{
    checker::{self, Rule, Rules},
    history::{Event, Kind, Outcome},
    sim::Dice,
};

/// The seed of this run: that of the variable `STORM_SEED`, to replay one, or a fixed one.
///
/// # Panics
///
/// If the variable is not a number.
#[must_use]
pub fn seed() -> u64 {
    std::env::var("STORM_SEED").map_or(1, |seed| seed.parse().expect("STORM_SEED is a number"))
}

/// Plays `count` histories at this gate, and judges each.
///
/// # Errors
///
/// The first broken promise, with the seed of its history, which as `STORM_SEED` replays it first.
pub fn judge(harness: &dyn Harness, count: u32, seed: u64) -> Result<(), String> {
    let clients = [connect(harness)?, connect(harness)?, connect(harness)?];
    let (mut stale, mut confirmed) = (0, 0);
    for seed in (0..count).map(|round| seed + u64::from(round)) {
        let mut storm = Storm::new(&clients, seed);
        storm.play().map_err(|error| format!("unexpected error: {error}, STORM_SEED={seed}"))?;
        let rules = Rules::from([Rule::Gate, Rule::Rejections, Rule::Updates]);
        let verdict =
            checker::judge(&storm.events, &rules).map_err(|why| format!("{why}, STORM_SEED={seed}"))?;
        if !verdict.holds() {
            return Err(format!("{verdict}, STORM_SEED={seed}"));
        }
        stale += storm.events.iter().filter(|event| event.outcome == Some(Outcome::Stale)).count();
        confirmed += verdict.acknowledged;
    }
    // A storm in which nobody is late, or nobody gets through, shows nothing.
    let count = count as usize;
    if stale < count / 2 || confirmed < count {
        return Err(format!(
            "{count} histories had only {stale} rejections and {confirmed} confirmed updates"
        ));
    }
    Ok(())
}

fn connect(harness: &dyn Harness) -> Result<Box<dyn Client>, String> {
    harness.connect().map_err(|error| format!("cannot connect: {error}"))
}

/// One holder: its token, its name for what it adds, and what it has read.
struct Holder {
    pass: Pass,
    seen: Option<String>,
    updates: u32,
}

struct Storm<'a> {
    clients: &'a [Box<dyn Client>],
    dice: Arc<Dice>,
    resource: String,
    holders: Vec<Holder>,
    events: Vec<Event>,
}

impl<'a> Storm<'a> {
    fn new(clients: &'a [Box<dyn Client>], seed: u64) -> Self {
        let dice = Dice::new(seed);
        let first = 1 + dice.below(1000);
        let holder = |token: u64| {
            let pass = Token::new(token).expect("not zero").into();
            Holder { pass, seen: None, updates: 0 }
        };
        // Sometimes two processes act under one token, as the two steps of one job do.
        let count = 2 + dice.below(3);
        let holders = (0..count).map(|index| holder(first + index - dice.below(2).min(index))).collect();
        Self { clients, dice, resource: format!("storm/{seed}"), holders, events: Vec::new() }
    }

    fn play(&mut self) -> Result<(), Error> {
        for _ in 0..6 + self.dice.below(15) {
            let index = self.dice.below(self.holders.len() as u64) as usize;
            match self.dice.below(5) {
                0 => self.fence(index)?,
                1 | 2 => self.read(index)?,
                _ => self.write(index)?,
            }
        }
        let text = self.clients[0].peek(&self.resource)?;
        let state = Some(text.split_terminator(' ').map(ToOwned::to_owned).collect());
        self.record(Event { state, ..Event::at(0, "store", Kind::Final) });
        Ok(())
    }

    fn fence(&mut self, index: usize) -> Result<(), Error> {
        let done = self.client(index).fence(&self.resource, &self.holders[index].pass);
        self.shown(index, Kind::Read, None, done).map(drop)
    }

    fn read(&mut self, index: usize) -> Result<(), Error> {
        let read = self.client(index).read(&self.resource, &self.holders[index].pass);
        self.holders[index].seen = self.shown(index, Kind::Read, None, read)?;
        Ok(())
    }

    /// Adds an update to what this holder read. One that shares its token may have written since: then it reads again, as
    /// the two have to agree among themselves.
    fn write(&mut self, index: usize) -> Result<(), Error> {
        let Some(seen) = self.holders[index].seen.clone() else { return self.read(index) };
        self.holders[index].updates += 1;
        let update = format!("u{index}.{}", self.holders[index].updates);
        let text = format!("{seen}{update} ");
        let done = self.client(index).write(&self.resource, &self.holders[index].pass, &text);
        if self.shown(index, Kind::Write, Some(update), done)?.is_some() {
            let pass = self.holders[index].pass.clone();
            self.holders.iter_mut().filter(|holder| holder.pass == pass).for_each(|holder| {
                holder.seen = Some(text.clone());
            });
        }
        Ok(())
    }

    fn client(&self, index: usize) -> &'a dyn Client {
        &*self.clients[index % self.clients.len()]
    }

    /// Writes down what the gate decided; `None` if the pass was stale.
    fn shown<T>(
        &mut self,
        index: usize,
        kind: Kind,
        update: Option<String>,
        result: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let (outcome, highest, value) = match result {
            Ok(value) => (Outcome::Ok, None, Some(value)),
            Err(error) if error.kind() == ErrorKind::Stale => {
                (Outcome::Stale, error.stale().map(|stale| stale.highest.get()), None)
            }
            Err(error) => return Err(error),
        };
        let token = Some(self.holders[index].pass.token.get());
        let (claim, outcome) = (Some(format!("h{index}")), Some(outcome));
        self.record(Event { claim, outcome, token, highest, update, ..Event::at(0, "store", kind) });
        Ok(value)
    }

    fn record(&mut self, event: Event) {
        let t_ns = self.events.len() as u64;
        self.events.push(Event { t_ns, lock: Some(self.resource.clone()), ..event });
    }
}
