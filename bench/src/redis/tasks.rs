//! Many tasks over one connection, each with a lock of its own.

use std::rc::Rc;

use fencepost::{Locker, blocking};
use fencepost_lab::server::redis::Redis;
use tokio::{
    runtime::{Builder, Runtime},
    task::LocalSet,
};

use super::{
    floor::{Bare, Scripts},
    stats::{self, SCRIPTS, Stats},
};
use crate::{outcome::Outcome, pairs::in_turn, table::Table};

const TASKS: usize = 64;

/// How many pairs each of them takes in one measurement.
const EACH: usize = 20;

pub(super) fn measure(table: &mut Table, server: &Redis, effort: usize) -> Outcome<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let bare = Rc::new(Bare::connect(server, &Scripts::load(server)?)?);
    let locker = blocking::wait(Locker::connect(&server.url()))?;
    let floor = || {
        all(&runtime, |name| {
            let bare = bare.clone();
            async move { bare.set_and_delete(&format!("bare:{name}")).await }
        })
    };
    let ours = || {
        all(&runtime, |name| {
            let lock = locker.lock(&name);
            async move { Ok(lock.acquire().await?.release().await?) }
        })
    };
    let pairs = in_turn(5 * effort, floor, ours)?;
    let rate = |time: std::time::Duration| (TASKS * EACH) as f64 / time.as_secs_f64();
    let ratio = 1.0 / pairs.ratio;
    table.row([
        format!("throughput of {TASKS} tasks, one connection"),
        "SET NX PX and EVALSHA".into(),
        format!("{:.1} k/s", rate(pairs.floor) / 1e3),
        format!("{:.1} k/s", rate(pairs.ours) / 1e3),
        format!("{ratio:.2}"),
        format!("at least 0.4: {}", if ratio >= 0.4 { "met" } else { "not met" }),
    ]);
    let micros = |work: &dyn Fn() -> Outcome<()>, commands: &[&str]| {
        stats::reset(server)?;
        work()?;
        Outcome::Ok(Stats::read(server)?.micros(commands) / (TASKS * EACH) as f64)
    };
    let (least, most) = (micros(&floor, &["set", "evalsha"])?, micros(&ours, SCRIPTS)?);
    table.row([
        "  the server's time for each, as it counts".into(),
        "the same".into(),
        format!("{least:.1} µs"),
        format!("{most:.1} µs"),
        format!("{:.2}", most / least),
        String::new(),
    ]);
    Ok(())
}

/// Runs so many of `work` in each task, each task with a name of its own.
fn all<W>(runtime: &Runtime, work: impl Fn(String) -> W) -> Outcome<()>
where
    W: Future<Output = Outcome<()>> + 'static,
{
    let set = LocalSet::new();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let mine: Vec<_> = (0..EACH).map(|_| work(format!("task/{task}"))).collect();
            set.spawn_local(async move {
                for each in mine {
                    each.await?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    runtime.block_on(async {
        set.await;
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}
