//! Those who hold: what is taken from them they learn at once, and what is theirs is not taken by mistake.

use fencepost::gate::{MemoryGate, Pass};
use fencepost::{ErrorKind, blocking};
use fencepost_lab::faulty::Fault;
use fencepost_lab::server::etcd::Options;

use crate::Tests;
use crate::holder::Holder;
use crate::scene::{
    LONG, SHORT, Waiter, faulty, give, in_line, line, locker, lost, ms, nothing_is_left, now, pass, server,
    server_with, take,
};

pub(crate) const TESTS: Tests = &[
    ("an_operators_deletion_is_told_within_a_second", deleted),
    ("a_revoked_lease_is_told_within_a_second", revoked),
    ("a_holder_paused_past_its_lease_learns_on_resume", paused),
    ("a_delete_that_is_repeated_leaves_the_next_holders_key", repeated_delete),
    ("an_enter_that_comes_after_all_is_refused", late_enter),
    ("a_proclamation_that_comes_late_brings_nothing_back", late_proclamation),
    ("the_term_that_was_granted_is_used_and_shown", granted_term),
    ("two_locks_of_one_locker_have_two_keys", two_keys),
    ("many_locks_are_renewed_as_one", as_one),
    ("a_cluster_that_went_back_is_refused", went_back),
    ("a_cluster_that_was_rebuilt_is_refused", rebuilt),
];

