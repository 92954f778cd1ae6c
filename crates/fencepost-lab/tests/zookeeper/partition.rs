//! A follower that is cut off from its leader and does not know it yet.
//!
//! It goes on answering reads, and with them heartbeats, for as many ticks as `syncLimit` says. The leader meanwhile
//! hears nothing of the sessions there, ends them, and the majority gives their locks to others. A client that takes
//! such an answer for a renewal believes in a lock that somebody else has.

use std::time::Duration;

use fencepost_lab::proxy::Mode;

use crate::Tests;
use crate::scene::{LONG, Waiter, give, in_line, locker, ms, name, now, take, told, with_ensemble};

pub(crate) const TESTS: Tests = &[
    ("a_follower_that_is_cut_off_renews_nobody", a_follower_that_is_cut_off_renews_nobody),
    ("whoever_can_goes_to_another_server", whoever_can_goes_to_another_server),
];

/// Shorter than the four seconds in which the follower does not notice.
const TTL: Duration = ms(1800);

fn a_follower_that_is_cut_off_renews_nobody() {
    with_ensemble(|ensemble| {
        let leader = ensemble.leader().expect("there is one");
        let follower = ensemble.followers()[0];
        let addrs = ensemble.addrs();
        let (cut_off, sound) =
            (locker(&format!("zk://{}", addrs[follower])), locker(&format!("zk://{}", addrs[leader])));
        let lock = name("partition");
        let guard = take(&cut_off, &lock, TTL);
        let waiter = Waiter::start(&sound, &lock, LONG, LONG);
        let mut client =
            fencepost_lab::server::zookeeper::Client::connect(addrs[leader], LONG).expect("it answers");
        in_line(&mut client, &lock, 2);
        ensemble.link(follower, leader).set_both(Mode::Hold);
        let cut = now();
        let lost = told(&guard, LONG);
        let (next, got) = waiter.granted();
        println!("believed for {:?} after the cut, passed on after {:?}", lost.since(cut), got.since(cut));
        let deadline = guard.deadline().expect("a lease ends");
        assert!(deadline < got, "believed until {deadline:?}, and the next had it at {got:?}");
        assert!(lost < got && next.token() > guard.token());
        ensemble.link(follower, leader).set_both(Mode::Pass);
        drop(guard);
        give(next);
    });
}

/// With another server in its list a client does not wait until the follower notices: its lock survives.
fn whoever_can_goes_to_another_server() {
    with_ensemble(|ensemble| {
        let leader = ensemble.leader().expect("there is one");
        let followers = ensemble.followers();
        let addrs = ensemble.addrs();
        let lock = name("moves");
        // Longer, since finding out takes a ninth of the session, and the tick is a fifth of a second.
        let ttl = ms(9000);
        let url = format!("zk://{},{}", addrs[followers[0]], addrs[followers[1]]);
        // Where each of them begins is chance.
        let guards: Vec<_> = (0..4).map(|i| take(&locker(&url), &format!("{lock}-{i}"), ttl)).collect();
        ensemble.link(followers[0], leader).set_both(Mode::Hold);
        let end = now() + ttl * 3 / 2;
        while now() < end {
            assert!(guards.iter().all(fencepost::Guard::is_held), "a lock was lost though a server was left");
            crate::scene::pass(ms(20));
        }
        ensemble.link(followers[0], leader).set_both(Mode::Pass);
        for guard in guards {
            give(guard);
        }
    });
}
