//! Several endpoints, of which some are dead, silent, or of another cluster.

use std::time::Duration;

use fencepost::{ErrorKind, Locker, blocking};
use fencepost_lab::proxy::{Direction, Mode, Proxy};
use fencepost_lab::server::Port;
use fencepost_lab::server::etcd::Etcd;

use crate::Tests;
use crate::scene::{
    LONG, SHORT, Waiter, give, in_line, locker, ms, now, on_the_cluster, pass, server, take, until,
};

pub(crate) const TESTS: Tests = &[
    ("a_black_hole_among_three_costs_a_moment_once", || on_the_cluster(black_hole)),
    ("a_dead_one_among_three_costs_nothing", || on_the_cluster(dead)),
    ("one_that_goes_silent_costs_one_time_limit", || on_the_cluster(goes_silent)),
    ("one_that_is_cut_costs_nothing", || on_the_cluster(is_cut)),
    ("one_without_a_leader_is_left", || on_the_cluster(no_leader)),
    ("two_clusters_in_one_url_are_not_mixed", two_clusters),
];

/// How long connecting, a lock and its release take.
fn first_lock(url: &str, lock: &str) -> (Locker, Duration) {
    let start = now();
    let client = locker(url);
    give(take(&client, lock, LONG));
    (client, now().since(start))
}

/// A machine that swallows everything, from the start and in each place of the URL.
fn black_hole(cluster: &mut Etcd) {
    for place in 0..3 {
        for mode in [Mode::Hold, Mode::Swallow] {
            let hole = Proxy::start(cluster.addr(place)).expect("a port");
            hole.set_both(mode);
            let mut addresses: Vec<_> = (0..3).map(|member| cluster.addr(member)).collect();
            addresses[place] = hole.addr();
            let (client, took) = first_lock(&cluster.url_through(&addresses), "hole");
            assert!(took < ms(2000), "in place {place}: {took:?}");
            let start = now();
            for _ in 0..5 {
                give(take(&client, "hole", LONG));
            }
            assert!(now().since(start) < ms(2000), "paid again: {:?}", now().since(start));
        }
    }
}

fn dead(cluster: &mut Etcd) {
    for place in 0..3 {
        let nobody = Port::free().expect("a port");
        let mut addresses: Vec<_> = (0..3).map(|member| cluster.addr(member)).collect();
        addresses[place] = nobody.addr();
        let (client, took) = first_lock(&cluster.url_through(&addresses), "dead");
        assert!(took < ms(2000), "in place {place}: {took:?}");
        // 1 of 2 endpoints dead made 80 of 200 calls of another client fail.
        for _ in 0..40 {
            give(take(&client, "dead", LONG));
        }
    }
}

/// In the middle of things: one request waits for its time limit, and the others go elsewhere from then on.
fn goes_silent(cluster: &mut Etcd) {
    let proxies: Vec<Proxy> =
        (0..3).map(|member| Proxy::start(cluster.addr(member)).expect("a port")).collect();
    let addresses: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let client = locker(&cluster.url_through(&addresses));
    let guard = take(&client, "silent", ms(4000));
    let next = Waiter::start(&client, "silent", ms(4000), LONG);
    in_line(cluster, "silent", 1);
    proxies[0].set_both(Mode::Swallow);
    let start = now();
    give(take(&client, "other", ms(4000)));
    let first = now().since(start);
    // Half a lease is one request's limit.
    assert!(first < ms(2000) + ms(1500), "the first took {first:?}");
    let start = now();
    for _ in 0..5 {
        give(take(&client, "other", ms(4000)));
    }
    assert!(now().since(start) < ms(1500), "paid again: {:?}", now().since(start));
    pass(ms(3000));
    assert!(guard.is_held());
    let released = now();
    give(guard);
    let (next, at) = next.granted();
    assert!(
        at.since(released) < ms(1500),
        "the watch stayed with the silent one for {:?}",
        at.since(released)
    );
    give(next);
}

fn is_cut(cluster: &mut Etcd) {
    let proxies: Vec<Proxy> =
        (0..3).map(|member| Proxy::start(cluster.addr(member)).expect("a port")).collect();
    let addresses: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let client = locker(&cluster.url_through(&addresses));
    for cut in &proxies {
        let guard = take(&client, "cut", ms(6000));
        cut.cut();
        let start = now();
        for _ in 0..3 {
            give(take(&client, "other", ms(6000)));
        }
        assert!(now().since(start) < ms(2000), "it took {:?}", now().since(start));
        assert!(guard.is_held());
        give(guard);
        cut.heal().expect("the port is still ours");
    }
}

/// A member whose leader is gone refuses at once what it could not do anyway, and another one is asked.
fn no_leader(cluster: &mut Etcd) {
    let lead = until("a leader", LONG, || cluster.leader());
    let (lonely, third) = ((lead + 1) % 3, (lead + 2) % 3);
    // With two gone, the last one has no leader; the URL names it first, and the two after it.
    cluster.kill(lead).expect("it can be killed");
    cluster.kill(third).expect("it can be killed");
    pass(ms(3000));
    let alone = cluster.url_through(&[cluster.addr(lonely)]);
    let error = blocking::wait(Locker::connect(&alone)).err().expect("nobody leads");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no leader"), "{error}");
    cluster.revive(lead).expect("it starts again");
    cluster.revive(third).expect("it starts again");
    let (_, took) =
        first_lock(&cluster.url_through(&[lonely, lead, third].map(|m| cluster.addr(m))), "leader");
    assert!(took < ms(4000), "{took:?}");
}

fn two_clusters() {
    let (one, two) = (server(), server());
    let proxy = Proxy::start(one.addr(0)).expect("a port");
    let client = locker(&one.url_through(&[proxy.addr(), two.addr(0)]));
    let guard = take(&client, "x", SHORT);
    proxy.cut();
    let error = blocking::wait(client.lock("x").ttl(SHORT).patience(ms(700)).acquire())
        .expect_err("nothing to be had");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
    assert!(two.keys("x/").expect("it answers").is_empty(), "written into another cluster");
    proxy.heal().expect("the port is still ours");
    proxy.set(Direction::ToClient, Mode::Pass);
    drop(guard);
    give(take(&client, "x", SHORT));
}
