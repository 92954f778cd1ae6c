//! Those who wait: each fault under which a client of etcd's was once granted wrongly, forgotten, or made to fail.

use std::sync::Arc;

use fencepost::ErrorKind;
use fencepost_lab::history::Recorder;
use fencepost_lab::proxy::{Direction, Mode};

use crate::Tests;
use crate::holder::Holder;
use crate::player::{Player, in_order};
use crate::scene::{
    LONG, SHORT, Waiter, give, in_line, line, locker, lost, ms, nothing_is_left, now, pass, proxy, server,
    take, until,
};

pub(crate) const TESTS: Tests = &[
    ("a_revoked_lease_is_told_at_once", revoked),
    ("a_grant_on_a_dead_lease_is_no_grant", dead_lease),
    ("a_compacted_history_fails_nobody", compacted),
    ("streams_that_break_lose_no_turn", broken_streams),
    ("a_silent_stream_is_noticed", silent_stream),
    ("a_deletion_between_the_look_and_the_watch_is_seen", no_gap),
    ("a_dead_waiter_blocks_nobody_for_long", dead_waiter),
    ("a_waiter_that_gives_up_leaves_nothing", gives_up),
    ("a_hundred_come_in_turn", in_turn),
];

/// etcd#19597: a waiter did not notice its own end until the one before it went.
fn revoked() {
    let server = server();
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", LONG);
    let next = Waiter::start(&b, "x", LONG, LONG);
    in_line(&server, "x", 1);
    let (key, lease) = line(&server, "x").remove(1);
    // Its watch is on its way or there by now: either way nothing may be missed.
    server.revoke(lease).expect("it answers");
    let at = now();
    let back = until("back in line", LONG, || line(&server, "x").into_iter().nth(1));
    assert!(now().since(at) < ms(1500), "back in line after {:?}", now().since(at));
    assert!(back.0 != key && back.1 != lease, "a dead claim was revived: {back:?}");
    give(held);
    let (guard, _) = next.granted();
    assert!(guard.is_held());
    give(guard);
    nothing_is_left(&server, SHORT);
}

/// etcd#11456, and what Jepsen found: the lease dies while its owner cannot be told, and the one before it goes.
fn dead_lease() {
    let server = server();
    let (proxy, url) = proxy(&server);
    let (a, b) = (locker(&server.url()), locker(&url));
    for mode in [Mode::Hold, Mode::Swallow] {
        let held = take(&a, "x", LONG);
        let next = Waiter::start(&b, "x", LONG, LONG);
        in_line(&server, "x", 1);
        proxy.set(Direction::ToClient, mode);
        server.revoke(line(&server, "x")[1].1).expect("it answers");
        let third = Waiter::start(&a, "x", LONG, LONG);
        in_line(&server, "x", 1);
        give(held);
        let (third, _) = third.granted();
        if mode == Mode::Swallow {
            proxy.cut();
            proxy.heal().expect("the port is still ours");
        }
        proxy.set(Direction::ToClient, Mode::Pass);
        pass(ms(1500));
        assert!(third.is_held());
        let token = third.token();
        give(third);
        let (guard, _) = next.granted();
        assert!(guard.token() > token && guard.is_held());
        give(guard);
    }
    nothing_is_left(&server, SHORT);
}

/// The server has forgotten where the watches stood: the line is looked up, no acquire fails, and no key stays.
fn compacted() {
    let server = server();
    let (proxy, url) = proxy(&server);
    let (a, b) = (locker(&server.url()), locker(&url));
    let (held, other) = (take(&a, "x", LONG), take(&b, "kept", LONG));
    let next = Waiter::start(&b, "x", LONG, LONG);
    in_line(&server, "x", 1);
    // Long enough for the stream to have proved itself, and for the holder to be attended to.
    pass(ms(1500));
    proxy.cut();
    server.compact().expect("it answers");
    give(held);
    server.compact().expect("it answers");
    proxy.heal().expect("the port is still ours");
    let healed = now();
    let (guard, at) = next.granted();
    assert!(at.since(healed) < ms(2500), "granted after {:?}", at.since(healed));
    assert!(other.is_held());
    // The holder's own watch was lost with the history: it is made anew.
    pass(LONG / 3 + ms(500));
    let (key, _) = line(&server, "kept").remove(0);
    server.delete(&key).expect("it answers");
    let deleted = now();
    assert!(lost(&other).since(deleted) < ms(1000));
    give(guard);
    nothing_is_left(&server, SHORT);
}

