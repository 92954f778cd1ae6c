//! Holders whom no stream of watches tells: they are looked for when their lease is renewed.

use std::future::pending;
use std::sync::Arc;

use fencepost::driver::{Fail, Fut};
use fencepost::etcd::{Call, Client, Events, Options, Transport};
use fencepost::{Locker, blocking};
use fencepost_lab::server::etcd as server_of;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::Tests;
use crate::scene::{LONG, SHORT, host, line, ms, now, pass, server, server_with, take, until};

pub(crate) const TESTS: Tests = &[
    ("a_holder_whom_nobody_watches_is_looked_for", || deleted(Says::Nothing)),
    ("a_refusal_that_names_no_watch_is_one_of_all", || deleted(Says::Refused)),
    ("a_right_to_one_lock_that_is_taken_away_costs_no_other", taken_away),
];

/// What the streams of watches say, whatever they are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Nothing,
    /// As etcd 3.5 and later: the watch was canceled, under the id -1.
    Refused,
}

/// A way to a real server on which requests pass, and watches do not.
struct Blind(Client, Says);

struct Silence(Says, UnboundedReceiver<Vec<u8>>);

impl Transport for Blind {
    fn call(&self, call: Call) -> Fut<'_, Result<Vec<u8>, Fail>> {
        self.0.call(call)
    }

    fn watch(&self, asks: UnboundedReceiver<Vec<u8>>) -> Fut<'_, Result<Box<dyn Events>, Fail>> {
        let events: Box<dyn Events> = Box::new(Silence(self.1, asks));
        Box::pin(async move { Ok(events) })
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

impl Events for Silence {
    fn next(&mut self) -> Fut<'_, Option<Vec<u8>>> {
        // Field 2, the id: -1 as a varint; field 3, created; field 4, canceled.
        const REFUSAL: &[u8] =
            &[0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x18, 1, 0x20, 1];
        match self.0 {
            Says::Nothing => Box::pin(pending()),
            Says::Refused => Box::pin(async {
                match self.1.recv().await {
                    Some(_) => Some(REFUSAL.to_vec()),
                    None => pending().await,
                }
            }),
        }
    }
}

fn blind(url: &str, says: Says) -> Locker {
    let options = Options::from_url(url.parse().expect("a url")).expect("options");
    let transport = Arc::new(Blind(Client::new(options.clone(), host()), says));
    let driver = blocking::wait(fencepost::etcd::driver(transport, options, host())).expect("it connects");
    Locker::from_parts(driver, host())
}

fn deleted(says: Says) {
    let server = server();
    let holder = blind(&server.url(), says);
    let ttl = ms(6000);
    let (guard, other) = (take(&holder, "x", ttl), take(&holder, "y", ttl));
    // It is attended to meanwhile, and looked for at least once.
    pass(ms(3000));
    assert!(guard.is_held());
    let (key, _) = line(&server, "x").remove(0);
    server.delete(&key).expect("it answers");
    let deleted = now();
    until("the loss", LONG, || (!guard.is_held()).then_some(()));
    assert!(now().since(deleted) < ttl / 2, "told after {:?}", now().since(deleted));
    assert!(other.is_held());
}

/// Neither the proof of a renewal nor the look for those whom nobody watches may hang on the key that cannot be read any more.
fn taken_away() {
    let users = vec![("jobs".into(), "s3cret".into(), "one/".into())];
    let extra = vec!["--bcrypt-cost=4".into()];
    let server = server_with(server_of::Options { users, extra, ..server_of::Options::default() });
    server.command(&["role", "grant-permission", "jobs", "readwrite", "two/", "--prefix"]).expect("it may");
    let holder = blind(&server.url_as("jobs", "s3cret"), Says::Nothing);
    let guards = ["one", "two"].map(|name| take(&holder, name, SHORT));
    pass(SHORT);
    assert!(guards.iter().all(fencepost::Guard::is_held));
    server.command(&["role", "revoke-permission", "jobs", "one/", "--prefix"]).expect("it may");
    pass(SHORT * 3);
    assert!(guards[1].is_held());
    let (key, _) = line(&server, "two").remove(0);
    server.delete(&key).expect("it answers");
    until("the loss", SHORT, || (!guards[1].is_held()).then_some(()));
}
