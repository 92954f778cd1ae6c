//! Sessions that end, and nodes that others delete.

use std::time::Duration;

use fencepost::gate::{MemoryGate, Pass};
use fencepost::{ErrorKind, Loss, State, Token, blocking};
use fencepost_lab::server::zookeeper::{Client, Fault, Frames, Op, Options, ZooKeeper};

use crate::Tests;
use crate::process::Holder;
use crate::scene::{LONG, Waiter, give, in_line, locker, ms, name, now, pass, single, take, told, until};

pub(crate) const TESTS: Tests = &[
    ("a_stopped_holder_learns_at_once_when_it_goes_on", a_stopped_holder_learns_at_once_when_it_goes_on),
    ("a_waiter_whose_session_ends_learns_at_once", a_waiter_whose_session_ends_learns_at_once),
    ("a_holder_whose_session_ends_learns_at_once", a_holder_whose_session_ends_learns_at_once),
    ("a_node_deleted_by_an_operator_is_told_within_a_second", a_node_deleted_by_an_operator_is_told),
    ("a_waiters_node_deleted_by_an_operator_is_made_again", a_waiters_node_is_made_again),
    ("the_node_of_an_ended_session_is_not_adopted", the_node_of_an_ended_session_is_not_adopted),
    ("a_short_ttl_becomes_what_the_server_grants", a_short_ttl_becomes_what_the_server_grants),
    ("a_dead_waiter_is_passed_over", a_dead_waiter_is_passed_over),
    ("an_ensemble_that_was_put_back_is_refused", an_ensemble_that_was_put_back_is_refused),
    ("a_session_that_was_shortened_is_over", a_session_that_was_shortened_is_over),
    ("a_forced_unlock_leaves_nothing_behind_that_is_renewed", a_forced_unlock_leaves_nothing_behind),
    ("a_closed_locker_ends_its_session", a_closed_locker_ends_its_session),
];

/// The lease of a session that somebody else ends. Its owner comes back meanwhile, and a server whose session is taken back and
/// forth may leave a request unanswered: then the next renewal finds out, half a second later.
const ENDED: Duration = ms(3000);

/// Whoever was stopped for longer than its session hears of the loss when it goes on, and a gate rejects its token.
fn a_stopped_holder_learns_at_once_when_it_goes_on() {
    let (place, lock) = (single(), name("stopped"));
    let locker = locker(&place.url());
    let mut holder = Holder::start(&place.url(), &lock, ms(900));
    let stale = Token::new(holder.held()).expect("a token is not 0");
    let waiter = Waiter::start(&locker, &lock, ms(900), LONG);
    in_line(&mut place.client(), &lock, 2);
    holder.stop();
    let (guard, _) = waiter.granted();
    assert!(stale < guard.token());
    let gate = MemoryGate::new(());
    gate.fence(&guard).expect("the newer token passes");
    let stale = gate.fence(Pass::from(stale).with_lineage(guard.lineage().clone())).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Stale);
    let resumed = now();
    holder.resume();
    let told = holder.lost();
    assert!(told.since(resumed) < ms(500), "told {:?} after it went on", told.since(resumed));
    give(guard);
}

/// CURATOR and etcd#19597: a waiter must not find out only when its turn comes.
fn a_waiter_whose_session_ends_learns_at_once() {
    let (place, lock) = (single(), name("waiter"));
    let (holder, other) = (locker(&place.url()), locker(&place.url()));
    let guard = take(&holder, &lock, LONG);
    let waiter = Waiter::start(&other, &lock, ENDED, LONG);
    let mut client = place.client();
    let line = in_line(&mut client, &lock, 2);
    let first = client.read(&line[1]).expect("it is there");
    Client::end_session(place.addr, first.owner).expect("the session ends");
    let ended = now();
    let again = until("a new node", LONG, || {
        let line = client.line(&crate::scene::path(&lock)).expect("it answers");
        client.read(line.get(1)?).ok().filter(|node| node.owner != first.owner)
    });
    assert!(now().since(ended) < ms(1000), "in line again after {:?}", now().since(ended));
    assert!(again.czxid > first.czxid);
    give(guard);
    let (guard, _) = waiter.granted();
    assert_eq!(guard.token().get(), again.czxid as u64, "granted by the new node");
    give(guard);
}

