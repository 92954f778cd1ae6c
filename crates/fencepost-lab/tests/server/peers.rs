//! Clients of other languages.

use std::process::Command;

use fencepost_lab::server::peers::{Peer, node, python};
use fencepost_lab::server::{Missing, ignored, postgres, redis};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    let redis_py = redis::installed().and_then(|_| python("redis"));
    let psycopg = postgres::installed().and_then(|_| python("psycopg"));
    let redlock = |package| redis::installed().and_then(|_| node("ioredis")).and_then(|_| node(package));
    vec![
        trial("redis_py_locks", redis_py, redis_py_locks),
        trial("psycopg_connects", psycopg, psycopg_connects),
        trial("redlock_locks", redlock("redlock"), redlock_locks),
        trial("redlock_beta_locks", redlock("redlock-beta"), redlock_beta_locks),
        Trial::test("peers::a_missing_one_says_what_to_do", missing),
    ]
}

fn trial(name: &str, found: Result<Peer, Missing>, test: fn(&Peer) -> Result<(), Failed>) -> Trial {
    let skip = ignored(&found);
    Trial::test(format!("peers::{name}"), move || test(&found?)).with_ignored_flag(skip)
}

fn run(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    assert!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Every client prints what it finds under the key while it holds the lock.
fn holds(server: &redis::Redis, command: &mut Command) -> Result<(), Failed> {
    let held = run(command.arg(server.url()))?;
    assert!(held.trim().len() >= 16, "the key has no random value: {held:?}");
    assert_eq!(server.command::<Option<String>>(&["GET", "orders"])?, None, "it was not released");
    Ok(())
}

fn redis_py_locks(python: &Peer) -> Result<(), Failed> {
    let server = redis::Redis::start(redis::Options::default())?;
    let script = "import redis, sys
server = redis.from_url(sys.argv[1])
with server.lock('orders', timeout=10):
    print(server.get('orders').decode())";
    holds(&server, python.command().args(["-c", script]))
}

fn redlock_locks(node: &Peer) -> Result<(), Failed> {
    let server = redis::Redis::start(redis::Options::default())?;
    let script = "const client = new (require('ioredis'))(process.argv[1]);
const redlock = new (require('redlock'))([client]);
redlock.lock('orders', 10000)
    .then(lock => client.get('orders').then(value => console.log(value)).then(() => lock.unlock()))
    .then(() => client.quit());";
    holds(&server, node.command().args(["-e", script]))
}

fn redlock_beta_locks(node: &Peer) -> Result<(), Failed> {
    let server = redis::Redis::start(redis::Options::default())?;
    let script = "const client = new (require('ioredis'))(process.argv[1]);
const redlock = new (require('redlock-beta').default)([client]);
redlock.using(['orders'], 10000, async () => console.log(await client.get('orders')))
    .then(() => client.quit());";
    holds(&server, node.command().args(["-e", script]))
}

fn psycopg_connects(python: &Peer) -> Result<(), Failed> {
    let password = Some("s p@ss".into());
    let server = postgres::Postgres::start(postgres::Options { password, ..postgres::Options::default() })?;
    let script = "import psycopg, sys
with psycopg.connect(sys.argv[1]) as connection:
    print(connection.execute('select 41 + 1').fetchone()[0])";
    let printed = run(python.command().args(["-c", script, &server.url("postgres")]))?;
    assert_eq!(printed, "42\n");
    Ok(())
}

fn missing() -> Result<(), Failed> {
    let missing = python("no-such-package").map(drop).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "the package no-such-package is not installed, get it with `scripts/peers`"
    );
    Ok(())
}
