//! Those who stand in line and will never come: gone, frozen, and a thousand of them.

use std::time::Duration;

use fencepost::{ErrorKind, blocking};
use fencepost_lab::server::redis::Redis;
use nix::sys::signal::Signal::SIGCONT;

use crate::Tests;
use crate::process::Client;
use crate::scene::{
    LONG, Waiter, give, in_line, locker, ms, nothing_is_left, nothing_stays, now, pass, server, take, until,
};

pub(crate) const TESTS: Tests = &[
    ("one_who_is_gone_costs_nothing", gone),
    ("one_who_is_frozen_costs_half_a_second", frozen),
    ("one_who_is_frozen_is_not_overtaken_at_once", overtaken),
    ("one_who_thaws_gets_its_turn", thawed),
    ("a_thousand_who_are_gone", || thousand(18_000)),
    ("a_thousand_who_have_lapsed", || thousand(-1)),
    ("in_a_line_that_is_never_empty_are_forgotten", forgotten),
    ("a_holder_who_is_gone_costs_its_lease", holder),
];

/// How long the lock takes from the one who gives it back to the next who lives.
fn hand_over(
    server: &Redis,
    lock: &str,
    before: impl FnOnce() -> Client,
    fate: impl FnOnce(&mut Client),
) -> Duration {
    let url = server.url();
    let (a, b) = (locker(&url), locker(&url));
    let held = take(&a, lock, LONG);
    let mut client = before();
    in_line(server, lock, 1);
    let next = Waiter::start(&b, lock, LONG, LONG);
    in_line(server, lock, 2);
    fate(&mut client);
    let token = held.token();
    let released = now();
    give(held);
    let (guard, at) = next.granted();
    assert!(guard.token() > token);
    give(guard);
    at.since(released)
}

fn gone() {
    let server = server();
    let took = hand_over(&server, "x", || Client::waits(&server.url(), "x"), Client::kill);
    println!("behind a waiter that was killed: {took:?}");
    assert!(took < ms(100), "{took:?}");
    nothing_stays(&server, ms(0));
}

fn frozen() {
    let server = server();
    let took = hand_over(&server, "x", || Client::waits(&server.url(), "x"), |client| client.stop());
    println!("behind a waiter that was stopped: {took:?}");
    assert!(took >= ms(450) && took < ms(900), "{took:?}");
}

/// The lock is free and was offered to the first in line: whoever comes now has to stand behind it.
fn overtaken() {
    let server = server();
    let url = server.url();
    let (a, b) = (locker(&url), locker(&url));
    let held = take(&a, "x", LONG);
    let mut client = Client::waits(&url, "x");
    in_line(&server, "x", 1);
    client.stop();
    give(held);
    let newcomer = blocking::wait(b.lock("x").ttl(LONG).try_acquire());
    assert!(newcomer.is_err_and(|error| error.kind() == ErrorKind::Timeout), "the line was ignored");
    client.signal(SIGCONT);
    assert!(client.line().starts_with("granted"));
    client.kill();
}

/// It was passed over; when it goes on it has not lost its place.
fn thawed() {
    let server = server();
    let url = server.url();
    let (a, b) = (locker(&url), locker(&url));
    let held = take(&a, "x", LONG);
    let mut client = Client::waits(&url, "x");
    in_line(&server, "x", 1);
    client.stop();
    let next = Waiter::start(&b, "x", LONG, LONG);
    in_line(&server, "x", 2);
    let last = Waiter::start(&a, "x", LONG, LONG);
    in_line(&server, "x", 3);
    give(held);
    let (guard, _) = next.granted();
    client.signal(SIGCONT);
    // It asks again, and is put back where it was: before the last.
    pass(ms(300));
    let token = guard.token().get();
    give(guard);
    let line = client.line();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words[0] == "granted" && words[1].parse::<u64>().expect("a token") > token, "{line}");
    client.kill();
    // The last one waits for no more than the lease of the one who was killed.
    give(last.granted().0);
    nothing_is_left(&server, ms(2000));
}

/// Puts members whose lockers nobody listens for into the queue of lock `x`, or aside.
pub(crate) fn insert(server: &Redis, place: &str, count: u64, beat_in_ms: i64) {
    let script = "local now = redis.call('TIME')[1] * 1000 \
         for i = 1, tonumber(ARGV[1]) do \
             local locker = string.format('%016x', i) \
             local member = locker .. string.format('%032x', i) \
             redis.call('ZADD', KEYS[1], i, member) \
             redis.call('ZADD', KEYS[2], now + tonumber(ARGV[2]), locker) \
             redis.call('HSET', KEYS[3], member, '{}') \
         end return 0";
    let place = format!("{{lock:x}}:{place}");
    let (count, beat) = (count.to_string(), beat_in_ms.to_string());
    let words = ["EVAL", script, "3", &place, "{lock:x}:beat", "{lock:x}:who", &count, &beat];
    server.command::<i64>(&words).expect("it does as it is told");
}

