//! A server that forgets, and one that lacks what another knew: whoever held is told, and tokens go on rising.

use std::time::Duration;

use fencepost::{Guard, Moment, blocking};
use fencepost_lab::proxy::{Direction, Mode, Proxy};
use fencepost_lab::server::redis::{Options, Redis};

use crate::Tests;
use crate::scene::{
    LONG, Waiter, give, in_line, locker, ms, nothing_is_left, now, pass, server, server_with, take, until,
};

pub(crate) const TESTS: Tests = &[
    ("a_deletion_is_told_at_once", deletion),
    ("a_flush_is_told_at_once", flush),
    ("a_restart_with_nothing_is_told", restart),
    ("a_failover_without_the_lock_is_told", failover),
    ("after_a_failover_the_floor_heals_a_clock_that_is_behind", floor),
];

const TTL: Duration = ms(6000);

/// Long after the grant, and just after a renewal: what is told soon is not told by the next one.
fn settle() {
    pass(TTL / 3 + ms(400));
}

/// When the holder was told.
fn told(guard: &Guard) -> Moment {
    blocking::wait(guard.lost());
    now()
}

fn deletion() {
    let server = server();
    let a = locker(&server.url());
    let held = take(&a, "x", TTL);
    settle();
    let fault = now();
    server.command::<i64>(&["DEL", "lock:x"]).expect("it answers");
    let after = told(&held).since(fault);
    println!("a deletion was told after {after:?}");
    assert!(after < ms(1000), "{after:?}");
    assert!(blocking::wait(held.release()).is_err());
    nothing_is_left(&server, ms(0));
}

fn flush() {
    let server = server();
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", TTL);
    let next = Waiter::start(&b, "x", TTL, LONG);
    let third = Waiter::start(&a, "x", TTL, LONG);
    in_line(&server, "x", 2);
    settle();
    let fault = now();
    server.command::<()>(&["FLUSHALL"]).expect("it answers");
    let after = told(&held).since(fault);
    assert!(after < ms(1000), "{after:?}");
    let (token, lineage) = (held.token(), held.lineage().clone());
    // The line is lost as well. Whoever stood in it stands in a new one by itself.
    let winners = [next, third].map(|waiter| {
        std::thread::spawn(move || {
            let (guard, at) = waiter.granted();
            let token = guard.token();
            give(guard);
            (token, at)
        })
    });
    for winner in winners {
        let (later, at) = winner.join().expect("no panic");
        println!("after a flush: told in {after:?}, the next in {:?}", at.since(fault));
        assert!(later > token && at.since(fault) < ms(7000), "{:?}", at.since(fault));
    }
    // Whoever knew the lineage has written it again, so that old tokens and new ones still compare.
    let again = take(&locker(&server.url()), "x", TTL);
    assert_eq!(*again.lineage(), lineage);
    drop(held);
}

fn restart() {
    let mut server = server();
    let a = locker(&server.url());
    let held = take(&a, "x", TTL);
    settle();
    let fault = now();
    server.restart().expect("it starts again");
    let after = told(&held).since(fault);
    println!("a restart with nothing was told after {after:?}");
    assert!(after < TTL / 3 + ms(500), "{after:?}");
    let again = take(&a, "x", TTL);
    assert!(again.token() > held.token() && again.lineage() == held.lineage());
    give(again);
}

/// A primary and its replica, which has missed whatever was written since the link between them was swallowed.
struct Pair {
    primary: Redis,
    replica: Redis,
    link: Proxy,
    front: Proxy,
}

impl Pair {
    fn start(replica: Options) -> Self {
        let primary = server();
        let link = Proxy::start(primary.addr()).expect("a port");
        let replica = server_with(Options { replica_of: Some(link.addr()), ..replica });
        let front = Proxy::start(primary.addr()).expect("a port");
        Self { primary, replica, link, front }
    }

    fn url(&self) -> String {
        format!("redis://{}", self.front.addr())
    }

    /// The replica has everything until now, and nothing that comes.
    fn part(&self) {
        self.primary.command::<()>(&["SET", "mark", "1"]).expect("it answers");
        until("replicated", LONG, || self.replica.command::<Option<String>>(&["GET", "mark"]).ok().flatten());
        self.link.set(Direction::ToClient, Mode::Swallow);
    }

    fn fail_over(&mut self) {
        self.primary.kill().expect("it runs");
        self.replica.command::<()>(&["REPLICAOF", "NO", "ONE"]).expect("it answers");
        self.front.lead_to(self.replica.addr());
    }
}

fn failover() {
    let mut pair = Pair::start(Options::default());
    let a = locker(&pair.url());
    give(take(&a, "x", TTL));
    pair.part();
    let held = take(&a, "x", TTL);
    let b = locker(&pair.url());
    let next = Waiter::start(&b, "x", TTL, LONG);
    in_line(&pair.primary, "x", 1);
    settle();
    let fault = now();
    pair.fail_over();
    // The new primary gives the lock away; the old holder is told at its next renewal at the latest.
    let after = told(&held).since(fault);
    let (guard, at) = next.granted();
    println!("after a failover: told in {after:?}, the next in {:?}", at.since(fault));
    assert!(after < TTL / 3 + ms(500), "{after:?}");
    assert!(guard.token() > held.token());
    assert_eq!(guard.lineage(), held.lineage());
    drop(held);
    give(guard);
    nothing_is_left(&pair.replica, ms(0));
}

/// The one case in which a token is not above all before it; a floor, such as the highest that a gate has seen, mends it.
fn floor() {
    let clock = std::sync::Arc::new(fencepost_lab::server::Clock::new().expect("a clock"));
    clock.back(ms(60_000)).expect("it steps");
    let mut pair = Pair::start(Options { clock: Some(clock), ..Options::default() });
    let a = locker(&pair.url());
    give(take(&a, "y", TTL));
    pair.part();
    let held = take(&a, "x", TTL);
    let highest = held.token();
    pair.fail_over();
    drop(held);
    let b = locker(&pair.url());
    let low = take(&b, "x", TTL);
    assert!(low.token() < highest, "a clock that is a minute behind, and no memory");
    give(low);
    let lock = b.lock("x").ttl(TTL).floor(highest).wait(LONG);
    let high = blocking::wait(lock.acquire()).expect("the lock");
    assert!(high.token() > highest);
    give(high);
    // From here on everybody is above.
    let next = take(&locker(&pair.url()), "x", TTL);
    assert!(next.token() > highest);
    give(next);
}
