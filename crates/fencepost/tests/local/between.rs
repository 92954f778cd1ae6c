//! What others can see, and do, between two system calls of a claim.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Read,
    mem::MaybeUninit,
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use fencepost::blocking::wait;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

use crate::support::{LOCK, TestRoot, acquire_aside, status, until_waiting};

/// What the kernel tells about `path` while `work` runs: each event with the file's name.
fn events_during(path: &Path, wanted: WatchFlags, work: impl FnOnce()) -> Vec<(ReadFlags, OsString)> {
    let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    add_watch(&inotify, path, wanted).unwrap();
    work();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&inotify, &mut buffer);
    std::iter::from_fn(|| {
        let event = reader.next().ok()?;
        let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
        Some((event.events(), OsString::from_vec(name)))
    })
    .collect()
}

#[test]
fn a_ticket_is_never_seen_unlocked_or_empty() {
    let root = TestRoot::new();
    let locker = root.connect();
    let first = wait(locker.lock(LOCK).acquire()).unwrap().token().get();
    let dir = root.path().join(LOCK);
    let (next, done) = (AtomicU64::new(first + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let prober = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                let number = next.load(Ordering::Relaxed);
                let Ok(mut ticket) = File::open(dir.join(format!("{number:020}"))) else { continue };
                let is_dead = ticket.try_lock_shared().is_ok();
                assert!(!is_dead || ticket.metadata().unwrap().nlink() == 0, "a ticket without a lock");
                let mut record = String::new();
                ticket.read_to_string(&mut record).unwrap();
                assert!(record.starts_with('H') && record.ends_with("}\n"), "{record:?}");
                seen += 1;
            }
            seen
        });
        for _ in 0..5000 {
            let guard = wait(locker.lock(LOCK).acquire()).unwrap();
            assert_eq!(guard.token().get(), next.load(Ordering::Relaxed));
            drop(guard);
            next.fetch_add(1, Ordering::Relaxed);
        }
        done.store(true, Ordering::Relaxed);
        assert!(prober.join().unwrap() > 100);
    });
}

#[test]
fn the_counter_is_written_before_the_ticket_can_be_seen() {
    let root = TestRoot::new();
    let locker = root.connect();
    let last = wait(locker.lock(LOCK).acquire()).unwrap().token().get();
    let guard = std::cell::Cell::new(None);
    let wanted = WatchFlags::MODIFY | WatchFlags::CREATE;
    let events = events_during(&root.path().join(LOCK), wanted, || {
        guard.set(Some(wait(locker.lock(LOCK).acquire()).unwrap()));
    });
    let place = |flag, name: &str| events.iter().position(|event| event.0.contains(flag) && event.1 == name);
    let counted = place(ReadFlags::MODIFY, ".lock").unwrap();
    let linked = place(ReadFlags::CREATE, &format!("{:020}", last + 1)).unwrap();
    assert!(counted < linked, "{events:?}");
}

#[test]
fn those_who_look_wake_nobody() {
    let root = TestRoot::new();
    let (locker, other) = (root.connect(), root.connect());
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let ticket = root.path().join(LOCK).join(format!("{:020}", guard.token().get()));
    let wanted = WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | WatchFlags::MODIFY;
    let events = events_during(&ticket, wanted, || {
        status(&other);
        wait(other.list("")).unwrap();
        wait(other.lock(LOCK).try_acquire()).unwrap_err();
        wait(other.lock(LOCK).wait(Duration::from_millis(20)).acquire()).unwrap_err();
    });
    assert_eq!(events, []);
}

#[test]
fn two_who_look_at_a_dead_ticket_do_not_take_each_other_for_its_owner() {
    let root = TestRoot::new();
    let locker = root.connect();
    let token = wait(locker.lock(LOCK).acquire()).unwrap().token().get();
    let dead = root.path().join(LOCK).join(format!("{token:020}"));
    fs::write(&dead, "H").unwrap();
    let looking = File::open(&dead).unwrap();
    looking.lock_shared().unwrap();
    assert_eq!(status(&locker).holder, None);
    let guard = wait(locker.lock(LOCK).try_acquire()).unwrap();
    assert!(!dead.exists());
    wait(guard.release()).unwrap();
}

/// A claim that died while it made its ticket leaves a draft; one that died a moment later, both names of one file.
#[test]
fn what_a_dying_claim_leaves_behind_is_cleared_away() {
    let root = TestRoot::new();
    let locker = root.connect();
    let token = wait(locker.lock(LOCK).acquire()).unwrap().token().get();
    let dir = root.path().join(LOCK);
    fs::write(dir.join(".draft"), "W").unwrap();
    fs::hard_link(dir.join(".draft"), dir.join(format!("{token:020}"))).unwrap();
    let guard = wait(locker.lock(LOCK).try_acquire()).unwrap();
    assert_eq!(root.tickets().len(), 1);
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 1);
    wait(guard.release()).unwrap();
    wait(waiter.join().unwrap().release()).unwrap();
    assert_eq!(root.tickets(), [""; 0]);
}

/// The kernel tells of a close a moment before it drops the lock; here it is told of a close that drops nothing.
#[test]
fn a_death_that_is_told_too_early_is_looked_at_again() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let ticket = root.path().join(LOCK).join(format!("{:020}", guard.token().get()));
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 1);
    // Its watch begins a moment after its ticket stands in line.
    std::thread::sleep(Duration::from_millis(100));
    let events = events_during(&ticket, WatchFlags::OPEN | WatchFlags::CLOSE, || {
        drop(File::options().append(true).open(&ticket).unwrap());
        std::thread::sleep(Duration::from_millis(300));
    });
    let looks = events.iter().filter(|event| event.0.contains(ReadFlags::OPEN)).count();
    assert!(looks >= 5, "ours, one for the hint, and three glances: {events:?}");
    wait(guard.release()).unwrap();
    wait(waiter.join().unwrap().release()).unwrap();
}
