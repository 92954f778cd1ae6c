//! All backends side by side: what a lock costs, what it needs, and what is left of it when a server dies.
//!
//! "Slower but stronger", measured: the round trips through a proxy that adds 50 ms to each, the time without it, and whether
//! locks are still held and given when one server was killed.

use std::{net::SocketAddr, time::Duration};

use fencepost::{Guard, Locker, blocking::wait};
use fencepost_lab::{
    proxy::{Mode, Proxy},
    server::{
        etcd::{self, Etcd},
        redis::{self, Redis},
        zookeeper::{self, Ensemble},
    },
};

use crate::{
    outcome::Outcome,
    pairs::{median, now, time},
    places::Place,
    table::{Table, show},
};

/// What the proxy adds to a round trip.
const DETOUR: Duration = Duration::from_millis(50);

/// The lease of the lock that is held meanwhile: what counts is what becomes of it when the next renewals are due.
const LEASE: Duration = Duration::from_secs(6);

/// How long locks may pause when a server dies, before they count as lost.
const OUTAGE: Duration = Duration::from_secs(10);

pub(crate) fn measure(table: &mut Table, place: &Place, effort: usize) -> Outcome<()> {
    let head =
        ["backend", "servers", "acquire", "release", "both, p50", "held lock, one server killed", "new lock"];
    table.aside(head.map(str::to_owned).into());
    let both = show(pair_of(&wait(Locker::connect(&place.url()))?, effort)?);
    table
        .aside(["local:", "none", "no round trip", "no round trip", &both, "", ""].map(str::to_owned).into());
    if redis::installed().is_ok() {
        let mut server = Redis::start(redis::Options::default())?;
        let (addr, url) = (server.addr(), server.url());
        row(table, "redis", 1, addr, &url, effort, || Ok(server.kill()?))?;
    }
    if etcd::installed().is_ok() {
        let mut cluster = Etcd::start(etcd::Options { members: 3, ..etcd::Options::default() })?;
        let (addr, url) = (cluster.addr(0), cluster.url());
        let victim = cluster.leader().unwrap_or(0);
        row(table, "etcd", 3, addr, &url, effort, || Ok(cluster.kill(victim)?))?;
    }
    if zookeeper::installed().is_ok() {
        let mut ensemble = Ensemble::start(&zookeeper::Options::default())?;
        let (addr, url) = (ensemble.addrs()[0], ensemble.url());
        let victim = ensemble.leader()?;
        row(table, "zk", 3, addr, &url, effort, || Ok(ensemble.server(victim).kill()?))?;
    }
    Ok(())
}

fn row(
    table: &mut Table,
    scheme: &str,
    servers: usize,
    first: SocketAddr,
    url: &str,
    effort: usize,
    kill: impl FnOnce() -> Outcome<()>,
) -> Outcome<()> {
    let [acquire, release] = round_trips(scheme, first)?.map(|trips| format!("{trips:.2} round trips"));
    let locker = wait(Locker::connect(url))?;
    let both = show(pair_of(&locker, effort)?);
    let held = wait(locker.lock("held").ttl(LEASE).acquire())?;
    kill()?;
    let is_new = wait(locker.lock("new").patience(OUTAGE).wait(OUTAGE).acquire()).is_ok();
    let (held, new) =
        (if still_held(&held) { "kept" } else { "lost" }, if is_new { "given" } else { "none" });
    table.aside(vec![
        format!("{scheme}:"),
        servers.to_string(),
        acquire,
        release,
        both,
        held.into(),
        new.into(),
    ]);
    Ok(())
}

/// Whether a lock is held for longer than the lease that it had when the server died.
fn still_held(guard: &Guard) -> bool {
    let Some(before) = guard.deadline() else { return guard.is_held() };
    while guard.is_held() {
        if guard.deadline() > Some(before) && now() > before {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// How many round trips a free lock takes, and how many its release, on a connection that is open and has a lease.
fn round_trips(scheme: &str, server: SocketAddr) -> Outcome<[f64; 2]> {
    let proxy = Proxy::start(server)?;
    let locker = wait(Locker::connect(&format!("{scheme}://{}", proxy.addr())))?;
    wait(wait(locker.lock("trips").acquire())?.release())?;
    proxy.set_both(Mode::Delay(DETOUR / 2));
    let mut guard = None;
    // A name that nobody has used: what a backend makes for each lock must not cost a round trip.
    let acquire = time(|| {
        guard = Some(wait(locker.lock("trips/anew").acquire())?);
        Ok(())
    })?;
    let guard = guard.expect("it was acquired");
    let release = time(|| Ok(wait(guard.release())?))?;
    Ok([acquire, release].map(|took| took.as_secs_f64() / DETOUR.as_secs_f64()))
}

/// The median time of an acquire and its release.
fn pair_of(locker: &Locker, effort: usize) -> Outcome<Duration> {
    let pair = || time(|| Ok(wait(wait(locker.lock("pair").acquire())?.release())?));
    pair()?;
    let taken: Outcome<Vec<_>> = (0..50 * effort).map(|_| pair()).collect();
    Ok(median(taken?.into_iter()))
}
