//! One process: order, wake-ups, and what is left behind.

use std::{fs::File, sync::mpsc::channel, time::Duration};

use fencepost::{ErrorKind, State, blocking::wait};

use crate::support::{LOCK, TestRoot, acquire_aside, now, status, until, until_lost, until_waiting};

#[test]
fn the_lock_is_handed_on_in_the_order_of_arrival() {
    let root = TestRoot::new();
    let locker = root.connect();
    let first = wait(locker.lock(LOCK).acquire()).unwrap();
    let (done, order) = channel();
    for number in 0..20 {
        let (lock, done) = (locker.lock(LOCK), done.clone());
        std::thread::spawn(move || {
            let guard = wait(lock.acquire()).unwrap();
            done.send((number, guard.token())).unwrap();
            wait(guard.release()).unwrap();
        });
        until_waiting(&locker, number + 1);
    }
    let mut last = first.token();
    let start = now();
    wait(first.release()).unwrap();
    for number in 0..20 {
        let (who, token) = order.recv().unwrap();
        assert_eq!(who, number);
        assert!(token > last);
        last = token;
    }
    assert!(start.elapsed() < Duration::from_millis(900), "a poll took part: {:?}", start.elapsed());
    until("the directory is clean", || root.tickets().is_empty());
}

#[test]
fn a_try_that_fails_names_the_holder_and_leaves_nothing() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).label("the one").acquire()).unwrap();
    let before = root.tickets();
    for _ in 0..3 {
        let error = wait(locker.lock(LOCK).try_acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let holder = error.holder().unwrap();
        assert_eq!(holder.token, Some(guard.token()));
        assert_eq!(holder.owner.as_ref().unwrap().label.as_deref(), Some("the one"));
    }
    assert_eq!(root.tickets(), before);
    wait(guard.release()).unwrap();
    assert_eq!(root.tickets(), [""; 0]);
    wait(wait(locker.lock(LOCK).try_acquire()).unwrap().release()).unwrap();
}

#[test]
fn a_wait_that_is_given_up_leaves_no_ticket_and_no_gap() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let error = wait(locker.lock(LOCK).wait(Duration::from_millis(30)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(root.tickets().len(), 1);

    let lock = locker.lock(LOCK);
    let mut dropped = Box::pin(async move { lock.acquire().await });
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(dropped.as_mut().poll(&mut context).is_pending());
    until_waiting(&locker, 1);
    let behind = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 2);
    drop(dropped);
    until_waiting(&locker, 1);
    let start = now();
    wait(guard.release()).unwrap();
    let guard = behind.join().unwrap();
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    wait(guard.release()).unwrap();
}

#[test]
fn a_dropped_guard_frees_the_lock_at_once() {
    let root = TestRoot::new();
    let locker = root.connect();
    for _ in 0..10 {
        let guard = wait(locker.lock(LOCK).try_acquire()).unwrap();
        assert_eq!(root.tickets().len(), 1);
        drop(guard);
        assert_eq!(root.tickets(), [""; 0]);
    }
}

#[test]
fn observers_see_everybody_and_remove_nobody() {
    let root = TestRoot::new();
    let (locker, other) = (root.connect(), root.connect());
    assert_eq!(status(&other).holder, None);
    let guard = wait(locker.lock(LOCK).label("h").acquire()).unwrap();
    let waiter = acquire_aside(locker.lock(LOCK).label("w"));
    until_waiting(&other, 1);
    // Foreign, half-written and dead files must neither be shown nor removed, nor must they stand in the way.
    let dir = root.path().join(LOCK);
    let dead = format!("{:020}", guard.token().get() - 1);
    for name in [dead.as_str(), "notes.txt", "123"] {
        std::fs::write(dir.join(name), "H{\"host").unwrap();
    }
    std::fs::create_dir(root.path().join("not-ours")).unwrap();
    let half = File::create(dir.join(format!("{:020}", guard.token().get() + 9))).unwrap();
    half.lock().unwrap();

    let seen = status(&other);
    let holder = seen.holder.clone().unwrap();
    assert_eq!(holder.token, Some(guard.token()));
    assert_eq!(holder.owner.unwrap().label.as_deref(), Some("h"));
    assert_eq!(seen.waiters.len(), 2);
    assert_eq!(seen.waiters[0].as_ref().unwrap().label.as_deref(), Some("w"));
    assert_eq!(seen.waiters[1], None);
    assert_eq!(wait(other.list("jo")).unwrap(), [seen]);
    assert_eq!(wait(other.list("x")).unwrap(), []);
    assert!(dir.join(dead).exists());

    drop(half);
    wait(guard.release()).unwrap();
    wait(waiter.join().unwrap().release()).unwrap();
    assert_eq!(wait(other.list("")).unwrap(), []);
}

