//! What the tests share: the servers, lockers, time, and what can be read from a server itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fencepost::driver::Host;
use fencepost::{Error, Guard, Locker, Moment, SystemHost, blocking};
use fencepost_lab::server::zookeeper::{Client, Ensemble, Options, ZooKeeper};

/// Long enough that nothing of a test runs out by itself.
pub(crate) const LONG: Duration = Duration::from_secs(20);

static SINGLE: Mutex<Option<ZooKeeper>> = Mutex::new(None);
static ENSEMBLE: Mutex<Option<Ensemble>> = Mutex::new(None);
static NAMES: AtomicU64 = AtomicU64::new(1);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

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

pub(crate) fn now() -> Moment {
    SystemHost.now()
}

/// Time that has to pass while nothing happens: it cannot be polled for.
pub(crate) fn pass(time: Duration) {
    thread::sleep(time);
}

/// Polls until a condition gives something.
#[track_caller]
pub(crate) fn until<T>(what: &str, within: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = now() + within;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(now() < end, "not within {within:?}: {what}");
        pass(ms(2));
    }
}

#[track_caller]
pub(crate) fn take(locker: &Locker, lock: &str, ttl: Duration) -> Guard {
    blocking::wait(locker.lock(lock).ttl(ttl).wait(LONG).acquire()).expect("the lock")
}

#[track_caller]
pub(crate) fn give(guard: Guard) {
    blocking::wait(guard.release()).expect("it was held");
}

/// When a guard is told of its loss, waited for.
#[track_caller]
pub(crate) fn told(guard: &Guard, within: Duration) -> Moment {
    until("the loss is told", within, || (!guard.is_held()).then(now))
}

/// An acquire on a thread of its own.
pub(crate) struct Waiter(JoinHandle<(Result<Guard, Error>, Moment)>);

impl Waiter {
    pub(crate) fn start(locker: &Locker, lock: &str, ttl: Duration, wait: Duration) -> Self {
        let lock = locker.lock(lock).ttl(ttl).wait(wait);
        Self(thread::spawn(move || {
            let outcome = blocking::wait(lock.acquire());
            (outcome, now())
        }))
    }

    /// What became of it, and when.
    pub(crate) fn outcome(self) -> (Result<Guard, Error>, Moment) {
        self.0.join().expect("it does not panic")
    }

    #[track_caller]
    pub(crate) fn granted(self) -> (Guard, Moment) {
        let (outcome, at) = self.outcome();
        (outcome.expect("the lock"), at)
    }
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
