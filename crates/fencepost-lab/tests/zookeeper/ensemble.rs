//! Three servers: whoever of them fails, no lock is lost that a majority still keeps, and none is doubled.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost::{Guard, blocking};
use fencepost_lab::proxy::{Mode, Proxy};
use fencepost_lab::server::zookeeper::Client;

use crate::Tests;
use crate::scene::{
    LONG, Waiter, give, in_line, locker, ms, name, now, pass, take, told, until, with_ensemble,
};

pub(crate) const TESTS: Tests = &[
    ("the_leader_is_killed_while_fifty_hold_and_fifty_wait", leader_killed),
    ("the_leader_is_frozen_while_locks_are_held", leader_frozen),
    ("a_follower_is_killed_and_nothing_is_noticed", follower_killed),
    ("without_a_majority_every_guard_reports_loss_in_time", majority_gone),
    ("one_of_three_servers_is_black_holed_from_the_start", black_holed),
    ("a_server_in_the_list_is_dead", dead_in_the_list),
    ("all_servers_are_restarted", all_restarted),
];

/// Long enough for an election of a few seconds on a busy machine.
const TTL: Duration = Duration::from_secs(24);

fn leader_killed() {
    with_ensemble(|ensemble| {
        let lockers = [locker(&ensemble.url()), locker(&ensemble.url())];
        let names: Vec<String> = (0..50).map(|_| name("fifty")).collect();
        let held: Vec<Guard> = names.iter().map(|lock| take(&lockers[0], lock, TTL)).collect();
        let waiting: Vec<Waiter> =
            names.iter().map(|lock| Waiter::start(&lockers[1], lock, TTL, LONG * 10)).collect();
        let leader = ensemble.leader().expect("there is one");
        let survivor = ensemble.addrs()[(leader + 1) % 3];
        let mut client = Client::connect(survivor, LONG).expect("it answers");
        for lock in &names {
            in_line(&mut client, lock, 2);
        }
        drop(client);
        ensemble.server(leader).kill().expect("it ends");
        ensemble.leader().expect("there is another");
        let end = now() + ms(2000);
        while now() < end {
            assert!(held.iter().all(Guard::is_held), "a lock was lost with the leader");
            pass(ms(20));
        }
        let mut tokens = BTreeMap::new();
        for guard in held {
            assert!(guard.is_held());
            tokens.insert(guard.lock().as_str().to_owned(), guard.token());
            give(guard);
        }
        for waiter in waiting {
            let (guard, _) = waiter.granted();
            assert!(guard.token() > tokens[guard.lock().as_str()], "a token did not rise");
            assert!(blocking::wait(lockers[0].lock(guard.lock().as_str()).try_acquire()).is_err(), "doubled");
            give(guard);
        }
    });
}

/// A frozen leader keeps its connections. Whoever hears nothing there goes to another server in time.
fn leader_frozen() {
    with_ensemble(|ensemble| {
        let locker = locker(&ensemble.url());
        let held: Vec<Guard> = (0..6).map(|_| take(&locker, &name("frozen"), TTL)).collect();
        let leader = ensemble.leader().expect("there is one");
        ensemble.server(leader).pause().expect("it stands still");
        let end = now() + TTL + ms(2000);
        while now() < end {
            let lost = held.iter().find(|guard| !guard.is_held()).map(|guard| guard.changes().hold());
            assert!(lost.is_none(), "a lock was lost with a frozen leader: {lost:?} at {:?}", now());
            pass(ms(50));
        }
        held.into_iter().for_each(give);
    });
}

fn follower_killed() {
    with_ensemble(|ensemble| {
        let lockers: Vec<_> = (0..6).map(|_| locker(&ensemble.url())).collect();
        let held: Vec<Guard> =
            lockers.iter().map(|locker| take(locker, &name("follower"), ms(9000))).collect();
        let follower = ensemble.followers()[0];
        ensemble.server(follower).kill().expect("it ends");
        let end = now() + ms(10_000);
        while now() < end {
            assert!(held.iter().all(Guard::is_held), "a lock was lost with one of three servers");
            pass(ms(20));
        }
        for (locker, guard) in lockers.iter().zip(held) {
            let (lock, token) = (guard.lock().as_str().to_owned(), guard.token());
            give(guard);
            let next = take(locker, &lock, ms(9000));
            assert!(next.token() > token);
            give(next);
        }
    });
}

/// Without a majority nobody renews anything, and every guard says so before the session can end: before it can pass on.
fn majority_gone() {
    with_ensemble(|ensemble| {
        let ttl = ms(6000);
        let locker = locker(&ensemble.url());
        let held: Vec<Guard> = (0..10).map(|_| take(&locker, &name("majority"), ttl)).collect();
        let last = held.iter().filter_map(Guard::deadline).max().expect("leases end");
        for server in [0, 1] {
            ensemble.server(server).kill().expect("it ends");
        }
        let gone = now();
        let told: Vec<_> = held.iter().map(|guard| told(guard, LONG)).collect();
        // One renewal may have been answered before the second server died.
        let limit = last.max(gone + ttl);
        assert!(told.iter().all(|told| *told <= limit + ms(300)), "told too late: {told:?}, {limit:?}");
        ensemble.heal().expect("the ensemble is whole");
        for guard in held {
            let (lock, token) = (guard.lock().as_str().to_owned(), guard.token());
            drop(guard);
            let next = take(&locker, &lock, ttl);
            assert!(next.token() > token);
            give(next);
        }
    });
}

fn black_holed() {
    with_ensemble(|ensemble| {
        let addrs = ensemble.addrs();
        // It takes connections and answers nothing, as a frozen machine behind a firewall.
        let hole = Proxy::start(addrs[0]).expect("a port");
        hole.set_both(Mode::Hold);
        let url = format!("zk://{},{},{}", hole.addr(), addrs[1], addrs[2]);
        for _ in 0..6 {
            let asked = now();
            let locker = locker(&url);
            let guard = take(&locker, &name("hole"), ms(9000));
            let took = now().since(asked);
            assert!(took < ms(6500), "one silent server of three cost {took:?}");
            // And once only: from then on another one serves.
            let again = now();
            give(take(&locker, &name("hole"), ms(9000)));
            assert!(now().since(again) < ms(1500), "it cost {:?} again", now().since(again));
            pass(ms(200));
            give(guard);
        }
    });
}

fn dead_in_the_list() {
    with_ensemble(|ensemble| {
        let addrs = ensemble.addrs();
        for _ in 0..6 {
            let locker = locker(&format!("zk://127.0.0.1:1,{},{}", addrs[1], addrs[2]));
            let guard = take(&locker, &name("dead"), ms(9000));
            give(guard);
        }
    });
}

fn all_restarted() {
    with_ensemble(|ensemble| {
        let locker = locker(&ensemble.url());
        let lock = name("restarted");
        let guard = take(&locker, &lock, Duration::from_secs(60));
        let token = guard.token();
        ensemble.restart().expect("all serve again");
        let mut client = Client::connect(ensemble.addrs()[0], LONG).expect("it answers");
        in_line(&mut client, &lock, 1);
        assert!(guard.is_held(), "a lock was lost though its session outlived the restart");
        until("renewed", LONG, || guard.deadline().filter(|end| end.since(now()) > ms(30_000)));
        give(guard);
        let next = take(&locker, &lock, Duration::from_secs(60));
        assert!(next.token() > token, "tokens went back over a restart");
        give(next);
    });
}
