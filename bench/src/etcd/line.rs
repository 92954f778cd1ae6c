//! Handing a lock over: what each costs the cluster, however many wait, and how long it takes.

use std::{thread, time::Duration};

use fencepost_lab::server::etcd::Etcd;

use super::requests::messages;
use crate::{
    handover::{across, line_up, patiently},
    outcome::Outcome,
    pairs::now,
    table::{Table, show},
};

struct Cost {
    messages: f64,
    latency: Duration,
}

pub(super) fn measure(table: &mut Table, cluster: &Etcd, effort: usize) -> Outcome<()> {
    let window = Duration::from_millis(if effort > 1 { 4000 } else { 800 });
    let few = patiently(window, |window| cost(cluster, 10, window))?;
    let many = patiently(window, |window| cost(cluster, 1000, window))?;
    let ratio = many.messages / few.messages;
    table.row([
        "messages a hand-over, 1000 waiting, etcd".into(),
        "10 waiting".into(),
        format!("{:.2}", few.messages),
        format!("{:.2}", many.messages),
        format!("{ratio:.2}"),
        format!("at most 1.2: {}", if ratio <= 1.2 { "met" } else { "not met" }),
    ]);
    for (cost, waiting) in [(&few, 10), (&many, 1000)] {
        table.plain(&format!("hand-over to another process, etcd, {waiting} waiting"), show(cost.latency));
    }
    Ok(())
}

/// `None` if the lock never went from one process to the other.
fn cost(cluster: &Etcd, waiters: usize, window: Duration) -> Outcome<Option<Cost>> {
    let mut counted = None;
    let holds = line_up(&cluster.url(), waiters, || {
        // Not the first ones: until then the others still learn where they stand.
        thread::sleep(window / 2);
        let counting = || {
            let (before, from) = (messages(cluster, |_| true)?, now());
            thread::sleep(window);
            Outcome::Ok((from, messages(cluster, |_| true)? - before, now()))
        };
        counted = Some(counting());
    })?;
    let (from, sum, until) = counted.ok_or("nothing was counted")??;
    let count = holds.iter().filter(|hold| hold.until >= from && hold.until < until).count() as f64;
    let cost = |latency| Cost { messages: sum / count, latency };
    Ok(across(&holds).filter(|_| count > 0.0).map(cost))
}
