//! Where locks are kept: addresses, databases, prefixes, and TLS.

use std::time::Duration;

use fencepost::{ErrorKind, Locker, blocking};
use fencepost_lab::server::certificates::Certificates;
use fencepost_lab::server::redis::{Options, Tls};

use crate::Tests;
use crate::scene::{LONG, Waiter, give, in_line, locker, ms, now, pass, server, server_with, take, until};

pub(crate) const TESTS: Tests = &[
    ("ipv6", ipv6),
    ("databases_are_apart", databases),
    ("databases_wake_their_own", databases_wake),
    ("prefixes_are_apart", prefixes),
    ("without_a_prefix_the_name_is_the_key", no_prefix),
    ("lineages_are_named_or_kept", lineages),
    ("tls_with_a_certificate_and_a_user", tls),
];

const TTL: Duration = ms(5000);

fn ipv6() {
    let server = server_with(Options { extra: vec!["bind ::1 127.0.0.1".into()], ..Options::default() });
    let (six, four) = (locker(&format!("redis://[::1]:{}", server.addr().port())), locker(&server.url()));
    assert_eq!(six.about().backend, format!("redis://[::1]:{}/0", server.addr().port()));
    let held = take(&six, "x", TTL);
    let next = Waiter::start(&four, "x", TTL, LONG);
    in_line(&server, "x", 1);
    give(held);
    give(next.granted().0);
}

fn databases() {
    let server = server();
    let (zero, one) = (locker(&server.url()), locker(&format!("{}/1", server.url())));
    let (held, other) = (take(&zero, "x", TTL), take(&one, "x", TTL));
    assert_ne!(held.lineage(), other.lineage(), "their tokens do not compare");
    give(held);
    assert!(other.is_held());
    assert!(blocking::wait(one.lock("x").try_acquire()).is_err());
    give(other);
    let error = blocking::wait(Locker::connect(&format!("{}/99", server.url()))).err().expect("there are 16");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("database"), "{error}");
}

/// Channels know no databases: what is told in one must not be taken for the other's.
fn databases_wake() {
    let server = server();
    let lockers = [0, 1].map(|number| locker(&format!("{}/{number}", server.url())));
    let held = lockers.each_ref().map(|locker| take(locker, "x", TTL));
    let next = lockers.each_ref().map(|locker| Waiter::start(locker, "x", TTL, LONG));
    for (held, next) in held.into_iter().zip(next) {
        pass(ms(100));
        let released = now();
        give(held);
        let (guard, at) = next.granted();
        assert!(at.since(released) < ms(100), "{:?}", at.since(released));
        give(guard);
    }
}

fn prefixes() {
    let server = server();
    let (one, two) = (locker(&server.url()), locker(&format!("{}?prefix=other/", server.url())));
    let (held, other) = (take(&one, "x", TTL), take(&two, "x", TTL));
    assert!(server.command::<bool>(&["EXISTS", "lock:x"]).expect("it answers"));
    assert!(server.command::<bool>(&["EXISTS", "other/x"]).expect("it answers"));
    let names = |locker: &Locker| {
        let found = blocking::wait(locker.list("")).expect("a list");
        found.iter().map(|status| status.lock.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((names(&one), names(&two)), (vec!["x".to_owned()], vec!["x".to_owned()]));
    give(held);
    give(other);
}

fn no_prefix() {
    let server = server();
    let bare = locker(&format!("{}?prefix=", server.url()));
    let held = take(&bare, "jobs:nightly", TTL);
    assert!(server.command::<bool>(&["EXISTS", "jobs:nightly"]).expect("it answers"));
    // The same key under the prefix that makes it the same.
    let same = locker(&format!("{}?prefix=jobs:", server.url()));
    assert!(blocking::wait(same.lock("nightly").try_acquire()).is_err());
    let next = Waiter::start(&same, "nightly", TTL, LONG);
    until("in line", LONG, || {
        (server.command::<u64>(&["ZCARD", "{jobs:nightly}:queue"]).expect("it answers") == 1).then_some(())
    });
    let (token, released) = (held.token(), now());
    give(held);
    let (guard, at) = next.granted();
    assert!(guard.token() > token && at.since(released) < ms(100));
    give(guard);
    for name in ["x:token", "{a}", "a}b"] {
        let error = blocking::wait(bare.lock(name).ttl(TTL).try_acquire()).expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

fn lineages() {
    let server = server();
    let (one, two) = (locker(&server.url()), locker(&server.url()));
    assert_eq!(one.about().lineage, two.about().lineage);
    let named = locker(&format!("{}?lineage=orders-eu", server.url()));
    assert_eq!(named.about().lineage.as_str(), "orders-eu");
    assert_eq!(locker(&server.url()).about().lineage, one.about().lineage, "the first one's name stays");
}

fn tls() {
    let files = Certificates::generate().expect("certificates");
    let tls = Tls { ask_clients: true, ..Tls::from(&files) };
    let users = vec!["jobs on >p@:/%#? ~* &* +@all".replace("p@:/%#?", "p@:/%#?ü"), "default off".into()];
    let server = server_with(Options { tls: Some(tls), users, ..Options::default() });
    let path = |path: std::path::PathBuf| path.display().to_string();
    let whole = format!(
        "{}?ca={}&cert={}&key={}",
        server.url_as("jobs", "p@:/%#?ü"),
        path(files.authority()),
        path(files.client()),
        path(files.client_key())
    );
    let (a, b) = (locker(&whole), locker(&whole));
    assert!(!format!("{:?} {}", a.about(), a.about().backend).contains("p@"));
    let held = take(&a, "x", TTL);
    let next = Waiter::start(&b, "x", TTL, LONG);
    in_line(&server, "x", 1);
    let released = now();
    give(held);
    let (guard, at) = next.granted();
    assert!(at.since(released) < ms(100), "{:?}", at.since(released));
    give(guard);
}
