//! Keys that another client has set: they exclude us, and cost the server little while we wait.

use std::time::Duration;

use fencepost::{ErrorKind, blocking};
use fencepost_lab::server::redis::Options;

use crate::Tests;
use crate::scene::{
    LONG, Waiter, give, in_line, locker, ms, nothing_is_left, now, pass, scripts, server, server_with, take,
};

pub(crate) const TESTS: Tests = &[
    ("a_hash_is_another_kind_of_lock", hash),
    ("a_hash_over_a_held_lock_is_a_loss", hash_over_ours),
    ("a_key_without_an_end_is_waited_for", without_end),
    ("its_deletion_is_noticed", || deletion("jobs on nopass ~* &* +@all", 25)),
    ("its_deletion_is_noticed_without_tracking", || {
        deletion("jobs on nopass ~* &* +@all -client|tracking", 25)
    }),
    ("its_expiry_is_noticed", expiry),
    ("one_who_takes_and_gives_all_the_time_shares", busy),
];

const TTL: Duration = ms(3000);

fn hash() {
    let server = server();
    server.command::<i64>(&["HSET", "lock:x", "uuid:1", "1"]).expect("it answers");
    let a = locker(&server.url());
    let lock = a.lock("x").ttl(TTL).wait(LONG);
    for outcome in [blocking::wait(lock.acquire()), blocking::wait(lock.try_acquire())] {
        let error = outcome.expect_err("it cannot be taken");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("Redisson"), "{error}");
    }
    let error = blocking::wait(a.inspect("x")).expect_err("nor looked at");
    assert!(error.to_string().contains("Redisson"), "{error}");
    assert_eq!(blocking::wait(a.list("")).expect("a list of the rest"), []);
    assert_eq!(server.command::<String>(&["HGET", "lock:x", "uuid:1"]).expect("it answers"), "1");
}

fn hash_over_ours() {
    let server = server();
    let a = locker(&server.url());
    let held = take(&a, "x", TTL);
    server.command::<i64>(&["DEL", "lock:x"]).expect("it answers");
    server.command::<i64>(&["HSET", "lock:x", "uuid:1", "1"]).expect("it answers");
    blocking::wait(held.lost());
    assert!(blocking::wait(held.release()).is_err());
    assert_eq!(server.command::<String>(&["HGET", "lock:x", "uuid:1"]).expect("it answers"), "1");
}

fn without_end() {
    let server = server();
    server.command::<()>(&["SET", "lock:x", "somebody"]).expect("it answers");
    let a = locker(&server.url());
    let error = blocking::wait(a.lock("x").wait(ms(300)).acquire()).expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let status = blocking::wait(a.inspect("x")).expect("a status");
    let holder = status.holder.expect("somebody holds it");
    assert_eq!((holder.token, holder.owner, holder.expires_in), (None, None, None));
    assert_eq!(server.command::<String>(&["GET", "lock:x"]).expect("it answers"), "somebody");
}

/// The first in line is told, or asks; the others keep still.
fn deletion(user: &str, most: u64) {
    let server = server_with(Options { users: vec![user.into()], ..Options::default() });
    let url = server.url_as("jobs", "any");
    server.command::<()>(&["SET", "lock:x", "somebody"]).expect("it answers");
    let (a, b) = (locker(&url), locker(&url));
    let first = Waiter::start(&a, "x", TTL, LONG);
    in_line(&server, "x", 1);
    let second = Waiter::start(&b, "x", TTL, LONG);
    in_line(&server, "x", 2);
    pass(ms(500));
    let before = scripts(&server);
    pass(ms(4000));
    let rate = (scripts(&server) - before) / 4;
    println!("two wait for a foreign key: {rate} scripts a second");
    assert!(rate < most, "{rate} a second");
    let deleted = now();
    server.command::<i64>(&["DEL", "lock:x"]).expect("it answers");
    let (guard, at) = first.granted();
    println!("its deletion was noticed after {:?}", at.since(deleted));
    assert!(at.since(deleted) < ms(150), "{:?}", at.since(deleted));
    give(guard);
    give(second.granted().0);
    nothing_is_left(&server, ms(0));
}

fn expiry() {
    let server = server();
    server.command::<()>(&["SET", "lock:x", "somebody", "PX", "1200"]).expect("it answers");
    let set = now();
    let (guard, at) = Waiter::start(&locker(&server.url()), "x", TTL, LONG).granted();
    let took = at.since(set);
    println!("an expiry after 1.2s was noticed after {took:?}");
    assert!(took > ms(1190) && took < ms(1350), "{took:?}");
    give(guard);
}

/// A client that does not stand in line takes the lock again as soon as it can. Fairness with it is not promised; that we
/// are not shut out is.
fn busy() {
    let server = server();
    let mut other = server.connection(LONG).expect("a connection");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            let (mut grants, mut tries) = (0u32, 0u32);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let set =
                    redis::cmd("SET").arg("lock:x").arg("other").arg("NX").arg("PX").arg(3000).to_owned();
                let got: Option<String> = set.query(&mut other).expect("it answers");
                tries += 1;
                if got.is_some() {
                    grants += 1;
                    pass(ms(5));
                    redis::cmd("DEL").arg("lock:x").query::<i64>(&mut other).expect("it answers");
                }
                pass(ms(5));
            }
            (grants, tries)
        });
        let a = locker(&server.url());
        let started = now();
        let mut ours = 0;
        while now().since(started) < ms(4000) {
            give(take(&a, "x", TTL));
            ours += 1;
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let (theirs, tries) = storm.join().expect("no panic");
        println!("in 4 s a client without a queue had {theirs} of {tries} tries, we had {ours}");
        assert!(ours > 10 && theirs > 10, "{ours} {theirs}");
    });
}
