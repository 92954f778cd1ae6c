//! What cannot work says so in one sentence, which names the fix.

use std::fs;

use fencepost::{Error, ErrorKind, Level, Locker, blocking};
use fencepost_lab::faulty::Fault;
use fencepost_lab::server::certificates::Certificates;
use fencepost_lab::server::etcd::{Etcd, Options, Tls};
use fencepost_lab::server::redis::{self, Redis};

use crate::Tests;
use crate::scene::{LONG, SHORT, faulty, give, line, locker, ms, now, server, server_with, take, until};

pub(crate) const TESTS: Tests = &[
    ("tls_with_and_without_certificates", tls),
    ("an_expired_certificate_is_named", expired),
    ("what_is_no_etcd_is_told_so", no_etcd),
    ("names_that_etcd_would_mix_up_are_apart", names),
    ("a_full_cluster_refuses_and_still_releases", full),
    ("consensus_is_what_it_promises", consensus),
];

fn connect(url: &str) -> Result<Locker, Error> {
    blocking::wait(Locker::connect(url))
}

#[track_caller]
fn refused(url: &str, kind: ErrorKind, word: &str) {
    let start = now();
    let error = connect(url).err().expect("it is refused");
    assert_eq!(error.kind(), kind, "{url}: {error}");
    let text = error.to_string();
    assert!(text.contains(word) && !text.contains('\n'), "{url}: {text}");
    assert!(now().since(start) < ms(7000), "{url}: told after {:?}", now().since(start));
}

fn secure(certificates: &Certificates, ask_clients: bool) -> Etcd {
    server_with(Options { tls: Some(Tls { ask_clients, ..certificates.into() }), ..Options::default() })
}

fn tls() {
    let certificates = Certificates::generate().expect("they can be written");
    let open = secure(&certificates, false);
    give(take(&locker(&open.url()), "x", LONG));
    let other = Certificates::generate().expect("they can be written");
    let (addr, ca) = (open.addr(0), other.authority());
    refused(&format!("etcds://{addr}?ca={}", ca.display()), ErrorKind::Denied, "certificate");
    refused(&format!("etcd://{addr}"), ErrorKind::Unavailable, "etcds://");
    let asking = secure(&certificates, true);
    give(take(&locker(&asking.url()), "x", LONG));
    let nameless = format!("etcds://{}?ca={}", asking.addr(0), certificates.authority().display());
    // Its alert may come after the end of the connection; the fix is named all the same.
    let error = connect(&nameless).err().expect("it shows no certificate");
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{error}");
    assert!(error.to_string().contains("cert=") && !error.to_string().contains('\n'), "{error}");
    refused(&format!("etcds://{}?ca=/nowhere", open.addr(0)), ErrorKind::Invalid, "/nowhere");
    let plain = server();
    let url = format!("etcds://{}?ca={}", plain.addr(0), certificates.authority().display());
    refused(&url, ErrorKind::Unavailable, "TLS");
}

fn expired() {
    let certificates = Certificates::expired().expect("they can be written");
    refused(&secure(&certificates, false).url(), ErrorKind::Denied, "xpired");
}

fn no_etcd() {
    let other = Redis::start(redis::Options::default()).expect("redis-server starts");
    refused(&format!("etcd://{}", other.addr()), ErrorKind::Unavailable, "etcd");
    let home = fencepost_lab::server::home("no-etcd").expect("a directory");
    fs::write(home.path().join("ca.pem"), "no certificate").expect("it can be written");
    let ca = home.path().join("ca.pem");
    refused(&format!("etcds://127.0.0.1:1?ca={}", ca.display()), ErrorKind::Invalid, "ca.pem");
    refused("etcd://127.0.0.1:1", ErrorKind::Unavailable, "127.0.0.1:1");
}

/// `a` does not wait for `ab`, nor `orders` for `orders/4821`; with `names=raw` it does, as `etcdctl lock` does.
fn names() {
    let server = server();
    let escaped = locker(&server.url());
    let guards =
        ["orders", "orders/4821", "orders%2F4821", "order", "a", "ab"].map(|name| take(&escaped, name, LONG));
    assert_eq!(line(&server, "orders").len(), 1);
    assert_eq!(line(&server, "orders%2F4821").len(), 1);
    assert_eq!(line(&server, "orders%252F4821").len(), 1);
    guards.into_iter().for_each(give);
    let raw = locker(&format!("{}?names=raw", server.url()));
    let inner = take(&raw, "orders/4821", LONG);
    assert_eq!(line(&server, "orders/4821").len(), 1);
    let error = blocking::wait(raw.lock("orders").ttl(LONG).try_acquire()).expect_err("as etcdctl");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    give(inner);
    for name in ["", "/a", "a/", "a//b", "a/./b", "a\u{7}b"] {
        let error = blocking::wait(raw.lock(name).ttl(LONG).acquire()).expect_err("no lock has such a name");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name:?}: {error}");
    }
    for ttl in [ms(0), ms(99)] {
        let error = blocking::wait(raw.lock("x").ttl(ttl).acquire()).expect_err("no lease is so short");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

/// No space: nothing can be entered, and what is held can be given back, also if one of its requests may still be on its way.
fn full() {
    let extra = vec!["--quota-backend-bytes=1048576".into()];
    let server = server_with(Options { extra, ..Options::default() });
    let client = locker(&server.url());
    let held = take(&client, "held", LONG);
    let (unsure, faults) = faulty(&server.url());
    faults.arm("enter", Fault::LoseReply);
    let doubtful = take(&unsure, "doubtful", LONG);
    let big = "x".repeat(100_000);
    let refused = (0..50).find_map(|i| server.command(&["put", &format!("big-{i}"), &big]).err());
    assert!(refused.expect("it is full").to_string().contains("space"));
    let error =
        blocking::wait(client.lock("x").ttl(LONG).patience(ms(500)).acquire()).expect_err("it is full");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("space"), "{error}");
    give(held);
    assert!(line(&server, "held").is_empty());
    // That no late request brings it back cannot be written down, so it is not confirmed.
    let error = blocking::wait(doubtful.release()).expect_err("its mark is still owed");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(line(&server, "doubtful").is_empty());
    server.command(&["del", "big-", "--prefix"]).expect("it is freed");
    // After the deletion, so that it is forgotten too; and physically, or what is still being forgotten fills the quota again.
    let revision = server.revision().expect("it answers").to_string();
    for words in [&["compact", "--physical", &revision][..], &["defrag"], &["alarm", "disarm"]] {
        server.command(words).expect("it is freed");
    }
    until("the mark", LONG, || {
        (!server.keys(".fencepost-left-").expect("it answers").is_empty()).then_some(())
    });
}

fn consensus() {
    let server = server();
    let client = locker(&server.url()).require(Level::Consensus).expect("it is decided by consensus");
    assert!(client.about().decides.contains("Raft"));
    give(take(&client, "x", SHORT));
}