#[test]
fn an_observer_is_told_of_every_change() {
    let root = TestRoot::new();
    let locker = root.connect();
    drop(wait(locker.lock(LOCK).acquire()).unwrap());
    let mut observer = root.connect().observe(LOCK).unwrap();
    assert_eq!(wait(observer.next()).unwrap().holder, None);
    let start = now();
    for _ in 0..5 {
        let guard = wait(locker.lock(LOCK).acquire()).unwrap();
        let held = wait(observer.next()).unwrap();
        assert_eq!(held.holder.unwrap().token, Some(guard.token()));
        wait(guard.release()).unwrap();
        assert_eq!(wait(observer.next()).unwrap().holder, None);
    }
    assert!(start.elapsed() < Duration::from_secs(2), "the observer polls: {:?}", start.elapsed());
}

#[test]
fn locks_whose_names_are_alike_are_different_locks() {
    let root = TestRoot::new();
    let locker = root.connect();
    let long = "x".repeat(254);
    let names = ["a", "ab", "a/b", "A", "a%2Fb", "é", "e\u{301}", &format!("{long}1"), &format!("{long}2")];
    let guards: Vec<_> = names.map(|name| wait(locker.lock(name).try_acquire()).unwrap()).into();
    let mut listed: Vec<_> = wait(locker.list("")).unwrap().into_iter().map(|status| status.lock).collect();
    listed.sort();
    let mut sorted = names;
    sorted.sort_unstable();
    assert_eq!(listed.iter().map(|lock| lock.as_str()).collect::<Vec<_>>(), sorted);
    for (name, guard) in names.iter().zip(guards) {
        assert_eq!(wait(locker.lock(name).try_acquire()).unwrap_err().kind(), ErrorKind::Timeout);
        wait(guard.release()).unwrap();
    }
}

#[test]
fn many_names_need_few_descriptors() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guards: Vec<_> = (0..300).map(|n| wait(locker.lock(format!("n/{n}")).acquire()).unwrap()).collect();
    for (n, guard) in guards.iter().enumerate() {
        let error = wait(locker.lock(format!("n/{n}")).try_acquire()).unwrap_err();
        assert_eq!(error.holder().unwrap().token, Some(guard.token()));
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let target = std::fs::read_link(entry.unwrap().path()).ok()?;
        target.starts_with(root.path()).then_some(())
    });
    assert!(open.count() <= 300 + 2 * 64 + 1);
    for guard in guards {
        wait(guard.release()).unwrap();
    }
}

#[test]
fn a_forced_out_holder_is_told_and_the_token_rises() {
    let root = TestRoot::new();
    let (locker, operator) = (root.connect(), root.connect());
    let nobody = wait(operator.force_unlock(LOCK)).unwrap();
    assert_eq!(nobody.holder, None);
    let guard = wait(locker.lock(LOCK).label("out").acquire()).unwrap();
    assert!(guard.token() > nobody.token);
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 1);
    let out = wait(operator.force_unlock(LOCK)).unwrap();
    assert_eq!(out.holder.unwrap().owner.unwrap().label.as_deref(), Some("out"));
    assert!(out.token > guard.token());
    until_lost(&guard);
    assert_eq!(wait(guard.release()).unwrap_err().kind(), ErrorKind::Lost);
    // The waiter's number is older than the operator's token: it must not get the lock with it.
    let next = waiter.join().unwrap();
    assert!(next.token() > out.token);
    assert!(wait(operator.force_unlock(LOCK)).unwrap().token > next.token());
}

