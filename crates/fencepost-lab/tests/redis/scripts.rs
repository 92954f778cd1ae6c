//! Scripts are forgotten by the server, and clients of two versions share a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fencepost::driver::{Fail, Fut};
use fencepost::redis::{Client, Command, Listener, Options, Reply, Transport};
use fencepost::{Locker, blocking};
use fencepost_lab::history::Recorder;

use crate::Tests;
use crate::player::{Player, in_order};
use crate::scene::{LONG, Waiter, give, host, in_line, locker, ms, nothing_is_left, now, pass, server, take};

pub(crate) const TESTS: Tests = &[
    ("are_forgotten_before_each_step", forgotten),
    ("are_forgotten_all_the_time", forgotten_always),
    ("of_two_versions_live_side_by_side", versions),
    ("a_value_of_a_later_layout_is_waited_for", later_layout),
];

const TTL: Duration = ms(900);

fn forgotten() {
    let server = server();
    let forget = || server.command::<()>(&["SCRIPT", "FLUSH"]).expect("it answers");
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    forget();
    let held = take(&a, "x", TTL);
    forget();
    let next = Waiter::start(&b, "x", TTL, LONG);
    in_line(&server, "x", 1);
    forget();
    // Renewals go out twice in this time.
    pass(TTL * 2 / 3);
    forget();
    pass(TTL);
    assert!(held.is_held());
    forget();
    blocking::wait(a.inspect("x")).expect("a status");
    let released = now();
    forget();
    give(held);
    forget();
    let (guard, at) = next.granted();
    assert!(at.since(released) < ms(100), "{:?}", at.since(released));
    forget();
    blocking::wait(a.force_unlock("x")).expect("forced");
    blocking::wait(guard.lost());
    nothing_is_left(&server, TTL);
}

fn forgotten_always() {
    let server = server();
    let (recorder, events) = Recorder::memory();
    let players = ["a", "b", "c"].map(|lane| Player::new(lane, locker(&server.url()), &recorder));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                server.command::<()>(&["SCRIPT", "FLUSH", "ASYNC"]).expect("it answers");
            }
        });
        let plays = players.each_ref().map(|player| {
            scope.spawn(move || {
                for _ in 0..100 {
                    let held = player.acquire("x", TTL, LONG).expect("the lock");
                    player.release(held).expect("it is held");
                }
            })
        });
        let _ = plays.map(|play| play.join().expect("no panic"));
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(in_order(&events), 300);
    nothing_is_left(&server, TTL);
}

/// A client whose scripts have another text, and so another hash.
struct OtherVersion(Client);

impl Transport for OtherVersion {
    fn send(&self, mut commands: Vec<Command>) -> Fut<'_, Result<Vec<Reply>, Fail>> {
        let mut unknown = Vec::new();
        for (index, command) in commands.iter_mut().enumerate() {
            let words: Vec<_> = command.words().collect();
            match words[..] {
                // Never by the hash, which is that of the present version.
                [b"EVALSHA", ..] => unknown.push(index),
                [b"EVAL", text, ref rest @ ..] => {
                    let eval = Command::new("EVAL").arg([text, b"\n-- another version"].concat());
                    *command = rest.iter().fold(eval, Command::arg);
                }
                _ => {}
            }
        }
        if unknown.is_empty() {
            return self.0.send(commands);
        }
        let no_script = || Reply::Error { code: "NOSCRIPT".into(), text: String::new() };
        Box::pin(async move { Ok((0..commands.len()).map(|_| no_script()).collect()) })
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> Fut<'a, Result<bool, Fail>> {
        self.0.subscribe(channel)
    }

    fn tracks(&self) -> bool {
        self.0.tracks()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.0.listen(listener);
    }

    fn greet(&self, commands: Vec<Command>) {
        self.0.greet(commands);
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

fn versions() {
    let server = server();
    let options = Options::from_url(server.url().parse().expect("a url")).expect("options");
    let transport = Arc::new(OtherVersion(Client::new(options.clone(), host())));
    let driver = blocking::wait(fencepost::redis::driver(transport, options, host())).expect("it connects");
    let (other, this) = (Locker::from_parts(driver, host()), locker(&server.url()));
    let (recorder, events) = Recorder::memory();
    let players =
        [("other", other), ("this", this)].map(|(lane, locker)| Player::new(lane, locker, &recorder));
    thread::scope(|scope| {
        for player in &players {
            scope.spawn(move || {
                for _ in 0..100 {
                    let held = player.acquire("x", TTL, LONG).expect("the lock");
                    player.release(held).expect("it is held");
                }
            });
        }
    });
    assert_eq!(in_order(&events), 200);
    let texts: String = server.command(&["INFO", "memory"]).expect("it answers");
    let count =
        texts.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:")).expect("a count");
    assert!(count.trim().parse::<u32>().expect("a number") >= 4, "two of each: {count}");
    nothing_is_left(&server, TTL);
}

/// As a foreign client's: it is respected, and its end is noticed.
fn later_layout() {
    let server = server();
    let value = "fp2 0123456789abcdef0123456789abcdef 17 and more";
    server.command::<()>(&["SET", "lock:x", value, "PX", "700"]).expect("it answers");
    let set = now();
    let a = locker(&server.url());
    let error = blocking::wait(a.lock("x").try_acquire()).expect_err("it is held");
    assert_eq!(error.kind(), fencepost::ErrorKind::Timeout, "{error}");
    assert!(blocking::wait(a.inspect("x")).expect("a status").holder.is_some());
    let (guard, at) = Waiter::start(&a, "x", TTL, LONG).granted();
    let took = at.since(set);
    assert!(took >= ms(690) && took < ms(900), "{took:?}");
    give(guard);
}