/// A thousand who will never come, ahead of one who will.
fn thousand(beat_in_ms: i64) {
    const COUNT: u64 = 1000;
    let server = server();
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", LONG);
    insert(&server, "queue", COUNT, beat_in_ms);
    let next = Waiter::start(&b, "x", LONG, LONG);
    living_is_last_of(&server, COUNT as usize + 1);
    server.command::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]).expect("it answers");
    server.command::<()>(&["CONFIG", "SET", "slowlog-max-len", "10000"]).expect("it answers");
    server.command::<()>(&["SLOWLOG", "RESET"]).expect("it answers");
    let released = now();
    give(held);
    let (guard, at) = next.granted();
    let log: Vec<(u64, u64, u64, Vec<String>, String, String)> =
        server.command(&["SLOWLOG", "GET", "10000"]).expect("it answers");
    let mut scripts: Vec<u64> =
        log.iter().filter(|entry| entry.3[0].starts_with("EVAL")).map(|entry| entry.2).collect();
    scripts.sort_unstable();
    // The server may be kept from the processor during a few of them.
    let (took, slowest) = (at.since(released), scripts[scripts.len() * 9 / 10]);
    println!(
        "behind {COUNT} dead, beat {beat_in_ms}: {took:?}, {} scripts, nine of ten within {slowest} us",
        scripts.len()
    );
    assert!(took < ms(1000), "{took:?}");
    assert!(slowest < 5000, "{slowest}");
    // Each of the dead was asked once, in a number of scripts that follows theirs.
    assert!(scripts.len() < COUNT as usize / 8, "{}", scripts.len());
    // Those who were passed over cost the next one nothing.
    let again = Waiter::start(&a, "x", LONG, LONG);
    pass(ms(100));
    let released = now();
    give(guard);
    let (guard, at) = again.granted();
    assert!(at.since(released) < ms(300), "{:?}", at.since(released));
    give(guard);
}

fn living_is_last_of(server: &Redis, count: usize) {
    until("the living one in line", LONG, || {
        let size: usize = server.command(&["HLEN", "{lock:x}:who"]).expect("it answers");
        let living: Vec<String> =
            server.command(&["ZRANGE", "{lock:x}:queue", "-1", "-1"]).expect("it answers");
        (size <= count && living.first().is_some_and(|member| !member.starts_with("000000000000")))
            .then_some(())
    });
}

/// Else each of them would take some memory for as long as there is always somebody who waits.
fn forgotten() {
    let server = server();
    let lockers: Vec<_> = (0..5).map(|_| locker(&server.url())).collect();
    let held = take(&lockers[0], "x", LONG);
    insert(&server, "aside", 12, -1);
    let mut waiters = Vec::new();
    for (number, locker) in lockers[1..].iter().enumerate() {
        waiters.push(Waiter::start(locker, "x", LONG, LONG));
        until("in line", LONG, || {
            let size: usize = server.command(&["ZCARD", "{lock:x}:queue"]).expect("it answers");
            (size == number + 1).then_some(())
        });
    }
    let count = |command: &str, key: &str| server.command::<usize>(&[command, key]).expect("it answers");
    until("only the living are known", ms(1000), || {
        let found = ["aside", "beat"].map(|end| count("ZCARD", &format!("{{lock:x}}:{end}")));
        ((found, count("HLEN", "{lock:x}:who")) == ([0, 4], 4)).then_some(())
    });
    give(held);
    for waiter in waiters {
        give(waiter.granted().0);
    }
    nothing_is_left(&server, ms(0));
}

fn holder() {
    let server = server();
    let mut client = Client::waits(&server.url(), "x");
    assert!(client.line().starts_with("granted"));
    let next = Waiter::start(&locker(&server.url()), "x", LONG, LONG);
    in_line(&server, "x", 1);
    client.kill();
    let killed = now();
    let (guard, at) = next.granted();
    // Its lease of two seconds was last renewed up to a third of it before.
    let took = at.since(killed);
    assert!(took > ms(1000) && took < ms(2300), "{took:?}");
    give(guard);
}