#[test]
fn a_holder_that_is_watched_and_the_next_in_line_are_told_at_once() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 1);
    // The engine begins to watch a holder within a second.
    std::thread::sleep(Duration::from_millis(1300));
    let start = now();
    wait(locker.force_unlock(LOCK)).unwrap();
    until_lost(&guard);
    // The one who was forced out still has its ticket open.
    let next = waiter.join().unwrap();
    assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
    drop(guard);
    wait(next.release()).unwrap();
}

#[test]
fn no_wake_up_is_lost_between_the_look_and_the_wait() {
    let root = TestRoot::new();
    let locker = root.connect();
    let start = now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..1000).for_each(|_| drop(wait(locker.lock(LOCK).acquire()).unwrap())));
        }
    });
    // A lost one is made up for after a second.
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
}

#[test]
fn a_release_tells_the_truth_also_before_the_holder_is_told() {
    let root = TestRoot::new();
    let (locker, operator) = (root.connect(), root.connect());
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    wait(operator.force_unlock(LOCK)).unwrap();
    assert_eq!(guard.changes().hold().state, State::Held, "the watch begins later");
    assert_eq!(wait(guard.release()).unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn a_deleted_root_is_a_loss_and_is_made_again() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 1);
    // Moved away first: the waiter is told of the first unlink, and would work in the directory that is being deleted.
    let away = root.path().with_file_name("away");
    std::fs::rename(root.path(), &away).unwrap();
    std::fs::remove_dir_all(away).unwrap();
    until_lost(&guard);
    let next = waiter.join().unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(root.connect().about().lineage, *guard.lineage());
}

/// A directory can be locked like a ticket, and to read it fails.
#[test]
fn a_ticket_that_cannot_be_read_is_taken_for_the_holders() {
    let root = TestRoot::new();
    let locker = root.connect();
    let token = wait(locker.lock(LOCK).acquire()).unwrap().token();
    let ticket = root.path().join(LOCK).join(format!("{:020}", token.get()));
    std::fs::create_dir(&ticket).unwrap();
    let unreadable = std::fs::File::open(&ticket).unwrap();
    unreadable.lock().unwrap();
    let limit = Duration::from_millis(1500);
    let error = wait(locker.lock(LOCK).wait(limit).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(error.holder().unwrap().token, None);
    drop(unreadable);
    wait(wait(locker.lock(LOCK).acquire()).unwrap().release()).unwrap();
}

/// As `cp -al` does, which keeps the count of links above zero when a ticket is removed.
fn back_up(root: &TestRoot, name: &str) {
    let backup = root.path().with_file_name(format!("backup of {name}"));
    std::fs::hard_link(root.path().join(LOCK).join(name), backup).unwrap();
}

#[test]
fn a_holder_whose_ticket_was_backed_up_is_forced_out_all_the_same() {
    let root = TestRoot::new();
    let (locker, operator) = (root.connect(), root.connect());
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    back_up(&root, &root.tickets()[0]);
    wait(operator.force_unlock(LOCK)).unwrap();
    until_lost(&guard);
    let next = wait(operator.lock(LOCK).acquire()).unwrap();
    back_up(&root, &root.tickets()[0]);
    wait(operator.force_unlock(LOCK)).unwrap();
    assert_eq!(wait(next.release()).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(wait(guard.release()).unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn a_waiter_whose_ticket_was_backed_up_and_removed_stands_in_line_again() {
    let root = TestRoot::new();
    let (locker, other) = (root.connect(), root.connect());
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let waiter = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 1);
    let ticket = root.tickets().pop().unwrap();
    back_up(&root, &ticket);
    std::fs::remove_file(root.path().join(LOCK).join(ticket)).unwrap();
    wait(guard.release()).unwrap();
    let guard = waiter.join().unwrap();
    let error = wait(other.lock(LOCK).try_acquire()).unwrap_err();
    assert_eq!(error.holder().unwrap().token, Some(guard.token()));
    wait(guard.release()).unwrap();
}