fn a_holder_whose_session_ends_learns_at_once() {
    let (place, lock) = (single(), name("ended"));
    let locker = locker(&place.url());
    let guard = take(&locker, &lock, ENDED);
    let mut client = place.client();
    let line = in_line(&mut client, &lock, 1);
    let node = client.read(&line[0]).expect("it is there");
    Client::end_session(place.addr, node.owner).expect("the session ends");
    let ended = now();
    let told = told(&guard, LONG);
    assert!(told.since(ended) < ms(1000), "told after {:?}", told.since(ended));
    assert_eq!(guard.changes().hold().state, State::Lost(Loss::LeaseEnded));
    // The same locker goes on with another session.
    let next = take(&locker, &lock, LONG);
    assert!(next.token() > guard.token());
    give(next);
}

fn a_node_deleted_by_an_operator_is_told() {
    let (place, lock) = (single(), name("deleted"));
    let (locker, other) = (locker(&place.url()), locker(&place.url()));
    let (guard, kept) = (take(&locker, &lock, LONG), take(&locker, &name("kept"), LONG));
    let waiter = Waiter::start(&other, &lock, LONG, LONG);
    let mut client = place.client();
    let line = in_line(&mut client, &lock, 2);
    // Watched in a batch, up to half a second after the grant.
    pass(ms(800));
    client.delete(&line[0]).expect("it is there");
    let deleted = now();
    let told = told(&guard, LONG);
    assert!(told.since(deleted) < ms(1000), "told after {:?}", told.since(deleted));
    assert_eq!(guard.changes().hold().state, State::Lost(Loss::Gone));
    let (next, _) = waiter.granted();
    assert!(next.token() > guard.token());
    assert_eq!(blocking::wait(guard.release()).unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_held() && kept.is_held(), "a lost lock took others along");
    give(next);
    give(kept);
}

fn a_waiters_node_is_made_again() {
    let (place, lock) = (single(), name("dropped"));
    let (holder, other) = (locker(&place.url()), locker(&place.url()));
    let guard = take(&holder, &lock, LONG);
    let waiter = Waiter::start(&other, &lock, LONG, LONG);
    let mut client = place.client();
    let line = in_line(&mut client, &lock, 2);
    client.delete(&line[1]).expect("it is there");
    until("another node", ms(1000), || {
        let now = client.line(&crate::scene::path(&lock)).expect("it answers");
        (now.len() == 2 && now[1] != line[1]).then_some(())
    });
    give(guard);
    give(waiter.granted().0);
}

/// CURATOR-498, -604 and -696: whatever was made on a session that is over is not ours any more, though it may still be
/// seen. Here it is truly still there: bound to another session, with our claim's id in its name.
fn the_node_of_an_ended_session_is_not_adopted() {
    let (place, lock) = (single(), name("adopted"));
    let locker = locker(&place.url());
    let guard = take(&locker, &lock, LONG);
    let mut client = place.client();
    let ours = in_line(&mut client, &lock, 1).remove(0);
    let node = client.read(&ours).expect("it is there");
    Client::end_session(place.addr, node.owner).expect("the session ends");
    told(&guard, LONG);
    // What a slow server would still show: a node of the same name, which is not of our session.
    let mut ghost = place.client();
    ghost.create(&ours, b"", fencepost_lab::server::zookeeper::OPEN, 1).expect("the name is free");
    let waiter = Waiter::start(&locker, &lock, LONG, LONG);
    in_line(&mut client, &lock, 2);
    assert!(blocking::wait(locker.lock(&lock).try_acquire()).is_err(), "the ghost was taken for ours");
    drop(ghost);
    let (next, _) = waiter.granted();
    assert!(next.token() > guard.token());
    give(next);
}

fn a_short_ttl_becomes_what_the_server_grants() {
    let (place, lock) = (single(), name("short"));
    let locker = locker(&place.url());
    // No session is shorter than two ticks of a tenth of a second, of which three quarters are ours.
    let guard = take(&locker, &lock, ms(100));
    let left = guard.deadline().expect("a lease ends").since(now());
    assert!(left <= ms(150), "{left:?} of a session of 200 ms");
    let end = now() + ms(1000);
    while now() < end && guard.is_held() {
        pass(ms(5));
    }
    // On a busy machine so short a lease may run out; it must not be believed then.
    drop(guard);
    let long = take(&locker, &lock, Duration::from_secs(24 * 60 * 60));
    let left = long.deadline().expect("a lease ends").since(now());
    assert!(left <= Duration::from_secs(450), "{left:?} of a session of 600 s");
    give(long);
}

