//! Handing a lock over: what each costs the server, however many wait, and how long it takes.

use std::{thread, time::Duration};

use fencepost::blocking;
use fencepost_lab::server::redis::Redis;

use super::{
    floor::{Bare, Scripts},
    stats::{self, SCRIPTS, Stats},
};
use crate::{
    handover::{across, line_up, patiently},
    outcome::Outcome,
    pairs::{median, now, time},
    table::{Table, show},
};

/// What the driver may send while a lock goes from hand to hand.
const COMMANDS: &[&str] = &["evalsha", "eval", "client|caching", "subscribe"];

/// What one size of the line costs.
struct Cost {
    commands: f64,
    /// The server's microseconds.
    micros: f64,
    latency: Duration,
}

pub(super) fn measure(table: &mut Table, server: &Redis, effort: usize) -> Outcome<()> {
    let window = Duration::from_millis(if effort > 1 { 3000 } else { 300 });
    let bare = Bare::connect(server, &Scripts::load(server)?)?;
    let trip = || {
        let times: Outcome<Vec<_>> =
            (0..500).map(|_| time(|| blocking::wait(bare.compare("bare")))).collect();
        Outcome::Ok(median(times?.into_iter()))
    };
    let before = trip()?;
    let few = patiently(window, |window| cost(server, 10, window))?;
    let many = patiently(window, |window| cost(server, 1000, window))?;
    let limit = before.max(trip()?) * 2 + Duration::from_millis(1);
    let ratio = many.commands / few.commands;
    table.row([
        "commands a hand-over, 1000 waiting".into(),
        "10 waiting".into(),
        format!("{:.2}", few.commands),
        format!("{:.2}", many.commands),
        format!("{ratio:.2}"),
        format!("at most 1.2: {}", if ratio <= 1.2 { "met" } else { "not met" }),
    ]);
    table.row([
        "  the server's time for each, as it counts".into(),
        "10 waiting".into(),
        format!("{:.1} µs", few.micros),
        format!("{:.1} µs", many.micros),
        format!("{:.2}", many.micros / few.micros),
        String::new(),
    ]);
    for (cost, waiting) in [(&few, 10), (&many, 1000)] {
        table.row([
            format!("hand-over to another process, redis, {waiting} waiting"),
            "2 round trips and 1 ms".into(),
            show(limit),
            show(cost.latency),
            format!("{:.2}", cost.latency.as_secs_f64() / limit.as_secs_f64()),
            format!("at most 1: {}", if cost.latency <= limit { "met" } else { "not met" }),
        ]);
    }
    Ok(())
}

/// `None` if the lock never went from one process to the other.
fn cost(server: &Redis, waiters: usize, window: Duration) -> Outcome<Option<Cost>> {
    let mut counted = None;
    let holds = line_up(&server.url(), waiters, || {
        // Not the first ones: until then the others are still told where they stand.
        thread::sleep(window / 4);
        let counting = || {
            stats::reset(server)?;
            let from = now();
            thread::sleep(window);
            Outcome::Ok((from, Stats::read(server)?, now()))
        };
        counted = Some(counting());
    })?;
    let (from, stats, until) = counted.ok_or("nothing was counted")??;
    let count = holds.iter().filter(|hold| hold.until >= from && hold.until < until).count() as f64;
    let (commands, micros) = (stats.calls(COMMANDS), stats.micros(SCRIPTS));
    let cost = |latency| Cost { commands: commands / count, micros: micros / count, latency };
    Ok(across(&holds).filter(|_| count > 0.0).map(cost))
}
