//! The server's wall clock steps by an hour while locks are held and waited for.

use std::sync::Arc;
use std::time::Duration;

use fencepost::blocking;
use fencepost_lab::server::Clock;
use fencepost_lab::server::redis::{Options, Redis};

use crate::Tests;
use crate::process::Client;
use crate::scene::{LONG, Waiter, give, in_line, locker, ms, now, pass, server_with, take};

pub(crate) const TESTS: Tests = &[
    ("an_hour_ahead_frees_the_lock_and_tells", ahead),
    ("an_hour_back_keeps_the_lock_and_the_line", back),
    ("an_hour_back_behind_one_who_is_frozen", back_behind_frozen),
    ("an_hour_back_behind_one_who_cannot_be_told", back_behind_mute),
    ("there_and_back_tokens_rise", to_and_fro),
];

const HOUR: Duration = Duration::from_secs(3600);
const TTL: Duration = ms(6000);

fn stepping(users: &[&str]) -> (Arc<Clock>, Redis) {
    let clock = Arc::new(Clock::new().expect("a clock"));
    let users = users.iter().map(ToString::to_string).collect();
    let server = server_with(Options { clock: Some(Arc::clone(&clock)), users, ..Options::default() });
    (clock, server)
}

fn ahead() {
    let (clock, server) = stepping(&[]);
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", TTL);
    let next = Waiter::start(&b, "x", TTL, LONG);
    let third = Waiter::start(&a, "x", TTL, LONG);
    in_line(&server, "x", 2);
    clock.forward(HOUR).expect("it steps");
    let fault = now();
    blocking::wait(held.lost());
    let told = now().since(fault);
    let (token, waiters) = (held.token(), [next, third]);
    let turns = waiters.map(|waiter| {
        std::thread::spawn(move || {
            let (guard, at) = waiter.granted();
            let token = guard.token();
            give(guard);
            (token, at)
        })
    });
    for turn in turns {
        let (later, at) = turn.join().expect("no panic");
        println!("an hour ahead: told in {told:?}, next in {:?}", at.since(fault));
        assert!(later > token && at.since(fault) < ms(13_000), "{:?}", at.since(fault));
    }
    assert!(told < TTL / 3 + ms(500), "{told:?}");
    drop(held);
}

fn back() {
    let (clock, server) = stepping(&[]);
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", TTL);
    let next = Waiter::start(&b, "x", TTL, LONG);
    in_line(&server, "x", 1);
    let third = Waiter::start(&a, "x", TTL, LONG);
    in_line(&server, "x", 2);
    clock.back(HOUR).expect("it steps");
    pass(TTL / 2);
    assert!(held.is_held());
    let (mut token, mut released) = (held.token(), now());
    give(held);
    for waiter in [next, third] {
        let (guard, at) = waiter.granted();
        assert!(guard.token() > token && at.since(released) < ms(100), "{:?}", at.since(released));
        (token, released) = (guard.token(), now());
        give(guard);
    }
}

/// The offer of the free lock was made at a time that is an hour away when it is looked at.
fn back_behind_frozen() {
    let (clock, server) = stepping(&[]);
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", TTL);
    let client = Client::waits(&server.url(), "x");
    in_line(&server, "x", 1);
    let next = Waiter::start(&b, "x", TTL, LONG);
    in_line(&server, "x", 2);
    client.stop();
    let (token, released) = (held.token(), now());
    give(held);
    clock.back(HOUR).expect("it steps");
    let (guard, at) = next.granted();
    println!("an hour back behind a stopped waiter: {:?}", at.since(released));
    assert!(guard.token() > token && at.since(released) < ms(1000), "{:?}", at.since(released));
    give(guard);
}

/// Without the right to publish only the heartbeat tells who is dead, and that of the dead one lies in the future now.
fn back_behind_mute() {
    let (clock, server) = stepping(&["mute on nopass ~* resetchannels +@all"]);
    let url = server.url_as("mute", "any");
    let (a, b) = (locker(&url), locker(&url));
    let held = take(&a, "x", TTL);
    let mut client = Client::waits(&url, "x");
    in_line(&server, "x", 1);
    let next = Waiter::start(&b, "x", TTL, LONG * 3);
    in_line(&server, "x", 2);
    client.kill();
    clock.back(HOUR).expect("it steps");
    let (token, released) = (held.token(), now());
    give(held);
    let (guard, at) = next.granted();
    println!("an hour back behind a dead waiter that cannot be told: {:?}", at.since(released));
    assert!(guard.token() > token && at.since(released) < ms(35_000), "{:?}", at.since(released));
    give(guard);
}

fn to_and_fro() {
    let (clock, server) = stepping(&[]);
    let a = locker(&server.url());
    let mut last = None;
    for step in 0..6 {
        for lock in ["x", "y"] {
            let guard = take(&a, lock, TTL);
            let token = guard.token();
            give(guard);
            if lock == "x" {
                assert!(Some(token) > last, "step {step}");
                last = Some(token);
            }
        }
        if step % 2 == 0 { clock.forward(HOUR) } else { clock.back(HOUR * 2) }.expect("it steps");
    }
}
