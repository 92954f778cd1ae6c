//! The line: who is next, who is told, and what an operator does to it.

use fencepost::{ErrorKind, blocking};
use fencepost_lab::server::zookeeper::{Client, Fault, Frames, Op};

use crate::Tests;
use crate::scene::{LONG, Waiter, give, in_line, locker, ms, name, path, single, stays_empty, take};

pub(crate) const TESTS: Tests = &[
    ("they_come_in_order_also_when_one_in_the_middle_goes", they_come_in_order_also_when_one_goes),
    ("a_forced_unlock_lets_the_next_in_with_a_token_that_is_enough", a_forced_unlock_lets_the_next_in),
    ("a_try_makes_no_node_while_the_lock_is_held", a_try_makes_no_node_while_the_lock_is_held),
    ("a_try_that_loses_a_race_leaves_no_node", a_try_that_loses_a_race_leaves_no_node),
    ("a_proclamation_changes_no_token_and_wakes_nobody_for_good", a_proclamation_changes_no_token),
];

fn they_come_in_order_also_when_one_goes() {
    let (place, lock) = (single(), name("order"));
    let lockers: Vec<_> = (0..4).map(|_| locker(&place.url())).collect();
    let mut client = place.client();
    let first = take(&lockers[0], &lock, LONG);
    let mut waiters = std::collections::VecDeque::new();
    for (count, locker) in lockers[1..].iter().enumerate() {
        waiters.push_back(Waiter::start(locker, &lock, LONG, LONG));
        in_line(&mut client, &lock, count + 2);
    }
    // The second in line goes: the third must then watch the first, and not take its turn.
    let line = client.line(&path(&lock)).expect("it answers");
    let gone = client.read(&line[1]).expect("it is there");
    client.delete(&line[1]).expect("it is there");
    assert!(blocking::wait(lockers[3].lock(&lock).try_acquire()).is_err(), "two hold it");
    assert!(first.is_held());
    in_line(&mut client, &lock, 4);
    let token = first.token();
    give(first);
    let mut order = Vec::new();
    // It stands at the end now.
    waiters.rotate_left(1);
    for waiter in waiters {
        let (guard, at) = waiter.granted();
        assert!(guard.token() > token);
        order.push((guard.token(), at));
        give(guard);
    }
    assert!(order.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{order:?}");
    assert!(order.iter().all(|(token, _)| token.get() != gone.czxid as u64), "a deleted node was granted");
}

fn a_forced_unlock_lets_the_next_in() {
    let (place, lock) = (single(), name("forced"));
    let (a, b, operator) = (locker(&place.url()), locker(&place.url()), locker(&place.url()));
    let guard = take(&a, &lock, LONG);
    let waiter = Waiter::start(&b, &lock, LONG, LONG);
    let mut client = place.client();
    in_line(&mut client, &lock, 2);
    let forced = blocking::wait(operator.force_unlock(&lock)).expect("it is forced");
    let (next, _) = waiter.granted();
    assert!(guard.token() < forced.token && forced.token <= next.token());
    assert_eq!(forced.holder.and_then(|holder| holder.token), Some(guard.token()));
    assert_eq!(in_line(&mut client, &lock, 1).len(), 1);
    give(next);
    // Nobody there: still a token above all that were.
    let again = blocking::wait(operator.force_unlock(&lock)).expect("it is forced");
    assert!(again.holder.is_none() && again.token > forced.token);
    stays_empty(&mut client, &lock, ms(200));
    let later = take(&a, &lock, LONG);
    assert!(later.token() > again.token);
    give(later);
}

fn a_try_makes_no_node_while_the_lock_is_held() {
    let (place, lock) = (single(), name("try"));
    let frames = Frames::start(place.addr).expect("a port");
    let (holder, subject) = (locker(&place.url()), locker(&format!("zk://{}", frames.addr())));
    let guard = take(&holder, &lock, LONG);
    // Would end the connection if a node were asked for.
    frames.arm(Op::Create, Fault::LoseRequest);
    for _ in 0..5 {
        let error = blocking::wait(subject.lock(&lock).try_acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert_eq!(error.holder().and_then(|holder| holder.token), Some(guard.token()));
    }
    assert!(!frames.is_spent(), "a try of a held lock asked for a node");
    give(guard);
}

fn a_try_that_loses_a_race_leaves_no_node() {
    let (place, lock) = (single(), name("race"));
    let lockers: Vec<_> = (0..8).map(|_| locker(&place.url())).collect();
    for _ in 0..10 {
        let tries: Vec<_> = lockers
            .iter()
            .map(|locker| {
                let lock = locker.lock(&lock).ttl(LONG);
                std::thread::spawn(move || blocking::wait(lock.try_acquire()))
            })
            .collect();
        let got: Vec<_> =
            tries.into_iter().filter_map(|tried| tried.join().expect("no panic").ok()).collect();
        assert!(got.len() <= 1, "{} hold it", got.len());
        let mut client: Client = place.client();
        in_line(&mut client, &lock, got.len());
        got.into_iter().for_each(give);
    }
    stays_empty(&mut place.client(), &lock, ms(200));
}

fn a_proclamation_changes_no_token() {
    let (place, lock) = (single(), name("leader"));
    let (a, b) = (locker(&place.url()), locker(&place.url()));
    let elect =
        |locker: &fencepost::Locker, value: &str| locker.election(&lock).ttl(LONG).wait(LONG).value(value);
    let leadership = blocking::wait(elect(&a, "one").campaign()).expect("nobody else stands");
    let next = elect(&b, "two");
    let next = std::thread::spawn(move || blocking::wait(next.campaign()));
    let mut client = place.client();
    let line = in_line(&mut client, &lock, 2);
    let node = client.read(&line[0]).expect("it is there");
    assert_eq!(leadership.term().get(), node.czxid as u64);
    for value in ["three", "four"] {
        blocking::wait(leadership.proclaim(value)).expect("it leads");
        let written = client.read(&line[0]).expect("it is there");
        assert!(String::from_utf8_lossy(&written.data).contains(value));
        assert_eq!(written.czxid, node.czxid, "a proclamation changed the token");
        // The next one saw that its turn has not come, and watches on.
        crate::scene::pass(ms(100));
        assert!(leadership.is_leader() && !next.is_finished());
    }
    // The holder's own watch was used up by its own change, and set again.
    crate::scene::pass(ms(800));
    client.delete(&line[0]).expect("it is there");
    let deleted = crate::scene::now();
    crate::scene::told(leadership.guard(), LONG);
    assert!(crate::scene::now().since(deleted) < ms(1000), "told late");
    let next = next.join().expect("no panic").expect("it leads now");
    assert!(next.term() > leadership.term());
    assert!(blocking::wait(leadership.proclaim("five")).is_err(), "a former leader proclaims");
    blocking::wait(next.resign()).expect("it led");
}