fn broken_streams() {
    let server = server();
    let (proxy, url) = proxy(&server);
    let (a, b) = (locker(&server.url()), locker(&url));
    // Young streams and old ones, short cuts and long.
    for (before, cut) in [(100, 0), (1500, 0), (1500, 400), (200, 1200)] {
        let held = take(&a, "x", LONG);
        let next = Waiter::start(&b, "x", LONG, LONG);
        in_line(&server, "x", 1);
        pass(ms(before));
        proxy.cut();
        give(held);
        pass(ms(cut));
        proxy.heal().expect("the port is still ours");
        let healed = now();
        let (guard, at) = next.granted();
        assert!(at.since(healed) < ms(2500), "{before} {cut}: granted after {:?}", at.since(healed));
        give(guard);
    }
    nothing_is_left(&server, SHORT);
}

/// Nothing comes any more, and nothing says so: the stream's probes, or the renewals on the same connection, find it out.
fn silent_stream() {
    let server = server();
    let (proxy, url) = proxy(&server);
    let (a, b) = (locker(&server.url()), locker(&url));
    let held = take(&a, "x", LONG);
    let next = Waiter::start(&b, "x", ms(6000), LONG);
    in_line(&server, "x", 1);
    pass(ms(1500));
    proxy.set(Direction::ToClient, Mode::Swallow);
    give(held);
    pass(ms(500));
    // What was swallowed is gone: that connection will never speak again, but others can.
    let old = proxy.connections();
    until("another connection", LONG, || (proxy.connections() > old).then_some(()));
    proxy.set(Direction::ToClient, Mode::Pass);
    let healed = now();
    let (guard, at) = next.granted();
    assert!(at.since(healed) < ms(8000), "granted after {:?}", at.since(healed));
    give(guard);
}

/// python-etcd3#1107: two clients that pass a lock on as fast as they can never miss each other's release.
fn no_gap() {
    let server = server();
    let (recorder, events) = Recorder::memory();
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let player = Player::new(&lane.to_string(), locker(&server.url()), &recorder);
            scope.spawn(move || {
                for _ in 0..60 {
                    let held = player.acquire("x", LONG, LONG).expect("the lock");
                    player.release(held).expect("it was held");
                }
            });
        }
    });
    assert_eq!(in_order(&events), 240);
    nothing_is_left(&server, SHORT);
}

fn dead_waiter() {
    let server = server();
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", LONG);
    let mut dead = Holder::start(&server.url(), "x", SHORT);
    in_line(&server, "x", 1);
    let next = Waiter::start(&b, "x", LONG, LONG);
    in_line(&server, "x", 2);
    dead.kill();
    let killed = now();
    give(held);
    let (guard, at) = next.granted();
    assert!(at.since(killed) < SHORT + ms(2500), "granted after {:?}", at.since(killed));
    give(guard);
}

fn gives_up() {
    let server = server();
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", LONG);
    let (outcome, _) = Waiter::start(&b, "x", LONG, ms(300)).outcome();
    let error = outcome.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(error.holder().and_then(|holder| holder.token), Some(held.token()));
    until("out of line", LONG, || (line(&server, "x").len() == 1).then_some(()));
    assert!(held.is_held());
    give(held);
    nothing_is_left(&server, SHORT);
}

fn in_turn() {
    const COUNT: usize = 100;
    let server = server();
    let lockers: Vec<_> = (0..4).map(|_| locker(&server.url())).collect();
    let held = take(&lockers[0], "x", LONG);
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for number in 0..COUNT {
        let (lock, order) = (lockers[number % 4].lock("x").ttl(LONG).wait(LONG), order.clone());
        threads.push(std::thread::spawn(move || {
            let guard = fencepost::blocking::wait(lock.acquire()).expect("the lock");
            order.lock().expect("no panic").push((number, guard.token()));
            give(guard);
        }));
        in_line(&server, "x", number + 1);
    }
    give(held);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let order = order.lock().expect("no panic");
    assert!(order.is_sorted_by_key(|(_, token)| *token), "tokens fall: {order:?}");
    assert!(order.is_sorted_by_key(|(number, _)| *number), "out of turn: {order:?}");
    nothing_is_left(&server, SHORT);
}
