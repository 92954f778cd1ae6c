//! Requests and replies that are lost, late or repeated at every step, and connections that are cut anywhere.
//!
//! CURATOR-45, -79, -462 and -678 and kazoo#732 are of this kind: a node that was made and forgotten, so that all who
//! come later wait behind nobody.

use std::time::Duration;

use fencepost::{ErrorKind, blocking};
use fencepost_lab::proxy::{Direction, Mode, Proxy};
use fencepost_lab::server::zookeeper::{Client, Fault, Frames, OPEN, Op};

use crate::Tests;
use crate::scene::{
    LONG, Waiter, give, in_line, locker, ms, name, now, pass, path, single, stays_empty, take, until,
};

pub(crate) const TESTS: Tests = &[
    ("the_request_for_a_node", || every_fault(Op::Create)),
    ("the_look_at_the_line", || every_fault(Op::GetChildren)),
    ("the_look_at_the_one_before", || every_fault(Op::GetData)),
    ("the_look_at_the_own_node", || every_fault(Op::Exists)),
    ("the_renewal", || every_fault(Op::Multi)),
    ("the_deletion", || every_fault(Op::Delete)),
    ("a_deletion_that_is_repeated_leaves_the_next_alone", a_repeated_deletion_leaves_the_next_alone),
    ("a_node_of_an_ended_session_is_not_adopted", a_lost_node_of_an_ended_session_is_not_adopted),
    ("an_acquire_given_up_while_it_is_cut_leaves_nothing", given_up_while_cut),
    ("requests_are_cut_anywhere", || cut_anywhere(Direction::ToServer, 23)),
    ("replies_are_cut_anywhere", || cut_anywhere(Direction::ToClient, 17)),
];

const TTL: Duration = ms(1500);

/// One waits behind another, gets the lock, keeps it for longer than its lease, and gives it back, while one request of
/// this kind meets a fault.
fn every_fault(op: Op) {
    let place = single();
    let other = locker(&place.url());
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::HoldBack(ms(300))] {
        let (lock, frames) = (name("lost"), Frames::start(place.addr).expect("a port"));
        let subject = locker(&format!("zk://{}", frames.addr()));
        let mut client = place.client();
        let before = take(&other, &lock, LONG);
        frames.arm(op, fault);
        let waiter = Waiter::start(&subject, &lock, TTL, LONG);
        in_line(&mut client, &lock, 2);
        // One node for one claim, however often it was asked for.
        let end = now() + ms(400);
        while now() < end {
            assert!(client.line(&path(&lock)).expect("it answers").len() <= 2, "{op:?} {fault:?}");
            pass(ms(10));
        }
        let token = before.token();
        give(before);
        let (guard, _) = waiter.granted();
        assert!(guard.token() > token, "{op:?} {fault:?}");
        pass(TTL * 3 / 2);
        assert!(guard.is_held(), "{op:?} {fault:?}: lost by one lost request");
        if let Err(error) = blocking::wait(guard.release()) {
            assert_eq!(error.kind(), ErrorKind::Unknown, "{op:?} {fault:?}: {error}");
        }
        in_line(&mut client, &lock, 0);
        stays_empty(&mut client, &lock, ms(400));
        assert!(frames.is_spent(), "{op:?} {fault:?} met no request");
        // Whoever comes later does not stand behind a ghost.
        give(take(&subject, &lock, TTL));
    }
}

fn a_repeated_deletion_leaves_the_next_alone() {
    let (place, lock) = (single(), name("repeated"));
    let frames = Frames::start(place.addr).expect("a port");
    let (subject, other) = (locker(&format!("zk://{}", frames.addr())), locker(&place.url()));
    let guard = take(&subject, &lock, LONG);
    let waiter = Waiter::start(&other, &lock, LONG, LONG);
    in_line(&mut place.client(), &lock, 2);
    frames.arm(Op::Delete, Fault::LoseReply);
    let gave = blocking::wait(guard.release());
    assert!(gave.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unknown), "{gave:?}");
    let (next, _) = waiter.granted();
    blocking::wait(subject.close());
    let line = place.client().line(&path(&lock)).expect("it answers");
    assert_eq!(line.len(), 1, "the repeated deletion hit the next holder's node");
    assert!(next.is_held());
    give(next);
}

