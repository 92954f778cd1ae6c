//! Three members, of which some fail.

use std::time::Duration;

use fencepost::{Guard, Locker, blocking};
use fencepost_lab::history::Recorder;
use fencepost_lab::proxy::Proxy;
use fencepost_lab::server::etcd::Etcd;

use crate::Tests;
use crate::player::{Player, in_order};
use crate::scene::{
    LONG, SHORT, Waiter, give, in_line, line, locker, lost, ms, now, on_the_cluster, pass, take, until,
};

pub(crate) const TESTS: Tests = &[
    ("a_killed_leader_costs_no_lock", || on_the_cluster(leader_killed)),
    ("a_killed_leader_costs_no_lock_of_a_crowd", || on_the_cluster(crowd)),
    ("a_frozen_minority_is_not_noticed", || on_the_cluster(minority_frozen)),
    ("without_a_majority_every_guard_is_lost_in_time", || on_the_cluster(majority_gone)),
    ("a_leader_that_wakes_up_renews_nothing", || on_the_cluster(leader_wakes)),
    ("a_deposed_leaders_renewal_is_not_believed", || on_the_cluster(deposed)),
    ("a_lock_survives_a_restart_of_all", || on_the_cluster(all_restarted)),
];

/// The addresses of the cluster with one member's first: a client begins with it.
fn beginning_with(cluster: &Etcd, member: usize) -> String {
    let order: Vec<_> = (0..cluster.size()).map(|i| cluster.addr((member + i) % cluster.size())).collect();
    cluster.url_through(&order)
}

fn leader(cluster: &Etcd) -> usize {
    until("a leader", LONG, || cluster.leader())
}

/// Fifty hold and fifty wait: none is lost, none is doubled, and tokens rise.
fn leader_killed(cluster: &mut Etcd) {
    let lead = leader(cluster);
    let lockers: Vec<Locker> = (0..5).map(|i| locker(&beginning_with(cluster, (lead + i) % 3))).collect();
    let name = |number: usize| format!("killed-{number}");
    let held: Vec<Guard> =
        (0..50).map(|number| take(&lockers[number % 5], &name(number), ms(8000))).collect();
    let waiting: Vec<Waiter> = (0..50)
        .map(|number| Waiter::start(&lockers[(number + 1) % 5], &name(number), ms(8000), LONG))
        .collect();
    until("all in line", LONG, || (cluster.keys("killed-").ok()?.len() == 100).then_some(()));
    cluster.kill(lead).expect("it can be killed");
    pass(ms(5000));
    assert!(held.iter().all(Guard::is_held), "a lock was lost with the leader");
    let tokens: Vec<_> = held.iter().map(Guard::token).collect();
    for guard in held {
        // The first request may meet the dead leader's connection; then the removal goes on in the background.
        let _ = blocking::wait(guard.release());
    }
    for (waiter, token) in waiting.into_iter().zip(tokens) {
        let (guard, _) = waiter.granted();
        assert!(guard.token() > token && guard.is_held());
        give(guard);
    }
    until("nothing left", LONG, || cluster.keys("killed-").ok()?.is_empty().then_some(()));
}

/// The same with clients that come and go all the while, judged by the checker.
fn crowd(cluster: &mut Etcd) {
    let lead = leader(cluster);
    let (recorder, events) = Recorder::memory();
    let end = now() + ms(8000);
    let players: Vec<_> = (0..6)
        .map(|lane| Player::new(&lane.to_string(), locker(&beginning_with(cluster, lane % 3)), &recorder))
        .collect();
    std::thread::scope(|scope| {
        for player in players {
            scope.spawn(move || {
                while now() < end {
                    match player.acquire("crowd", ms(6000), LONG) {
                        Ok(held) => {
                            pass(ms(5));
                            // Not confirmed is not wrong: the checker knows.
                            let _ = player.release(held);
                        }
                        Err(error) => panic!("an acquire failed: {error}"),
                    }
                }
            });
        }
        pass(ms(2000));
        cluster.kill(lead).expect("it can be killed");
    });
    let grants = in_order(&events);
    assert!(grants > 20, "{grants} grants");
}

/// The member that the clients talk to stands still: they go to another one, and lose nothing.
fn minority_frozen(cluster: &mut Etcd) {
    let follower = (leader(cluster) + 1) % 3;
    let client = locker(&beginning_with(cluster, follower));
    let guard = take(&client, "frozen", ms(6000));
    let waiter = Waiter::start(&client, "frozen", ms(6000), LONG);
    in_line(cluster, "frozen", 1);
    let mut changes = guard.changes();
    cluster.pause(follower).expect("it can be stopped");
    pass(ms(9000));
    assert!(guard.is_held());
    // Once found out, it costs nothing more.
    let start = now();
    give(take(&client, "another", ms(6000)));
    assert!(now().since(start) < ms(1500), "it took {:?}", now().since(start));
    let (token, released) = (guard.token(), now());
    give(guard);
    let (next, at) = waiter.granted();
    assert!(next.token() > token && at.since(released) < ms(2000), "granted after {:?}", at.since(released));
    give(next);
    // Lost it was at no time; its end is the release.
    assert_eq!(blocking::wait(changes.changed()).state, fencepost::State::Released);
}

