//! Keys at a Redis server that another client has written.

use fencepost_lab::server::{
    ignored,
    redis::{Options, Redis, installed},
};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scene::{trial, until};
use crate::world::{World, pass};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 4] = [
        ("foreign_key_of_another_kind", another_kind),
        ("foreign_key_that_never_expires", never_expires),
        ("foreign_key_that_expires", expires),
        ("foreign_key_is_forced_out", forced_out),
    ];
    let skip = ignored(&installed());
    tests.into_iter().map(|(name, test)| trial(name, test).with_ignored_flag(skip)).collect()
}

fn server() -> Redis {
    Redis::start(Options::default()).expect("a server")
}

/// Redisson keeps a lock as a hash, of owners and how often each has entered.
fn another_kind() {
    let server = server();
    let world = World::beside(&server);
    server
        .command::<i64>(&["HSET", "lock:x", "285475da-9152-4c83-822a-67ee2f116a79:52", "1"])
        .expect("a hash");
    server.command::<i64>(&["PEXPIRE", "lock:x", "60000"]).expect("a lease");
    let sentence = ["the key is no plain string", "Redisson", "another name or prefix"];
    for command in ["run x touch ran", "run -n x touch ran", "status x", "force-unlock --yes x"] {
        assert_eq!(world.ask(command, &[]).says(78, &sentence), "", "{command}");
    }
    assert!(!world.path("ran").exists());
    assert_eq!(server.command::<i64>(&["HLEN", "lock:x"]).expect("the hash is untouched"), 1);
    // One such key hides none of the others.
    server.command::<()>(&["SET", "lock:y", "somebody"]).expect("a key");
    let listed = world.ask("ls", &[]).quiet(0);
    assert!(listed.starts_with("y\theld by somebody") && listed.lines().count() == 1, "{listed}");
}

fn never_expires() {
    let server = server();
    let world = World::beside(&server);
    server.command::<()>(&["SET", "lock:x", "somebody"]).expect("a key");
    let said = world.ask("status x", &[]).quiet(0);
    assert!(said.starts_with("x\theld by somebody who left no record, never expires, at redis://"), "{said}");
    let status = world.status();
    assert_eq!((&status["held"], &status["holder"]["expires_in_ms"]), (&Value::Bool(true), &Value::Null));
    world.ask("run -n x true", &[]).says(75, &["lock=x is held by somebody who left no record, at redis://"]);
    world
        .ask("run -w 300ms x true", &[])
        .says(75, &["lock=x is held by somebody who left no record, at redis://"]);
    // It is waited for as any other, and ours as soon as somebody removes it.
    let waiter = world.start("run x echo done", &[]);
    world.waiters(1);
    pass(300);
    server.command::<i64>(&["DEL", "lock:x"]).expect("the key was there");
    assert_eq!(waiter.said().quiet(0), "done\n");
}

fn expires() {
    let server = server();
    let world = World::beside(&server);
    server.command::<()>(&["SET", "lock:x", "somebody", "PX", "60000"]).expect("a key");
    let said = world.ask("status x", &[]).quiet(0);
    assert!(said.contains("who left no record, expires in "), "{said}");
    // One of ours says its own time too, and never that it has none.
    let mut holder = world.start("run --ttl 20s y sleep 60", &[]);
    until("the holder", || world.ask("status y", &[]).out.contains("expires in").then_some(()));
    assert!(holder.is_running());
}

fn forced_out() {
    let server = server();
    let world = World::beside(&server);
    server.command::<()>(&["SET", "lock:x", "somebody"]).expect("a key");
    let waiter = world.start("run x sh", &["-c", "echo $FENCEPOST_TOKEN"]);
    world.waiters(1);
    let parts = ["lock=x was held by somebody who left no record", "raise its gate with token="];
    let token: u64 = world.ask("force-unlock --yes x", &[]).says(0, &parts).trim().parse().expect("a token");
    let next: u64 = waiter.said().quiet(0).trim().parse().expect("a token");
    assert!(next > token, "{next} after {token}");
    until("a free lock", || (!world.is_held()).then_some(()));
    let gone: Option<Vec<u8>> = server.command(&["GET", "lock:x"]).expect("it answers");
    assert_eq!(gone, None);
}
