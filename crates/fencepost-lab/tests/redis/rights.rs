//! Users who may do less: what a lock needs, and what becomes of the rest.

use std::time::Duration;

use fencepost::{Error, ErrorKind, Locker, blocking};
use fencepost_lab::server::redis::{Options, Redis};

use crate::Tests;
use crate::dead::insert;
use crate::scene::{
    LONG, Waiter, calls, give, in_line, locker, ms, nothing_is_left, now, pass, scripts, server_with, take,
};

pub(crate) const TESTS: Tests = &[
    ("the_least_that_docs_tell_is_enough", least),
    ("each_command_of_the_least_is_needed", needed),
    ("without_channels_the_lock_is_passed_on_by_asking", mute),
    ("who_was_refused_listens_again_over_the_next_connection", listens_again),
    ("without_tracking_a_deletion_is_told_by_the_renewal", untracked),
    ("without_info_and_config_nothing_fails", no_info),
    ("without_hello_all_is_done_by_asking", no_hello),
    ("without_companion_keys_it_is_denied", no_companions),
];

const TTL: Duration = ms(1500);

/// What docs/redis.md tells to write into an ACL.
fn documented() -> String {
    let text = include_str!("../../../../docs/redis.md");
    let line =
        text.lines().find_map(|line| line.trim().strip_prefix("ACL SETUSER jobs ")).expect("the rules");
    format!("jobs {}", line.replace(">PASSWORD", "nopass"))
}

fn with(user: &str) -> Redis {
    server_with(Options { users: vec![user.into()], ..Options::default() })
}

/// How those who wait for a lock of somebody else's keep up with it.
#[derive(Debug)]
struct Wait {
    /// How long the lock took from the one to the other.
    took: Duration,
    /// How many scripts ran while nothing happened, a few renewals among them.
    scripts: u64,
}

impl Wait {
    /// It was told: whoever asks does so ten times a second at least.
    #[track_caller]
    fn is_told(&self) {
        assert!(self.took < ms(500) && self.scripts < 10, "{self:?}");
    }

    #[track_caller]
    fn asks(&self) {
        assert!(self.scripts > 10, "{self:?}");
    }
}

/// The whole life of a lock and of one who waits for it.
fn live(server: &Redis, user: &str) -> Wait {
    let url = server.url_as(user, "any");
    let (a, b) = (locker(&url), locker(&url));
    let held = take(&a, "orders/4821", TTL);
    let next = Waiter::start(&b, "orders/4821", TTL, LONG);
    in_line(server, "orders/4821", 1);
    let waiters = blocking::wait(a.inspect("orders/4821")).expect("a status").waiters;
    assert!(matches!(waiters.as_slice(), [Some(_)]), "{waiters:?}");
    let before = scripts(server);
    pass(TTL);
    let scripts = scripts(server) - before;
    assert!(held.is_held(), "it is renewed");
    let (token, released) = (held.token(), now());
    give(held);
    let (guard, at) = next.granted();
    assert!(guard.token() > token);
    blocking::wait(a.inspect("orders/4821")).expect("a status");
    assert_eq!(blocking::wait(a.list("orders/")).expect("a list").len(), 1);
    blocking::wait(a.force_unlock("orders/4821")).expect("forced out");
    blocking::wait(guard.lost());
    nothing_is_left(server, ms(0));
    Wait { took: at.since(released), scripts }
}

fn least() {
    let server = with(&documented());
    let locker = locker(&server.url_as("jobs", "any"));
    assert_eq!(locker.about().notice, None);
    live(&server, "jobs").is_told();
    everything(&server, "jobs").expect("it may do all that is needed");
    let denied: Vec<Vec<redis::Value>> = server.command(&["ACL", "LOG"]).expect("it answers");
    assert!(denied.is_empty(), "{denied:?}");
}

/// As [`live`], up to the first refusal, and with one dead in the line.
fn everything(server: &Redis, user: &str) -> Result<(), Error> {
    let url = &server.url_as(user, "any");
    let (a, b) = (blocking::wait(Locker::connect(url))?, blocking::wait(Locker::connect(url))?);
    let held = blocking::wait(a.lock("x").ttl(TTL).acquire())?;
    insert(server, "queue", 1, 18_000);
    let next = Waiter::start(&b, "x", TTL, LONG);
    pass(TTL / 2);
    blocking::wait(a.inspect("x"))?;
    blocking::wait(held.release())?;
    let guard = next.outcome().0?;
    blocking::wait(a.list(""))?;
    blocking::wait(guard.release())
}

