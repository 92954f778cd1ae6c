//! Where locks lie, and what they may be called.

use fencepost::{ErrorKind, Locker, blocking};
use fencepost_lab::server::zookeeper::OPEN;

use crate::Tests;
use crate::scene::{LONG, give, in_line, locker, ms, name, path, single, take};

pub(crate) const TESTS: Tests = &[
    ("slashes_and_forbidden_characters_are_escaped", slashes_and_forbidden_characters_are_escaped),
    ("raw_names_are_paths", raw_names_are_paths),
    ("raw_names_that_zookeeper_forbids_are_refused", raw_names_that_zookeeper_forbids_are_refused),
    (
        "a_number_that_wraps_around_keeps_the_line_in_order",
        a_number_that_wraps_around_keeps_the_line_in_order,
    ),
    ("what_stands_in_no_line_is_left_alone", what_stands_in_no_line_is_left_alone),
    ("tokens_rise_when_the_container_was_collected", tokens_rise_when_the_container_was_collected),
];

fn slashes_and_forbidden_characters_are_escaped() {
    let place = single();
    let locker = locker(&place.url());
    let mut client = place.client();
    let odd = name("odd");
    for (typed, node) in [
        (format!("{odd}/4821"), format!("{odd}%2F4821")),
        (format!("{odd}%2F4821"), format!("{odd}%252F4821")),
        (format!("{odd}\u{e000}"), format!("{odd}%EE%80%80")),
        (format!("{odd}😀"), format!("{odd}%F0%9F%98%80")),
        (format!("{odd}\u{ffff}"), format!("{odd}%EF%BF%BF")),
    ] {
        let guard = take(&locker, &typed, LONG);
        assert_eq!(client.line(&path(&node)).expect("it answers").len(), 1, "{typed:?}");
        let listed = blocking::wait(locker.list(&typed)).expect("a list");
        assert!(listed.iter().any(|status| status.lock.as_str() == typed), "{typed:?} in {listed:?}");
        give(guard);
    }
}

fn raw_names_are_paths() {
    let (place, folder) = (single(), name("raw"));
    let locker = locker(&format!("{}?names=raw&root=/{folder}", place.url()));
    let mut client = place.client();
    let (outer, inner) = (take(&locker, "orders", LONG), take(&locker, "orders/4821", LONG));
    assert_eq!(client.line(&format!("/{folder}/orders/4821")).expect("it answers").len(), 1);
    let listed: Vec<String> = blocking::wait(locker.list(""))
        .expect("a list")
        .iter()
        .map(|status| status.lock.to_string())
        .collect();
    assert_eq!(listed, ["orders", "orders/4821"]);
    give(outer);
    give(inner);
}

fn raw_names_that_zookeeper_forbids_are_refused() {
    let locker = locker(&format!("{}?names=raw&root=/", single().url()));
    for (bad, part) in [("a\u{e000}", "U+E000"), ("zookeeper/x", "/zookeeper"), ("a/lock-0000000001", "line")]
    {
        let error = blocking::wait(locker.lock(bad).ttl(LONG).acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}: {error}");
        assert!(error.to_string().contains(part), "{bad:?}: {error}");
    }
}

/// The server counts with 32 bits, and begins again below zero.
fn a_number_that_wraps_around_keeps_the_line_in_order() {
    let (place, lock) = (single(), name("wraps"));
    let locker = locker(&place.url());
    let mut client = place.client();
    give(take(&locker, &lock, LONG));
    // One that stood in line before the count went round, as far as names tell: the highest number there is.
    let old = format!("{}/_c_00000000-0000-0000-0000-000000000000-lock-2147483647", path(&lock));
    client.create(&old, b"", OPEN, 1).expect("a node of this name");
    let low = format!("{}/_c_00000000-0000-0000-0000-000000000001-lock--2147483648", path(&lock));
    client.create(&low, b"", OPEN, 1).expect("a node of this name");
    let status = blocking::wait(locker.inspect(&lock)).expect("a status");
    let first = client.read(&old).expect("it is there").czxid as u64;
    assert_eq!(status.holder.and_then(|holder| holder.token).map(|token| token.get()), Some(first));
    assert_eq!(status.waiters.len(), 1);
    client.delete(&old).expect("it is there");
    client.delete(&low).expect("it is there");
    give(take(&locker, &lock, LONG));
}

fn what_stands_in_no_line_is_left_alone() {
    let (place, lock) = (single(), name("others"));
    let locker = locker(&place.url());
    let mut client = place.client();
    give(take(&locker, &lock, LONG));
    let stranger = format!("{}/config", path(&lock));
    client.create(&stranger, b"x", OPEN, 0).expect("a node");
    let guard = take(&locker, &lock, LONG);
    let forced = blocking::wait(locker.force_unlock(&lock)).expect("it is forced");
    assert!(forced.token > guard.token());
    assert_eq!(client.read(&stranger).expect("it is there").data, b"x");
    client.delete(&stranger).expect("it is there");
}

/// The number behind the names begins again with a new container; the token does not hang on it.
fn tokens_rise_when_the_container_was_collected() {
    let (place, lock) = (single(), name("collected"));
    let locker = locker(&place.url());
    let mut client = place.client();
    let mut last = None;
    for _ in 0..3 {
        let guard = take(&locker, &lock, ms(5000));
        let line = in_line(&mut client, &lock, 1);
        assert!(line[0].ends_with("-0000000000"), "{line:?}");
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        give(guard);
        // As the server does a minute after the last one left. The locker believes that it is still there.
        client.delete(&path(&lock)).expect("it is empty");
    }
    let _: &Locker = &locker;
}