fn deleted() {
    let server = server();
    let holder = locker(&server.url());
    for waits in [false, true] {
        // A lock got at once is attended to a moment later; one got after a wait is watched already.
        let before = waits.then(|| take(&locker(&server.url()), "x", LONG));
        let next = Waiter::start(&holder, "x", LONG, LONG);
        if let Some(before) = before {
            in_line(&server, "x", 1);
            give(before);
        }
        let (guard, _) = next.granted();
        pass(if waits { ms(50) } else { ms(1500) });
        let (key, _) = line(&server, "x").remove(0);
        server.delete(&key).expect("it answers");
        let at = now();
        let told = lost(&guard);
        assert!(told.since(at) < ms(1000), "told after {:?}", told.since(at));
        let error = blocking::wait(guard.release()).expect_err("it was deleted");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    nothing_is_left(&server, SHORT);
}

/// A stalled leader once ended leases that were renewed all the while (etcd#15247).
fn revoked() {
    let server = server();
    let (holder, other) = (locker(&server.url()), locker(&server.url()));
    let (one, two) = (take(&holder, "x", LONG), take(&holder, "y", LONG));
    let next = Waiter::start(&other, "x", LONG, LONG);
    in_line(&server, "x", 1);
    pass(ms(1500));
    server.revoke(line(&server, "x")[0].1).expect("it answers");
    let at = now();
    for guard in [&one, &two] {
        let told = lost(guard);
        assert!(told.since(at) < ms(1000), "told after {:?}", told.since(at));
    }
    let (guard, _) = next.granted();
    assert!(guard.token() > one.token());
    // The locker goes on, on another lease.
    give(take(&holder, "y", LONG));
    give(guard);
    nothing_is_left(&server, SHORT);
}

/// The process is stopped, its lease runs out, and another one takes the lock: when it goes on it knows at once, and a gate that
/// has seen the next holder does not let it in.
fn paused() {
    let server = server();
    let other = locker(&server.url());
    let mut stopped = Holder::start(&server.url(), "x", SHORT);
    let stale = blocking::wait(stopped.held());
    let next = Waiter::start(&other, "x", LONG, LONG);
    in_line(&server, "x", 1);
    stopped.pause();
    let (guard, got) = next.granted();
    pass(ms(500));
    let resumed = now();
    stopped.resume();
    let loss = blocking::wait(stopped.lost());
    assert!(loss.told.since(resumed) < ms(500), "told after {:?}", loss.told.since(resumed));
    let deadline = loss.deadline.expect("a lease has an end");
    assert!(deadline < got, "believed until {deadline:?}, and the next had it at {got:?}");
    let gate = MemoryGate::new(0);
    gate.open(&guard).expect("the latest token").update(|value| *value += 1).expect("it is let in");
    let error = gate.open(stale).map(drop).expect_err("it is stale");
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    give(guard);
}

/// etcd#22082: an unlock by name, or a repeated one, hits a newer lock of the same session.
fn repeated_delete() {
    let server = server();
    let ((locker, faults), other) = (faulty(&server.url()), locker(&server.url()));
    for same in [true, false] {
        let first = take(&locker, "x", LONG);
        faults.arm("leave", Fault::Repeat(ms(400)));
        give(first);
        let next = take(if same { &locker } else { &other }, "x", LONG);
        pass(ms(1200));
        assert!(next.is_held());
        assert_eq!(line(&server, "x").len(), 1, "the repeated delete hit another claim's key");
        give(next);
        // Carried out, its reply lost, and asked again when somebody else holds the lock.
        let first = take(&locker, "x", LONG);
        faults.arm("leave", Fault::LoseReply);
        drop(first);
        let next = take(if same { &locker } else { &other }, "x", LONG);
        pass(ms(6000));
        assert!(next.is_held());
        assert_eq!(line(&server, "x").len(), 1, "a delete that was asked again hit another claim's key");
        give(next);
    }
    nothing_is_left(&server, SHORT);
}

/// The lease goes on with another lock: a late enter could stand in line on it for ever, for nobody.
fn late_enter() {
    let server = server();
    let ((locker, faults), other) = (faulty(&server.url()), locker(&server.url()));
    let kept = take(&locker, "kept", SHORT);
    // Later than one request's limit, which is half a lease; before and after the lease's first end.
    for by in [ms(1500), ms(3500)] {
        faults.arm("enter", Fault::HoldBack(by));
        let (outcome, _) = Waiter::start(&locker, "x", SHORT, ms(300)).outcome();
        outcome.expect_err("it has waited for an answer");
        let end = now() + by + ms(500);
        while now() < end {
            assert_eq!(line(&server, "x"), [], "a ghost stands in line");
            pass(ms(20));
        }
        give(take(&other, "x", LONG));
    }
    assert!(kept.is_held());
    give(kept);
}

fn late_proclamation() {
    let server = server();
    let ((locker, faults), other) = (faulty(&server.url()), locker(&server.url()));
    let leadership = blocking::wait(locker.election("office").ttl(SHORT).value("first").campaign())
        .expect("nobody else runs");
    faults.arm("proclaim", Fault::HoldBack(ms(2000)));
    let unknown = blocking::wait(leadership.proclaim("late"));
    assert!(unknown.is_err(), "{unknown:?}");
    blocking::wait(leadership.proclaim("second")).expect("it leads");
    let end = now() + ms(2500);
    while now() < end {
        let leader =
            blocking::wait(other.election("office").leader()).expect("it answers").expect("a leader");
        assert_eq!(leader.value(), Some("second"));
        pass(ms(50));
    }
    // One whose reply was lost is no obstacle for the next.
    faults.arm("proclaim", Fault::LoseReply);
    let _ = blocking::wait(leadership.proclaim("third"));
    blocking::wait(leadership.proclaim("fourth")).expect("it leads");
    let leader = blocking::wait(other.election("office").leader()).expect("it answers").expect("a leader");
    assert_eq!((leader.value(), leader.term), (Some("fourth"), Some(leadership.term())));
    blocking::wait(leadership.resign()).expect("it leads");
}

/// The server's least lease is longer than what was asked for.
fn granted_term() {
    let extra = vec!["--election-timeout=2000".into()];
    let server = server_with(Options { extra, ..Options::default() });
    let holder = locker(&server.url());
    let before = now();
    let guard = take(&holder, "x", ms(100));
    let (left, after) = (guard.deadline().expect("a lease has an end"), now());
    assert!(
        left.since(before) > ms(2500) && left < after + ms(3000),
        "the deadline is {:?} away",
        left.since(before)
    );
    let status = blocking::wait(holder.inspect("x")).expect("it answers");
    let shown = status.holder.and_then(|holder| holder.expires_in).expect("it is shown");
    assert!(shown > ms(1000) && shown <= ms(3000), "shown: {shown:?}");
    pass(ms(2000));
    assert!(guard.is_held());
    give(guard);
}

/// Two locks in one process must not share one key and both "hold".
fn two_keys() {
    let server = server();
    let holder = locker(&server.url());
    let guard = take(&holder, "x", LONG);
    let error = blocking::wait(holder.lock("x").ttl(LONG).try_acquire()).expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let next = Waiter::start(&holder, "x", LONG, LONG);
    in_line(&server, "x", 1);
    let line = line(&server, "x");
    assert!(line[0].0 != line[1].0 && line[0].1 == line[1].1, "{line:?}");
    give(guard);
    give(next.granted().0);
    assert!(take(&holder, "a", LONG).is_held() && take(&holder, "ab", LONG).is_held());
}

/// One lease carries all locks of a locker: a thousand of them live as long as it does.
fn as_one() {
    let server = server();
    let holder = locker(&server.url());
    let guards: Vec<_> = (0..300).map(|number| take(&holder, &format!("many-{number}"), SHORT)).collect();
    let leases: std::collections::BTreeSet<i64> =
        server.keys("many-").expect("it answers").into_iter().map(|(_, lease)| lease).collect();
    assert_eq!(leases.len(), 1);
    pass(SHORT * 2);
    assert!(guards.iter().all(fencepost::Guard::is_held));
    guards.into_iter().for_each(give);
    nothing_is_left(&server, SHORT);
}

/// Everything is gone and counts from the start, in a cluster of the same id: tokens would repeat.
fn went_back() {
    let mut server = server();
    let before = locker(&server.url());
    for _ in 0..20 {
        give(take(&before, "x", LONG));
    }
    let guard = take(&before, "x", SHORT);
    let (lineage, token) = (guard.lineage().clone(), guard.token());
    server.restart_empty(true).expect("it starts again");
    lost(&guard);
    let after = locker(&server.url());
    let fresh = take(&after, "x", LONG);
    assert!(fresh.token() < token && *fresh.lineage() != lineage, "{} {}", fresh.lineage(), fresh.token());
    let error = blocking::wait(before.lock("y").ttl(LONG).patience(ms(2000)).acquire())
        .expect_err("its tokens would repeat");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let gate = MemoryGate::new(0);
    let pass = Pass::from(token).with_lineage(lineage);
    gate.open(pass).expect("the first");
    let error = gate.open(&fresh).map(drop).expect_err("tokens of another source");
    assert_eq!(error.kind(), ErrorKind::OtherLineage, "{error}");
}

fn rebuilt() {
    let mut server = server();
    let before = locker(&server.url());
    let guard = take(&before, "x", SHORT);
    server.restart_empty(false).expect("it starts again");
    lost(&guard);
    let error = blocking::wait(before.lock("x").ttl(SHORT).patience(ms(2000)).acquire())
        .expect_err("another cluster");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("another"), "{error}");
    give(take(&locker(&server.url()), "x", LONG));
}
