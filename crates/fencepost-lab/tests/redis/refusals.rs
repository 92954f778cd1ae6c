//! A server that refuses for a while: what is refused says so, what need not be refused goes on, and a wait outlives it.

use std::thread;
use std::time::Duration;

use fencepost::{Error, ErrorKind, Guard, Locker, blocking};
use fencepost_lab::server::redis::{Options, Persistence, Redis};

use crate::Tests;
use crate::scene::{LONG, Waiter, give, in_line, locker, ms, now, pass, server, server_with, take, until};

pub(crate) const TESTS: Tests = &[
    ("memory_is_full", full),
    ("snapshots_fail", misconf),
    ("replicas_are_missing", no_replicas),
    ("a_script_of_others_runs_on", busy),
    ("the_data_is_being_loaded", loading),
    ("the_server_becomes_a_replica", replica),
];

const TTL: Duration = ms(2000);

fn impatient(locker: &Locker, lock: &str) -> Result<Guard, Error> {
    blocking::wait(locker.lock(lock).ttl(TTL).patience(ms(500)).wait(LONG).acquire())
}

#[track_caller]
fn is_unavailable(outcome: Result<Guard, Error>, word: &str) {
    let error = outcome.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains(word) && !text.contains('\n'), "{text}");
}

/// One holds, one waits, one comes; then the condition clears.
fn refuses(server: &Redis, word: &str, break_it: &dyn Fn(), mend_it: &dyn Fn()) {
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", LONG);
    let next = Waiter::start(&b, "x", LONG, LONG);
    in_line(server, "x", 1);
    break_it();
    is_unavailable(impatient(&a, "y"), word);
    let patient = Waiter::start(&b, "y", LONG, LONG);
    pass(ms(300));
    mend_it();
    let mended = now();
    let (guard, at) = patient.granted();
    assert!(at.since(mended) < ms(1500), "{:?}", at.since(mended));
    give(guard);
    assert!(held.is_held());
    let token = held.token();
    give(held);
    let (guard, _) = next.granted();
    assert!(guard.token() > token);
    give(guard);
}

fn config(server: &Redis, key: &str, value: &str) {
    server.command::<()>(&["CONFIG", "SET", key, value]).expect("it answers");
}

fn full() {
    let server =
        server_with(Options { extra: vec!["maxmemory-policy noeviction".into()], ..Options::default() });
    refuses(&server, "OOM", &|| config(&server, "maxmemory", "1"), &|| config(&server, "maxmemory", "0"));
    // What is held can be kept and given back.
    let a = locker(&server.url());
    let (one, two) = (take(&a, "x", TTL), take(&a, "y", TTL));
    let next = Waiter::start(&locker(&server.url()), "x", TTL, LONG);
    in_line(&server, "x", 1);
    config(&server, "maxmemory", "1");
    pass(TTL * 2);
    assert!(one.is_held() && two.is_held(), "they are renewed");
    // An operator can still look, and free what a dead one holds.
    let operator = locker(&server.url());
    assert_eq!(blocking::wait(operator.inspect("x")).expect("a status").waiters.len(), 1);
    give(one);
    give(two);
    assert!(!server.command::<bool>(&["EXISTS", "lock:x", "lock:y"]).expect("it answers"));
    pass(ms(300));
    config(&server, "maxmemory", "0");
    give(next.granted().0);
}

fn misconf() {
    let server = server();
    refuses(
        &server,
        "MISCONF",
        &|| {
            // A snapshot that cannot be written: its name is a directory's.
            let path: Vec<String> = server.command(&["CONFIG", "GET", "dir"]).expect("it answers");
            std::fs::create_dir_all(std::path::Path::new(&path[1]).join("dump.rdb/x")).expect("a directory");
            config(&server, "save", "3600 1");
            server.command::<()>(&["BGSAVE"]).expect("it begins");
            until("the failure", LONG, || {
                let info: String = server.command(&["INFO", "persistence"]).expect("it answers");
                info.contains("rdb_last_bgsave_status:err").then_some(())
            });
        },
        &|| config(&server, "stop-writes-on-bgsave-error", "no"),
    );
}

fn no_replicas() {
    let server = server();
    let set = |count: &'static str| move |server: &Redis| config(server, "min-replicas-to-write", count);
    refuses(&server, "NOREPLICAS", &|| set("1")(&server), &|| set("0")(&server));
}

fn busy() {
    let server = server();
    config(&server, "lua-time-limit", "50");
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", LONG);
    thread::scope(|scope| {
        let mut other = server.connection(LONG).expect("a connection");
        let script =
            scope.spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).query::<i64>(&mut other));
        pass(ms(200));
        is_unavailable(impatient(&b, "y"), "BUSY");
        let patient = Waiter::start(&b, "y", LONG, LONG);
        pass(ms(200));
        server.command::<()>(&["SCRIPT", "KILL"]).expect("it answers");
        script.join().expect("no panic").expect_err("it was killed");
        give(patient.granted().0);
    });
    assert!(held.is_held());
    give(held);
}

fn loading() {
    let mut server = server_with(Options {
        persistence: Persistence::Always,
        // So that loading takes a while: each key takes a millisecond.
        extra: vec![
            "key-load-delay 0".into(),
            "enable-debug-command yes".into(),
            "loading-process-events-interval-bytes 1024".into(),
        ],
        ..Options::default()
    });
    server.command::<()>(&["DEBUG", "POPULATE", "3000", "filler", "10"]).expect("it answers");
    server.command::<()>(&["SAVE"]).expect("it answers");
    let (a, url) = (locker(&server.url()), server.url());
    let held = take(&a, "x", LONG);
    config(&server, "key-load-delay", "500");
    let reload = thread::scope(|scope| {
        let mut other = server.connection(LONG).expect("a connection");
        let reload =
            scope.spawn(move || redis::cmd("DEBUG").arg("RELOAD").arg("NOSAVE").query::<()>(&mut other));
        pass(ms(300));
        is_unavailable(impatient(&a, "y"), "LOADING");
        let error = blocking::wait(Locker::connect(&url)).err();
        let patient = Waiter::start(&a, "y", LONG, LONG);
        reload.join().expect("no panic").expect("it loads");
        give(patient.granted().0);
        error
    });
    let error = reload.expect("a new client is refused too");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("LOADING"), "{error}");
    drop(held);
    server.kill().expect("it runs");
}

fn replica() {
    let server = server();
    let port = fencepost_lab::server::Port::free().expect("a port").number().to_string();
    refuses(
        &server,
        "primary",
        &|| server.command::<()>(&["REPLICAOF", "127.0.0.1", &port]).expect("it answers"),
        &|| server.command::<()>(&["REPLICAOF", "NO", "ONE"]).expect("it answers"),
    );
}
