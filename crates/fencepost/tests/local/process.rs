//! Several processes: killed, stopped, and their heirs.

use std::{fs::File, time::Duration};

use fencepost::{ErrorKind, blocking::wait};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    roles::Actor,
    support::{LOCK, SOON, TestRoot, acquire_aside, now, status, until, until_waiting},
};

#[test]
fn a_killed_holder_frees_the_lock_at_once() {
    let root = TestRoot::new();
    let locker = root.connect();
    for _ in 0..10 {
        let holder = Actor::start("hold", &root);
        holder.hear();
        let waiter = acquire_aside(locker.lock(LOCK));
        until_waiting(&locker, 1);
        let start = now();
        holder.signal(Signal::KILL);
        wait(waiter.join().unwrap().release()).unwrap();
        // The next look without an event would come after a second.
        assert!(start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
    }
    until("the directory is clean", || root.tickets().is_empty());
}

#[test]
fn killed_waiters_are_stepped_over() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let mut actors = Vec::new();
    for number in 0..4 {
        actors.push(Actor::start("hold", &root));
        until_waiting(&locker, number + 1);
    }
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 5);
    for killed in [2, 0, 3] {
        actors[killed].signal(Signal::KILL);
    }
    until_waiting(&locker, 2);
    let start = now();
    wait(guard.release()).unwrap();
    actors[1].hear();
    actors[1].tell("release");
    let guard = waiter.join().unwrap();
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    assert_eq!(root.tickets().len(), 1);
    wait(guard.release()).unwrap();
}

#[test]
fn a_stopped_waiter_is_passed_over_and_comes_back() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let mut stopped = Actor::start("hold", &root);
    until_waiting(&locker, 1);
    let behind = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 2);
    stopped.signal(Signal::STOP);
    let start = now();
    wait(guard.release()).unwrap();
    let guard = behind.join().unwrap();
    let after = start.elapsed();
    assert!(after >= Duration::from_millis(990), "too early: {after:?}");
    assert!(after < Duration::from_secs(4), "too late: {after:?}");
    stopped.signal(Signal::CONT);
    assert!(stopped.is_silent_for(Duration::from_millis(100)), "it must not believe in its old ticket");
    until_waiting(&locker, 1);
    let token = guard.token();
    wait(guard.release()).unwrap();
    assert!(stopped.hear().parse::<fencepost::Token>().unwrap() > token);
    stopped.tell("release");
    assert_eq!(stopped.hear(), "released");
}

#[test]
fn two_stopped_waiters_in_a_row_do_not_block_the_rest() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let stopped = [1, 2].map(|count| {
        let actor = Actor::start("hold", &root);
        until_waiting(&locker, count);
        actor
    });
    let behind = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 3);
    stopped.iter().for_each(|actor| actor.signal(Signal::STOP));
    let start = now();
    wait(guard.release()).unwrap();
    wait(behind.join().unwrap().release()).unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn a_stopped_holder_keeps_the_lock() {
    let root = TestRoot::new();
    let locker = root.connect();
    let mut holder = Actor::start("hold", &root);
    holder.hear();
    holder.signal(Signal::STOP);
    let error = wait(locker.lock(LOCK).wait(Duration::from_millis(2500)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.holder().unwrap().owner.as_ref().unwrap().pid, holder.pid());
    holder.signal(Signal::CONT);
    holder.tell("release");
    assert_eq!(holder.hear(), "released");
}

/// A process that is stopped while it changes the line keeps the directory lock; here it is kept from outside.
#[test]
fn a_busy_directory_lock_holds_nobody_past_its_deadline() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let inside = File::open(root.path().join(LOCK).join(".lock")).unwrap();
    inside.lock().unwrap();
    let limit = Duration::from_millis(150);
    let start = now();
    let crowd: Vec<_> = (0..50)
        .map(|_| {
            let lock = locker.lock(LOCK).wait(limit);
            std::thread::spawn(move || wait(lock.acquire()).unwrap_err().kind())
        })
        .collect();
    for claim in crowd {
        assert_eq!(claim.join().unwrap(), ErrorKind::Timeout);
    }
    let late = start.elapsed() - limit;
    assert!(late < Duration::from_secs(2), "{late:?}");
    let start = now();
    assert_eq!(wait(locker.force_unlock(LOCK)).unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(status(&locker).holder.unwrap().token, Some(guard.token()), "observers need no lock");

    let error = wait(locker.lock(LOCK).patience(Duration::from_millis(50)).try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // A release needs no directory lock.
    wait(guard.release()).unwrap();
    let next = acquire_aside(locker.lock(LOCK));
    drop(inside);
    wait(next.join().unwrap().release()).unwrap();
}

#[test]
fn a_forced_out_process_is_told() {
    let root = TestRoot::new();
    let locker = root.connect();
    let holder = Actor::start("lose", &root);
    holder.hear();
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 1);
    let start = now();
    let out = wait(locker.force_unlock(LOCK)).unwrap();
    assert_eq!(out.holder.unwrap().owner.unwrap().pid, holder.pid());
    let guard = waiter.join().unwrap();
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    assert!(guard.token() > out.token);
    assert_eq!(holder.hear(), "Gone");
    wait(guard.release()).unwrap();
}

#[test]
fn a_job_that_inherited_the_lock_keeps_it_when_its_supervisor_is_killed() {
    let root = TestRoot::new();
    let locker = root.connect();
    let supervisor = Actor::start("bequeath", &root);
    let job = Pid::from_raw(supervisor.hear().parse().unwrap()).unwrap();
    supervisor.signal(Signal::KILL);
    drop(supervisor);
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 1);
    assert!(status(&locker).holder.is_some());
    let start = now();
    kill_process(job, Signal::KILL).unwrap();
    wait(waiter.join().unwrap().release()).unwrap();
    assert!(start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
}

#[test]
fn a_released_lock_stays_until_the_job_that_inherited_it_ends() {
    let root = TestRoot::new();
    let locker = root.connect();
    let mut supervisor = Actor::start("bequeath", &root);
    let job = Pid::from_raw(supervisor.hear().parse().unwrap()).unwrap();
    supervisor.tell("release");
    assert_eq!(supervisor.hear(), "released");
    let error = wait(locker.lock(LOCK).try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    kill_process(job, Signal::KILL).unwrap();
    wait(wait(locker.lock(LOCK).wait(SOON).acquire()).unwrap().release()).unwrap();
    assert!(supervisor.ends_well());
}

/// In a process that starts no others: a child that is being forked holds a copy for a moment.
#[test]
fn a_lock_whose_copy_was_closed_is_free_after_its_release() {
    let root = TestRoot::new();
    let lender = Actor::start("lend", &root);
    assert_eq!(lender.hear(), "released");
    assert_eq!(root.tickets(), [""; 0]);
}

#[test]
fn a_child_that_is_given_nothing_inherits_nothing() {
    let root = TestRoot::new();
    let locker = root.connect();
    let _guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let inherited = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let inherited = inherited.filter(|path| path.starts_with(root.path())).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(inherited, 0);
}
