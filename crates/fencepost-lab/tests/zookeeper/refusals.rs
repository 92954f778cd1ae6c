//! What is wrong with a URL or a server is said in one sentence, of the kind that names the next move.

use std::time::Duration;

use fencepost::{Error, ErrorKind, Guard, Locker, blocking};
use fencepost_lab::server::certificates::Certificates;
use fencepost_lab::server::zookeeper::{Access, OPEN, Options, ZooKeeper};

use crate::Tests;
use crate::scene::{LONG, Waiter, give, in_line, locker, ms, name, single, take};

pub(crate) const TESTS: Tests = &[
    ("a_chroot_that_is_not_there", a_chroot_that_is_not_there),
    ("no_permission_on_the_path", no_permission_on_the_path),
    ("digest_users", digest_users),
    ("sasl_users", sasl_users),
    ("tls", tls),
    ("an_expired_certificate_is_named", an_expired_certificate_is_named),
    ("nobody_and_others_at_the_port", nobody_and_others_at_the_port),
];

fn connect(url: &str) -> Result<Locker, Error> {
    blocking::wait(Locker::connect(url))
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>, kind: ErrorKind, part: &str) {
    let Err(error) = outcome else { panic!("it was not refused") };
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(part) && !text.contains('\n'), "{text}");
    // Nor the name of a node, which has the claim's id.
    assert!(!text.contains("s3cret") && !text.contains("_c_"), "{text}");
}

fn attempt(locker: &Locker, lock: &str) -> Result<Guard, Error> {
    blocking::wait(locker.lock(lock).ttl(LONG).patience(ms(800)).wait(LONG).acquire())
}

fn a_chroot_that_is_not_there() {
    let place = single();
    refused(connect(&format!("{}/no/such", place.url())), ErrorKind::Invalid, "/no/such");
    place.client().create("/there", b"", OPEN, 0).expect("a node");
    let below = locker(&format!("{}/there", place.url()));
    let guard = take(&below, "x", LONG);
    assert_eq!(place.client().line("/there/fencepost/locks/x").expect("it answers").len(), 1);
    give(guard);
    // Two chroots are two lineages: their tokens do not compare.
    assert_ne!(below.about().lineage, locker(&place.url()).about().lineage);
}

fn no_permission_on_the_path() {
    let (place, top) = (single(), name("forbidden"));
    let mut client = place.client();
    client.create(&format!("/{top}"), b"", &[Access(1, "world", "anyone")], 0).expect("a node");
    let locker = locker(&format!("{}?root=/{top}", place.url()));
    refused(attempt(&locker, "x"), ErrorKind::Denied, "permission");
    refused(connect(&format!("{}?root=/{top}/below", place.url())), ErrorKind::Denied, "permission");
}

fn digest_users() {
    let (place, top) = (single(), name("digest"));
    let host = place.addr;
    place.client().create(&format!("/{top}"), b"", OPEN, 0).expect("a node");
    let url = |who: &str, more: &str| format!("zk://{who}{host}/{top}?root=/locks{more}");
    let ours = locker(&url("bob:s3cret@", "&acl=creator"));
    let guard = take(&ours, "x", LONG);
    // Another locker of the same user is of the same club.
    let waiter = Waiter::start(&locker(&url("bob:s3cret@", "&acl=creator")), "x", LONG, LONG);
    let held = ms(300);
    crate::scene::pass(held);
    give(guard);
    give(waiter.granted().0);
    for who in ["", "bob:wrong@", "eve:s3cret@"] {
        match connect(&url(who, "")) {
            Ok(theirs) => refused(attempt(&theirs, "x"), ErrorKind::Denied, "permission"),
            error => refused(error, ErrorKind::Denied, "permission"),
        }
    }
    // A container of that user only is renewed all the same: the session's heartbeat asks for no right.
    let short = blocking::wait(ours.lock("y").ttl(ms(900)).wait(LONG).acquire()).expect("the lock");
    crate::scene::pass(ms(2500));
    assert!(short.is_held());
    give(short);
}

fn sasl_users() {
    let options = Options { users: vec![("bob".into(), "s3cret".into())], ..Options::default() };
    let server = ZooKeeper::start(options).expect("zookeeper starts");
    let host = server.addr();
    let url = |who: &str| format!("zk://{who}@{host}?auth=sasl&acl=creator");
    let locker = locker(&url("bob:s3cret"));
    let guard = take(&locker, "x", LONG);
    let mut client = server.client().expect("it answers");
    in_line_of(&mut client, "x", 1);
    assert!(client.read("/fencepost/lineage").is_err(), "everybody may read what its creator alone should");
    give(guard);
    refused(connect(&url("bob:wrong")), ErrorKind::Denied, "user or password");
    refused(connect(&url("eve:other")), ErrorKind::Denied, "user or password");
}

/// Names of nodes are shown to whoever may read the lock's node; here nobody may but its creator.
fn in_line_of(client: &mut fencepost_lab::server::zookeeper::Client, lock: &str, count: usize) {
    if client.children("/fencepost/locks").is_ok() {
        in_line(client, lock, count);
    }
}

fn tls() {
    let files = Certificates::generate().expect("certificates");
    let server = ZooKeeper::start(Options::secure(&files, true).expect("files")).expect("zookeeper starts");
    let (ca, cert, key) = (files.authority(), files.client(), files.client_key());
    let (ca, cert, key) = (ca.display(), cert.display(), key.display());
    let trusted = format!("{}?ca={ca}&server_name=localhost", server.url());
    let whole = format!("{trusted}&cert={cert}&key={key}");
    let locker = locker(&whole);
    give(take(&locker, "x", LONG));
    refused(connect(&trusted), ErrorKind::Denied, "TLS");
    refused(connect(&format!("{}?cert={cert}&key={key}", server.url())), ErrorKind::Denied, "TLS");
    let other = Certificates::generate().expect("certificates");
    let stranger = format!("{}?ca={}&cert={cert}&key={key}", server.url(), other.authority().display());
    refused(connect(&stranger), ErrorKind::Denied, "TLS");
    refused(connect(&format!("zk://{}", server.addr())), ErrorKind::Unavailable, "zks://");
    refused(connect(&format!("zks://{}?ca={ca}", single().addr)), ErrorKind::Unavailable, "zk");
}

fn an_expired_certificate_is_named() {
    let files = Certificates::expired().expect("certificates");
    let server = ZooKeeper::start(Options::secure(&files, false).expect("files")).expect("zookeeper starts");
    let url = format!("{}?ca={}", server.url(), files.authority().display());
    refused(connect(&url), ErrorKind::Denied, "expired");
}

fn nobody_and_others_at_the_port() {
    refused(connect("zk://127.0.0.1:1"), ErrorKind::Unavailable, "127.0.0.1:1");
    let web = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = web.local_addr().expect("a port");
    std::thread::spawn(move || {
        for stream in web.incoming().map_while(Result::ok) {
            use std::io::Write;
            let mut stream = stream;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    refused(connect(&format!("zk://{addr}")), ErrorKind::Invalid, "protocol of ZooKeeper");
    // One good server in the list is enough.
    give(take(&locker(&format!("zk://{addr},{}", single().addr)), &name("list"), LONG));
}
