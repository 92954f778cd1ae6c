//! What the tests share: the servers, lockers, time, and what can be read from a server itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost::{Guard, Locker, Moment, blocking};
use fencepost_lab::server::zookeeper::{Client, Ensemble, Options, ZooKeeper};

pub(crate) use crate::acts::{Waiter, give, ms, now, pass, take, until};

/// Long enough that nothing of a test runs out by itself.
pub(crate) const LONG: Duration = Duration::from_secs(20);

static SINGLE: Mutex<Option<ZooKeeper>> = Mutex::new(None);
static ENSEMBLE: Mutex<Option<Ensemble>> = Mutex::new(None);
static NAMES: AtomicU64 = AtomicU64::new(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the single server is, which all tests share and none stops.
pub(crate) fn single() -> Place {
    let mut server = lock(&SINGLE);
    let server =
        server.get_or_insert_with(|| ZooKeeper::start(Options::default()).expect("zookeeper starts"));
    Place { addr: server.addr() }
}

/// The ensemble, for one test at a time.
pub(crate) fn with_ensemble(test: impl FnOnce(&mut Ensemble)) {
    let mut slot = lock(&ENSEMBLE);
    let ensemble = slot.get_or_insert_with(|| {
        // A tick of a fifth of a second, and four seconds until a follower that is cut off knows it.
        let options = Options { tick: ms(200), ..Options::default() };
        Ensemble::start(&options).expect("three servers start")
    });
    // Also after a test that failed half way through.
    ensemble.heal().expect("the ensemble is whole");
    test(ensemble);
}

/// Ends the servers, with their files.
pub(crate) fn finish() {
    *lock(&SINGLE) = None;
    *lock(&ENSEMBLE) = None;
}

/// A server that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) addr: std::net::SocketAddr,
}

impl Place {
    pub(crate) fn url(self) -> String {
        format!("zk://{}", self.addr)
    }

    pub(crate) fn client(self) -> Client {
        Client::connect(self.addr, LONG).expect("the server takes a client")
    }
}

/// A lock's name that no other test has.
pub(crate) fn name(label: &str) -> String {
    format!("{label}-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// Where a lock lies whose name needs no escape.
pub(crate) fn path(lock: &str) -> String {
    format!("/fencepost/locks/{lock}")
}

pub(crate) fn locker(url: &str) -> Locker {
    blocking::wait(Locker::connect(url)).expect("a server answers")
}

/// When a guard is told of its loss, waited for.
#[track_caller]
pub(crate) fn told(guard: &Guard, within: Duration) -> Moment {
    until("the loss is told", within, || (!guard.is_held()).then(now))
}

/// Returns once this many stand in line, the holder included.
#[track_caller]
pub(crate) fn in_line(client: &mut Client, lock: &str, count: usize) -> Vec<String> {
    until("in line", LONG, || {
        let line = client.line(&path(lock)).expect("it answers");
        (line.len() == count).then_some(line)
    })
}

/// Nobody stands in line for so long: nothing was left behind, and nothing comes late.
#[track_caller]
pub(crate) fn stays_empty(client: &mut Client, lock: &str, time: Duration) {
    let end = now() + time;
    while now() < end {
        let line = client.line(&path(lock)).expect("it answers");
        assert!(line.is_empty(), "left behind: {line:?}");
        pass(ms(10));
    }
}
