//! Users, their rights, and logins that expire.

use fencepost::{ErrorKind, Locker, blocking};
use fencepost_lab::server::etcd::{Etcd, Options};

use crate::Tests;
use crate::scene::{
    LONG, SHORT, Waiter, give, in_line, locker, lost, ms, now, pass, server, server_with, take,
};

pub(crate) const TESTS: Tests = &[
    ("who_may_and_who_may_not", rights),
    ("a_login_that_expires_is_made_anew", expiry),
    ("a_login_that_the_server_forgot_is_made_anew", restart),
    ("a_user_without_need_is_told_so", no_users),
    ("less_rights_promise_less_and_lock_all_the_same", narrow),
];

fn with_users(token_ttl: Option<u32>, extra: &[&str]) -> Etcd {
    let user = |name: &str, password: &str, prefix: &str| (name.into(), password.into(), prefix.into());
    let users = vec![user("jobs", "s3cret/w", "jobs/"), user("narrow", "n", "only/")];
    // The default cost of hashing a password is for people, not for tests that log in often.
    let extra = [&["--bcrypt-cost=4"], extra].concat().into_iter().map(String::from).collect();
    server_with(Options { users, token_ttl, extra, ..Options::default() })
}

fn as_jobs(server: &Etcd) -> String {
    format!("{}?prefix=jobs/", server.url_as("jobs", "s3cret/w"))
}

fn refused(url: &str) -> fencepost::Error {
    let error = blocking::wait(Locker::connect(url)).err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("s3cret") && !text.contains("wr0ng"), "{text}");
    error
}

fn rights() {
    let server = with_users(None, &[]);
    let client = locker(&as_jobs(&server));
    assert!(client.about().notice.is_none());
    let guard = take(&client, "x", LONG);
    let next = Waiter::start(&client, "x", LONG, LONG);
    in_line(&server, "jobs/x", 1);
    give(guard);
    let (guard, _) = next.granted();
    assert_eq!(blocking::wait(client.list("")).expect("it may").len(), 1);
    assert!(blocking::wait(client.force_unlock("x")).expect("it may").token > guard.token());
    lost(&guard);
    assert!(refused(&server.url_as("jobs", "wr0ng")).to_string().contains("password"));
    assert!(refused(&server.url_as("nobody", "wr0ng")).to_string().contains("password"));
    assert!(refused(&server.url()).to_string().contains("user:password@"));
    // It may log in, and not touch these keys.
    let stranger = locker(&format!("{}?prefix=jobs/", server.url_as("narrow", "n")));
    let error = blocking::wait(stranger.lock("x").ttl(LONG).acquire()).expect_err("it may not");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("readwrite"), "{error}");
}

/// Renewals, streams and releases go on over the end of a login.
fn expiry() {
    let server = with_users(Some(1), &[]);
    let client = locker(&as_jobs(&server));
    let guard = take(&client, "x", ms(9000));
    let next = Waiter::start(&client, "x", ms(9000), LONG);
    in_line(&server, "jobs/x", 1);
    // Renewals come every three seconds: each one finds its login forgotten.
    pass(ms(8000));
    assert!(guard.is_held());
    let released = now();
    give(guard);
    let (guard, at) = next.granted();
    assert!(at.since(released) < ms(2000), "granted after {:?}", at.since(released));
    // What is watched from now on is watched with a login that is known.
    pass(ms(2500));
    let last = Waiter::start(&client, "x", ms(9000), LONG);
    in_line(&server, "jobs/x", 1);
    let (key, _) = server.keys("jobs/x/").expect("it answers").remove(0);
    server.delete(&key).expect("it answers");
    let deleted = now();
    assert!(lost(&guard).since(deleted) < ms(1500));
    give(last.granted().0);
}

fn restart() {
    let mut server = with_users(None, &[]);
    let client = locker(&as_jobs(&server));
    let (guard, watched) = (take(&client, "x", LONG), take(&client, "y", ms(6000)));
    pass(ms(1500));
    server.restart().expect("it starts again");
    give(take(&client, "z", SHORT));
    assert!(guard.is_held());
    give(guard);
    // The stream of before came back with a login that was unknown. After a renewal or two its holder is watched again.
    pass(ms(5000));
    assert!(watched.is_held());
    let (key, _) = server.keys("jobs/y/").expect("it answers").remove(0);
    server.delete(&key).expect("it answers");
    let deleted = now();
    assert!(lost(&watched).since(deleted) < ms(1500));
}

fn no_users() {
    let server = server();
    let error =
        blocking::wait(Locker::connect(&server.url_as("jobs", "s3cret"))).err().expect("there are no users");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("authentication is off"), "{error}");
}

/// A user that may use one lock's keys and no others: a rebuilt cluster cannot be told then, and a notice says so.
fn narrow() {
    let server = with_users(None, &[]);
    let client = locker(&server.url_as("narrow", "n"));
    assert!(client.about().notice.is_some_and(|notice| notice.contains(".fencepost-")));
    let lineage = client.about().lineage.to_string();
    assert!(lineage.starts_with("etcd-") && lineage.len() > 10, "{lineage}");
    let guard = take(&client, "only", SHORT);
    let next = Waiter::start(&client, "only", SHORT, LONG);
    in_line(&server, "only", 1);
    pass(SHORT);
    assert!(guard.is_held());
    give(guard);
    give(next.granted().0);
}
