//! A free lock, taken and given back.

use std::time::Duration;

use fencepost::{Locker, blocking};
use fencepost_lab::{
    proxy::{Mode, Proxy},
    server::etcd::Etcd,
};

use super::bare::Bare;
use crate::{
    outcome::Outcome,
    pairs::{in_turn, median, time},
    table::{Table, show},
};

const REPEATED: u32 = 10;

/// What a proxy adds to each round trip: so much that all else is small beside it.
const TRIP: Duration = Duration::from_millis(50);

pub(super) fn measure(table: &mut Table, cluster: &Etcd, effort: usize) -> Outcome<()> {
    let locker = blocking::wait(Locker::connect(&cluster.url()))?;
    let bare = Bare::record(&cluster.url())?;
    let floor = || (0..REPEATED).try_for_each(|_| blocking::wait(bare.both()));
    let ours = || {
        for _ in 0..REPEATED {
            let guard = blocking::wait(locker.lock("alone").acquire())?;
            blocking::wait(guard.release())?;
        }
        Ok(())
    };
    let pairs = in_turn(10 * effort, floor, ours)?.each_of(REPEATED);
    table.pairs("acquire and release, etcd", "the same 2 transactions", &pairs, Some(1.15));
    Ok(())
}

/// How many round trips each step takes.
pub(super) fn trips(table: &mut Table, cluster: &Etcd, effort: usize) -> Outcome<()> {
    let proxy = Proxy::start(cluster.addr(0))?;
    let locker = blocking::wait(Locker::connect(&cluster.url_through(&[proxy.addr()])))?;
    let near = blocking::wait(Locker::connect(&cluster.url()))?;
    blocking::wait(blocking::wait(locker.lock("trips").acquire())?.release())?;
    proxy.set_both(Mode::Delay(TRIP / 2));
    let (mut acquires, mut releases, mut grants) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 * effort.min(5) {
        let mut guard = None;
        acquires.push(time(|| {
            guard = Some(blocking::wait(locker.lock("trips").acquire())?);
            Ok(())
        })?);
        let guard = guard.ok_or("it was taken")?;
        releases.push(time(|| Ok(blocking::wait(guard.release())?))?);
        // From a release nearby to the grant of one who waits behind the proxy: told, asked, answered.
        let held = blocking::wait(near.lock("trips").acquire())?;
        let waiting = locker.lock("trips");
        let waiter = std::thread::spawn(move || {
            blocking::wait(waiting.acquire()).map(|guard| (guard, crate::pairs::now()))
        });
        while blocking::wait(near.inspect("trips"))?.waiters.is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(TRIP * 3);
        let released = crate::pairs::now();
        blocking::wait(held.release())?;
        let (guard, granted) = waiter.join().map_err(|_| "no panic")??;
        grants.push(granted.since(released));
        blocking::wait(guard.release())?;
    }
    for (what, times, goal) in [
        ("acquire, a round trip of 50 ms, etcd", acquires, 1.2),
        ("release, a round trip of 50 ms, etcd", releases, 1.2),
        ("told and granted after a wait, 50 ms, etcd", grants, 1.7),
    ] {
        let took = median(times.into_iter());
        let ratio = took.as_secs_f64() / TRIP.as_secs_f64();
        let met = if ratio <= goal { "met" } else { "not met" };
        table.row([
            what.into(),
            "1 round trip".into(),
            show(TRIP),
            show(took),
            format!("{ratio:.2}"),
            format!("at most {goal}: {met}"),
        ]);
    }
    Ok(())
}