/// CURATOR-498 and -604, at their worst moment: the reply to the creation is lost, the session ends before the client
/// is back, and a node with the claim's id in its name is still to be seen.
fn a_lost_node_of_an_ended_session_is_not_adopted() {
    let (place, lock) = (single(), name("ghost"));
    let frames = Frames::start(place.addr).expect("a port");
    let proxy = Proxy::start(frames.addr()).expect("a port");
    let subject = locker(&format!("zk://{}", proxy.addr()));
    give(take(&subject, &name("open"), LONG));
    frames.arm(Op::Create, Fault::HoldBack(ms(0)));
    frames.arm(Op::Create, Fault::LoseReply);
    // The first fault ends one connection, and the second the next one; from then on nobody gets through.
    let waiter = Waiter::start(&subject, &lock, LONG, LONG);
    let mut client = place.client();
    let line = in_line(&mut client, &lock, 1);
    proxy.cut();
    if let Ok(node) = client.read(&line[0]) {
        Client::end_session(place.addr, node.owner).expect("the session ends");
    }
    let mut ghost = place.client();
    ghost.create(&line[0], b"", OPEN, 1).expect("the name is free");
    proxy.heal().expect("the port is its own");
    // Its own new node stands behind the ghost.
    in_line(&mut client, &lock, 2);
    pass(ms(300));
    assert!(!client.line(&path(&lock)).expect("it answers").is_empty());
    drop(ghost);
    give(waiter.granted().0);
    stays_empty(&mut client, &lock, ms(300));
}

fn given_up_while_cut() {
    let (place, lock) = (single(), name("given-up"));
    let proxy = Proxy::start(place.addr).expect("a port");
    let subject = locker(&format!("zk://{}", proxy.addr()));
    let mut client = place.client();
    let kept = take(&subject, &name("kept"), TTL);
    for hold in [ms(0), ms(1), ms(3), ms(10)] {
        proxy.set(Direction::ToClient, Mode::Hold);
        let outcome = Waiter::start(&subject, &lock, TTL, hold).outcome().0;
        assert!(outcome.is_err(), "granted without a reply");
        proxy.set(Direction::ToClient, Mode::Pass);
        until("nothing is left", LONG, || {
            client.line(&path(&lock)).expect("it answers").is_empty().then_some(())
        });
    }
    stays_empty(&mut client, &lock, ms(500));
    assert!(kept.is_held(), "given up claims took a lock of the same session along");
    give(kept);
}

/// Takes, keeps and gives a lock, with the connection cut after every so many bytes.
fn cut_anywhere(direction: Direction, stride: usize) {
    let place = single();
    let proxy = Proxy::start(place.addr).expect("a port");
    let subject = locker(&format!("zk://{}", proxy.addr()));
    let other = locker(&place.url());
    let mut client = place.client();
    give(take(&subject, &name("open"), TTL));
    let mut last = None;
    for bytes in (0u64..420).step_by(stride) {
        let lock = name("cut");
        let before = proxy.connections();
        proxy.set(direction, Mode::CloseAfter(bytes));
        let waiter = Waiter::start(&subject, &lock, TTL, LONG);
        until("cut or served", LONG, || {
            (proxy.connections() > before || !client.line(&path(&lock)).expect("it answers").is_empty())
                .then_some(())
        });
        proxy.set(direction, Mode::Pass);
        let (guard, _) = waiter.granted();
        assert!(last < Some(guard.token()), "cut after {bytes} bytes");
        last = Some(guard.token());
        assert!(
            blocking::wait(other.lock(&lock).try_acquire()).is_err(),
            "cut after {bytes} bytes: two hold it"
        );
        if let Err(error) = blocking::wait(guard.release()) {
            assert_eq!(error.kind(), ErrorKind::Unknown, "cut after {bytes} bytes: {error}");
        }
        in_line(&mut client, &lock, 0);
    }
}