/// Two of three are gone: whoever holds something stops believing before anybody else can have it.
fn majority_gone(cluster: &mut Etcd) {
    let lead = leader(cluster);
    let clients: Vec<Locker> = (0..3).map(|i| locker(&beginning_with(cluster, i))).collect();
    let ttl = ms(4000);
    let held: Vec<Guard> =
        (0..30).map(|number| take(&clients[number % 3], &format!("gone-{number}"), ttl)).collect();
    let other = locker(&cluster.url());
    cluster.pause(lead).expect("it can be stopped");
    cluster.pause((lead + 1) % 3).expect("it can be stopped");
    let gone = now();
    for guard in &held {
        let told = lost(guard);
        let deadline = guard.deadline().expect("a lease has an end");
        assert!(!guard.is_held() && told.since(deadline) < ms(1000), "told {:?} late", told.since(deadline));
        // A renewal that was under way when they stopped is the last.
        assert!(deadline < gone + ttl, "believed {:?} after the end", deadline.since(gone));
    }
    cluster.resume(lead).expect("it can go on");
    cluster.resume((lead + 1) % 3).expect("it can go on");
    for (number, guard) in held.iter().enumerate() {
        let next = take(&other, &format!("gone-{number}"), LONG);
        assert!(next.token() > guard.token() && !guard.is_held());
        give(next);
    }
}

/// A client that knows no other member than the leader, which is stopped until long after the others have elected another and given
/// the lock away (etcd#15247). The client sends renewals all the while; the former leader answers them when it goes on.
fn leader_wakes(cluster: &mut Etcd) {
    for round in 0..3 {
        let lead = leader(cluster);
        let alone = locker(&cluster.url_through(&[cluster.addr(lead)]));
        let other = locker(&beginning_with(cluster, (lead + 1) % 3));
        let lock = format!("wakes-{round}");
        let guard = take(&alone, &lock, ms(4000));
        let next = Waiter::start(&other, &lock, LONG, LONG);
        until("in line", LONG, || (line(cluster, &lock).len() == 2).then_some(()));
        cluster.pause(lead).expect("it can be stopped");
        let told = lost(&guard);
        let (next, got) = next.granted();
        let deadline = guard.deadline().expect("a lease has an end");
        assert!(deadline < got && told.since(deadline) < ms(1000));
        // Now it goes on, with requests of this client in its sockets.
        let pending = Waiter::start(&alone, &format!("{lock}-after"), ms(4000), ms(15_000));
        pass(ms(300));
        cluster.resume(lead).expect("it can go on");
        pass(ms(1500));
        assert!(!guard.is_held() && next.is_held());
        let (after, _) = pending.granted();
        assert!(after.is_held());
        give(after);
        give(next);
    }
}

/// Leases and keys are on disk; a restart is an outage, and no more.
fn all_restarted(cluster: &mut Etcd) {
    let client = locker(&cluster.url());
    let guard = take(&client, "restarted", LONG);
    let next = Waiter::start(&client, "restarted", LONG, LONG);
    in_line(cluster, "restarted", 1);
    cluster.restart().expect("they start again");
    pass(SHORT);
    assert!(guard.is_held());
    assert_eq!(line(cluster, "restarted").len(), 2);
    let token = guard.token();
    let _ = blocking::wait(guard.release());
    let (next, _) = next.granted();
    assert!(next.token() > token);
    give(next);
}

/// Clients that know no other member than the leader, which stands still for longer than an election, and not for as long as the
/// lease. When it goes on it still thinks that it leads, and answers the renewals that it finds (etcd#15247); the next leader's clock for
/// those leases knows nothing of it. Cut off right after such an answer, a client must not believe for longer than its lease goes on.
fn deposed(cluster: &mut Etcd) {
    const TTL: Duration = ms(18_000);
    let lead = leader(cluster);
    let proxy = Proxy::start(cluster.addr(lead)).expect("a port");
    let alone = cluster.url_through(&[proxy.addr()]);
    let other = locker(&cluster.url_through(&[cluster.addr((lead + 1) % 3), cluster.addr((lead + 2) % 3)]));
    let start = now();
    let clients: Vec<Locker> = (0..20).map(|_| locker(&alone)).collect();
    let name = |number: usize| format!("deposed-{number}");
    let held: Vec<Guard> =
        clients.iter().enumerate().map(|(number, client)| take(client, &name(number), TTL)).collect();
    let next: Vec<Waiter> =
        (0..20).map(|number| Waiter::start(&other, &name(number), LONG * 2, LONG * 2)).collect();
    until("in line", LONG, || (cluster.keys("deposed-").ok()?.len() == 40).then_some(()));
    assert!(now().since(start) < ms(2500), "the machine is too busy for what follows");
    cluster.pause(lead).expect("it can be stopped");
    // Into the time in which each of them has sent a renewal, a quarter to a third of the lease later, and waits for its answer.
    pass((start + ms(7000)).since(now()));
    let before: Vec<_> = held.iter().map(Guard::deadline).collect();
    cluster.resume(lead).expect("it can go on");
    until("a renewal", LONG, || {
        held.iter().zip(&before).any(|(guard, before)| guard.deadline() != *before).then_some(())
    });
    proxy.cut();
    for (guard, next) in held.iter().zip(next) {
        let (next, got) = next.granted();
        let deadline = guard.deadline().expect("a lease has an end");
        assert!(deadline < got, "believed for {:?} after the next one had it", deadline.since(got));
        give(next);
    }
}
