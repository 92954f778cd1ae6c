//! What the tests of `local:` share.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use fencepost::{Guard, Lock, Locker, Status, blocking::wait};

/// The lock that most tests take. Its directory has the same name.
pub(crate) const LOCK: &str = "jobs";

/// Long enough for two busy cores.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A root of its own for one test.
pub(crate) struct TestRoot {
    dir: tempfile::TempDir,
}

impl TestRoot {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// For tests that count rather than store: ext4 slows down for minutes after ten thousand files were deleted.
    pub(crate) fn in_memory() -> Self {
        Self { dir: tempfile::tempdir_in("/dev/shm").unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(crate) fn url(&self) -> String {
        format!("local:{}", self.path().display())
    }

    pub(crate) fn connect(&self) -> Locker {
        wait(Locker::connect(&self.url())).unwrap()
    }

    /// The files in the lock's directory other than its lock file.
    pub(crate) fn tickets(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path().join(LOCK)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != ".lock").collect();
        names.sort();
        names
    }
}

#[allow(clippy::disallowed_methods, reason = "tests measure real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `happened`, or fails.
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = now();
    while !happened() {
        assert!(start.elapsed() < SOON, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn until_lost(guard: &Guard) {
    until("the loss is told", || !guard.is_held());
}

pub(crate) fn status(locker: &Locker) -> Status {
    wait(locker.inspect(LOCK)).unwrap()
}

pub(crate) fn until_waiting(locker: &Locker, count: usize) {
    until("the claims stand in line", || status(locker).waiters.len() == count);
}

/// Acquires on a thread of its own, so that a test can look on.
pub(crate) fn acquire_aside(lock: Lock) -> std::thread::JoinHandle<Guard> {
    std::thread::spawn(move || wait(lock.wait(2 * SOON).acquire()).unwrap())
}
