//! Ten thousand waiters in one process. In a process of its own, since it counts its threads and descriptors.

use std::{
    fs,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use fencepost::{Error, Guard, Locker, blocking::wait};

use crate::{
    roles::{Actor, say},
    support::{LOCK, TestRoot, now},
};

const CROWD: usize = 10_000;

type Acquire = Pin<Box<dyn Future<Output = Result<Guard, Error>>>>;

#[test]
fn ten_thousand_waiters_leave_nothing() {
    let root = TestRoot::in_memory();
    let mut actor = Actor::start("crowd", &root);
    assert_eq!(actor.hear_within(Duration::from_secs(40)), "done");
    assert!(actor.ends_well());
    assert_eq!(root.tickets(), [""; 0]);
}

/// The part of the process of its own.
pub(crate) fn play(url: &str) {
    let locker = wait(Locker::connect(url)).unwrap();
    let holder = wait(locker.lock(LOCK).acquire()).unwrap();
    let behind = std::thread::spawn({
        let lock = locker.lock(LOCK);
        move || drop(wait(lock.acquire()))
    });
    wait(async { while locker.inspect(LOCK).await.unwrap().waiters.is_empty() {} });
    let (threads, descriptors) = (count("task"), count("fd"));

    let start = now();
    let mut crowd: Vec<Acquire> = (0..CROWD).map(|_| stand_in_line(&locker)).collect();
    let lined_up = start.elapsed();
    // The one behind the holder may have been counted before it opened the process's only inotify instance.
    let used = count("fd") - descriptors;
    assert!((CROWD..CROWD + 5).contains(&used), "a claim has one descriptor: {used}");
    assert_eq!(count("task"), threads);
    assert_eq!(wait(locker.inspect(LOCK)).unwrap().waiters.len(), CROWD + 1);

    // Cancelled in an order that is random but the same in every run.
    let mut random = 42u64;
    while crowd.len() > CROWD / 10 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let victim = (random >> 33) as usize % crowd.len();
        drop(crowd.swap_remove(victim));
    }
    let thinned = start.elapsed();
    wait(holder.release()).unwrap();
    behind.join().unwrap();
    // Each takes the lock in its turn, and gives it back.
    let remaining = crowd.len();
    let mut grants = 0;
    wait(std::future::poll_fn(|context| {
        crowd.retain_mut(|acquire| match acquire.as_mut().poll(context) {
            Poll::Ready(guard) => {
                drop(guard.unwrap());
                grants += 1;
                false
            }
            Poll::Pending => true,
        });
        if crowd.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
    assert_eq!(grants, remaining);
    eprintln!("lined up {lined_up:?}, thinned {thinned:?}, all done {:?}", start.elapsed());
    wait(locker.close());
    // One thread less: the one that stood behind the holder is done.
    assert_eq!(count("task"), threads - 1);
    let left = count("fd");
    assert!(left < descriptors + 5, "{left} descriptors, {descriptors} before");
    say("done");
}

fn stand_in_line(locker: &Locker) -> Acquire {
    let lock = locker.lock(LOCK);
    let mut acquire: Acquire = Box::pin(async move { lock.acquire().await });
    let mut context = Context::from_waker(Waker::noop());
    assert!(acquire.as_mut().poll(&mut context).is_pending());
    acquire
}

fn count(what: &str) -> usize {
    fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}