fn a_dead_waiter_is_passed_over() {
    let (place, lock) = (single(), name("dead"));
    let locker = locker(&place.url());
    let guard = take(&locker, &lock, LONG);
    let dead = Holder::start(&place.url(), &lock, ms(900));
    let mut client = place.client();
    in_line(&mut client, &lock, 2);
    let waiter = Waiter::start(&locker, &lock, LONG, LONG);
    in_line(&mut client, &lock, 3);
    drop(dead);
    give(guard);
    let freed = now();
    let (next, got) = waiter.granted();
    assert!(
        got.since(freed) < ms(900 * 4 / 3 + 1500),
        "the dead one stood in the way for {:?}",
        got.since(freed)
    );
    give(next);
}

fn a_closed_locker_ends_its_session() {
    let (place, lock) = (single(), name("closed"));
    let locker = locker(&place.url());
    let guard = take(&locker, &lock, LONG * 10);
    let mut client = place.client();
    in_line(&mut client, &lock, 1);
    drop(guard);
    drop(locker);
    // Long before the session would end by itself.
    in_line(&mut client, &lock, 0);
}

/// A backup that is restored has the same lineage, and would give the tokens again that were given since it was made.
/// A server with lower limits shortens a session that comes back to it. What the guard believes is counted from the length
/// that was granted first, and would go on after the session's end.
fn a_session_that_was_shortened_is_over() {
    let mut server = ZooKeeper::start(Options::default()).expect("zookeeper starts");
    let (lock, url) = (name("shortened"), server.url());
    let locker = locker(&url);
    let guard = take(&locker, &lock, ms(9000));
    server.restart_with("maxSessionTimeout=3000").expect("it starts");
    let back = now();
    told(&guard, LONG);
    let took = now().since(back);
    assert!(took < ms(3000), "believed for {took:?} after the server was back");
    assert_eq!(guard.changes().hold().state, State::Lost(Loss::LeaseEnded));
    // The next session is as long as the server grants it.
    let guard = take(&locker, &lock, ms(9000));
    assert!(guard.ttl().is_some_and(|ttl| ttl < ms(3000)), "{:?}", guard.ttl());
    give(guard);
}

/// The node that a forced unlock stands in line with goes with a session of its own, however long others on the same locker ask.
fn a_forced_unlock_leaves_nothing_behind() {
    let server = ZooKeeper::start(Options::default()).expect("zookeeper starts");
    let (proxy, lock) = (Frames::start(server.addr()).expect("a port"), name("forced"));
    let (holder, operator) = (locker(&server.url()), locker(&format!("zk://{}", proxy.addr())));
    let guard = take(&holder, &lock, LONG);
    blocking::wait(operator.inspect(&lock)).expect("it answers");
    proxy.arm(Op::Create, Fault::LoseReply);
    let forced = blocking::wait(operator.force_unlock(&lock));
    assert!(forced.is_err(), "its reply was lost: {forced:?}");
    let mut client = Client::connect(server.addr(), LONG).expect("it answers");
    assert!(proxy.is_spent());
    until("the end of the forced unlock's session", LONG, || {
        // As those do who follow a lock.
        let _ = blocking::wait(operator.inspect(&lock));
        let line = client.line(&crate::scene::path(&lock)).expect("it answers");
        (line.len() == usize::from(guard.is_held())).then_some(())
    });
    drop(guard);
    give(take(&operator, &lock, ms(900)));
}

fn an_ensemble_that_was_put_back_is_refused() {
    let mut server = ZooKeeper::start(Options::default()).expect("zookeeper starts");
    let (lock, url) = (name("restored"), server.url());
    give(take(&locker(&url), &lock, ms(900)));
    let copy = server.back_up().expect("a copy");
    let locker = locker(&url);
    for _ in 0..20 {
        give(take(&locker, &lock, ms(900)));
    }
    server.restore(&copy).expect("it starts with the copy");
    let outcome = blocking::wait(locker.lock(&lock).ttl(ms(900)).wait(LONG).acquire());
    let error = outcome.map(|guard| guard.token()).expect_err("a token was repeated");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("earlier state"), "{error}");
}
