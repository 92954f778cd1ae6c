//! How many requests things cost, counted on their way. Times are the benchmark's.

use fencepost::Guard;
use fencepost_lab::server::zookeeper::Frames;

use crate::Tests;
use crate::scene::{LONG, Waiter, give, in_line, locker, ms, name, pass, single, take};

pub(crate) const TESTS: Tests = &[
    ("a_hand_over_costs_the_same_however_many_wait", a_hand_over_costs_the_same_however_many_wait),
    ("keeping_many_locks_alive_costs_what_one_costs", keeping_many_locks_alive_costs_what_one_costs),
    ("an_uncontended_lock_costs_three_requests", an_uncontended_lock_costs_three_requests),
];

fn a_hand_over_costs_the_same_however_many_wait() {
    let place = single();
    let frames = Frames::start(place.addr).expect("a port");
    let costs = [10, 200].map(|waiting| {
        let lock = name("crowd");
        let locker = locker(&format!("zk://{}", frames.addr()));
        let first = take(&locker, &lock, LONG * 10);
        let waiters: Vec<_> =
            (0..waiting).map(|_| Waiter::start(&locker, &lock, LONG * 10, LONG * 10)).collect();
        in_line(&mut place.client(), &lock, waiting + 1);
        // Whoever just came still looks round.
        pass(ms(1000));
        let before = frames.passed();
        give(first);
        pass(ms(500));
        let cost = frames.passed() - before;
        // Each passes it on.
        waiters.into_iter().for_each(|waiter| drop(std::thread::spawn(move || give(waiter.granted().0))));
        in_line(&mut place.client(), &lock, 0);
        cost
    });
    println!("a hand-over costs {} requests with 10 waiting, {} with 200", costs[0], costs[1]);
    assert!(costs[0] >= 3 && costs[1] <= costs[0] + costs[0] / 5, "{costs:?}");
}

fn keeping_many_locks_alive_costs_what_one_costs() {
    let place = single();
    let costs = [1, 500].map(|count| {
        let frames = Frames::start(place.addr).expect("a port");
        let locker = locker(&format!("zk://{}", frames.addr()));
        let held: Vec<Guard> = (0..count).map(|_| take(&locker, &name("many"), ms(3000))).collect();
        // Their nodes are watched by then.
        pass(ms(1200));
        let before = frames.passed();
        pass(ms(6000));
        let cost = frames.passed() - before;
        assert!(held.iter().all(Guard::is_held));
        held.into_iter().for_each(give);
        cost
    });
    println!("six seconds of a lease of three cost {} requests for 1 lock, {} for 500", costs[0], costs[1]);
    assert!(costs[0] >= 4 && costs[1] <= costs[0] + 3, "{costs:?}");
}

fn an_uncontended_lock_costs_three_requests() {
    let (place, lock) = (single(), name("alone"));
    let frames = Frames::start(place.addr).expect("a port");
    let locker = locker(&format!("zk://{}", frames.addr()));
    give(take(&locker, &lock, LONG));
    let before = frames.passed();
    for _ in 0..10 {
        give(take(&locker, &lock, LONG));
    }
    // The node, the look at the line, the deletion. One renewal may fall between.
    let cost = frames.passed() - before;
    assert!((30..=32).contains(&cost), "{cost} requests for ten locks");
}
