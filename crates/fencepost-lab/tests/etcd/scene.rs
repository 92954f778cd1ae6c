//! What the tests share: clusters, lockers, time, and what can be read from the servers themselves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencepost::etcd::{Client, Options};
use fencepost::{Guard, Locker, Moment, blocking};
use fencepost_lab::faulty::{Faults, etcd::Faulty};
use fencepost_lab::proxy::Proxy;
use fencepost_lab::server::etcd::{self, Etcd};

pub(crate) use crate::acts::{Waiter, give, ms, now, pass, take, until};
pub(crate) use crate::holder::host;

/// Long enough that nothing of a test runs out by itself.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A lease that runs out within a test; of one second a busy machine misses too much.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

/// What the tests of all backends call the server, and the lease of those tests.
pub(crate) type Server = Etcd;
pub(crate) const STEP: Duration = SHORT;

/// The three members that all tests of a cluster share; each of them mends what it breaks.
static CLUSTER: Mutex<Option<Etcd>> = Mutex::new(None);

/// A server that a test has for itself.
pub(crate) fn server() -> Etcd {
    server_with(etcd::Options::default())
}

pub(crate) fn server_with(options: etcd::Options) -> Etcd {
    Etcd::start(options).expect("etcd starts")
}

/// Runs a test on the three members, after those that came before it. What it leaves broken is mended.
pub(crate) fn on_the_cluster(test: fn(&mut Etcd)) {
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster =
        cluster.get_or_insert_with(|| server_with(etcd::Options { members: 3, ..etcd::Options::default() }));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(cluster)));
    for member in 0..cluster.size() {
        if cluster.resume(member).is_err() {
            cluster.revive(member).expect("the member starts again");
        }
    }
    until("a leader", LONG, || cluster.leader());
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Ends the members, and removes their files.
pub(crate) fn end_of_the_cluster() {
    *CLUSTER.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// A way to the server that can be cut, and its URL.
pub(crate) fn proxy(server: &Etcd) -> (Proxy, String) {
    let proxy = Proxy::start(server.addr(0)).expect("a port");
    let url = server.url_through(&[proxy.addr()]);
    (proxy, url)
}

pub(crate) fn locker(url: &str) -> Locker {
    blocking::wait(Locker::connect(url)).expect("the cluster answers")
}

/// A locker whose requests can be lost.
pub(crate) fn faulty(url: &str) -> (Locker, Arc<Faults>) {
    let options = Options::from_url(url.parse().expect("a url")).expect("options");
    let faults = Arc::default();
    let client = Arc::new(Client::new(options.clone(), host()));
    let transport = Arc::new(Faulty::new(client, host(), Arc::clone(&faults)));
    let driver = blocking::wait(fencepost::etcd::driver(transport, options, host())).expect("it connects");
    (Locker::from_parts(driver, host()), faults)
}

/// Waits until the guard tells its loss; answers when it did.
pub(crate) fn lost(guard: &Guard) -> Moment {
    blocking::wait(guard.lost());
    now()
}

/// The keys in a lock's line, oldest first, with their leases.
pub(crate) fn line(etcd: &Etcd, lock: &str) -> Vec<(String, i64)> {
    etcd.keys(&format!("{lock}/")).expect("etcd shows its keys")
}

/// Returns once this many stand in line behind the holder.
#[track_caller]
pub(crate) fn in_line(etcd: &Etcd, lock: &str, count: usize) {
    until("in line", LONG, || (line(etcd, lock).len() == count + 1).then_some(()));
}

/// As the tests of all backends call it.
#[track_caller]
pub(crate) fn nothing_stays(etcd: &Etcd, ttl: Duration) {
    nothing_is_left(etcd, ttl);
}

/// No key of a lock is left, at the latest when leases of this length are over.
#[track_caller]
pub(crate) fn nothing_is_left(etcd: &Etcd, ttl: Duration) {
    let end = now() + ttl + ms(2000);
    loop {
        let mut left = etcd.keys("").expect("etcd shows its keys");
        // The marks of claims that were given up go with their lease; the lineage stays.
        left.retain(|(key, lease)| *lease != 0 && !key.starts_with(".fencepost-left-"));
        if left.is_empty() {
            return;
        }
        assert!(now() < end, "left behind: {left:?}");
        pass(ms(50));
    }
}
