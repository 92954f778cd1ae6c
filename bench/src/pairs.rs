//! Two ways to do something, measured in turn: what slows the machine down then slows both.

use std::time::Duration;

use fencepost::{Moment, SystemHost, driver::Host};

use crate::outcome::Outcome;

/// What came of a number of pairs: the medians.
pub(crate) struct Pairs {
    pub(crate) floor: Duration,
    pub(crate) ours: Duration,
    /// The median of the pairs' ratios, which is not the ratio of the medians.
    pub(crate) ratio: f64,
}

/// Takes the time of `floor` and `ours` in turn, each first in every other pair, after one pair that is not counted.
pub(crate) fn in_turn(
    pairs: usize,
    mut floor: impl FnMut() -> Outcome<()>,
    mut ours: impl FnMut() -> Outcome<()>,
) -> Outcome<Pairs> {
    timed_in_turn(pairs, || time(&mut floor), || time(&mut ours))
}

/// The same for two that take their own time, since something of another kind goes on before or after.
pub(crate) fn timed_in_turn(
    pairs: usize,
    mut floor: impl FnMut() -> Outcome<Duration>,
    mut ours: impl FnMut() -> Outcome<Duration>,
) -> Outcome<Pairs> {
    let mut taken = Vec::new();
    for pair in 0..=pairs {
        let (first, second) = if pair % 2 == 0 {
            (floor()?, ours()?)
        } else {
            let ours = ours()?;
            (floor()?, ours)
        };
        taken.push((first, second));
    }
    let taken = &taken[1..];
    Ok(Pairs {
        floor: median(taken.iter().map(|(floor, _)| *floor)),
        ours: median(taken.iter().map(|(_, ours)| *ours)),
        ratio: median_by(
            taken.iter().map(|(floor, ours)| ours.as_secs_f64() / floor.as_secs_f64()),
            f64::total_cmp,
        ),
    })
}

impl Pairs {
    /// The same for one of the `times` that each measurement repeated.
    pub(crate) fn each_of(self, times: u32) -> Self {
        Self { floor: self.floor / times, ours: self.ours / times, ..self }
    }
}

/// The present moment, comparable between processes.
pub(crate) fn now() -> Moment {
    SystemHost.now()
}

/// How long `work` takes.
pub(crate) fn time(work: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    let start = now();
    work()?;
    Ok(now().since(start))
}

pub(crate) fn median(all: impl Iterator<Item = Duration>) -> Duration {
    median_by(all, Duration::cmp)
}

fn median_by<T: Copy>(all: impl Iterator<Item = T>, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> T {
    let mut all: Vec<T> = all.collect();
    all.sort_by(order);
    all[all.len() / 2]
}