/// None of the documented commands could be left out: each denial is seen by the server, if not by the user.
fn needed() {
    let rules = documented();
    let commands: Vec<&str> = rules.split(' ').filter(|word| word.starts_with('+')).collect();
    assert!(commands.len() > 10, "{commands:?}");
    std::thread::scope(|scope| {
        for command in commands {
            let fewer: Vec<&str> = rules.split(' ').filter(|word| *word != command).collect();
            scope.spawn(move || {
                let server = with(&fewer.join(" "));
                // Whatever comes of it, the server has noted that something was missed.
                let _ = everything(&server, "jobs");
                let log: Vec<redis::Value> = server.command(&["ACL", "LOG"]).expect("it answers");
                assert!(!log.is_empty(), "{command} is not needed");
            });
        }
    });
}

fn listens_again() {
    let server = with("jobs on nopass ~* &* +@all -subscribe");
    let url = server.url_as("jobs", "any");
    let (a, b) = (locker(&url), locker(&url));
    let held = take(&a, "x", TTL);
    let next = Waiter::start(&b, "x", TTL, LONG);
    in_line(&server, "x", 1);
    let asked = || {
        let before = scripts(&server);
        pass(TTL);
        scripts(&server) - before
    };
    let refused = asked();
    server.command::<()>(&["ACL", "SETUSER", "jobs", "+subscribe"]).expect("it answers");
    server.command::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]).expect("it answers");
    pass(ms(500));
    let told = asked();
    assert!(refused > 10 && told < 10, "{refused} scripts, then {told}");
    give(held);
    give(next.granted().0);
}

fn mute() {
    let server = with("jobs on nopass ~* resetchannels +@all");
    let a = locker(&server.url_as("jobs", "any"));
    let notice = a.about().notice.expect("it is said");
    assert!(notice.contains("fencepost:wake:*") && notice.contains("polling"), "{notice}");
    let waits: Vec<Wait> = (0..5).map(|_| live(&server, "jobs")).collect();
    println!("without channels: {waits:?}");
    waits.iter().for_each(Wait::asks);
    let took = |wait: &Wait| wait.took;
    assert!(waits.iter().map(took).min() < Some(ms(150)) && waits.iter().map(took).max() < Some(ms(500)));
}

fn untracked() {
    let server = with("jobs on nopass ~* &* +@all -client|tracking");
    let ttl = ms(3000);
    let a = locker(&server.url_as("jobs", "any"));
    let held = take(&a, "x", ttl);
    pass(ttl / 2);
    let fault = now();
    server.command::<i64>(&["DEL", "lock:x"]).expect("it answers");
    blocking::wait(held.lost());
    let after = now().since(fault);
    println!("without tracking, told of a deletion after {after:?}");
    assert!(after < ttl / 3 + ms(300), "{after:?}");
    drop(held);
    live(&server, "jobs").is_told();
}

fn no_info() {
    let server = with("jobs on nopass ~* &* +@all -info -config -client|setname");
    live(&server, "jobs").is_told();
    assert_eq!(calls(&server).get("config|get"), None, "nobody asks for what may be forbidden");
}

/// As of a proxy or a server that knows no RESP3: nothing can be pushed.
fn no_hello() {
    let extra = vec!["rename-command HELLO \"\"".into()];
    let server = server_with(Options { extra, password: Some("any".into()), ..Options::default() });
    live(&server, "default").asks();
}

fn no_companions() {
    let server = with("jobs on nopass ~lock:* &* +@all");
    let url = server.url_as("jobs", "any");
    let outcome = blocking::wait(async { Locker::connect(&url).await?.lock("x").ttl(TTL).acquire().await });
    let error = outcome.expect_err("its companions are out of reach");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("~{lock:*"), "it names the fix: {error}");
    let left: Vec<String> = server.command(&["KEYS", "{lock:*"]).expect("it answers");
    assert!(
        left.is_empty() && !server.command::<bool>(&["EXISTS", "lock:x"]).expect("it answers"),
        "{left:?}"
    );
}
