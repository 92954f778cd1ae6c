//! What the tests share: a server, lockers, time, and what can be read from the server itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fencepost::driver::Host;
use fencepost::redis::Client;
use fencepost::{Locker, SystemHost, blocking};
use fencepost_lab::faulty::{Faults, Faulty};
use fencepost_lab::proxy::Proxy;
use fencepost_lab::server::redis::{Options, Redis};

pub(crate) use crate::acts::{Waiter, give, ms, now, pass, take, until};

/// Long enough that nothing of a test runs out by itself.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// What the tests of all backends call the server.
pub(crate) type Server = Redis;

/// The lease of those tests.
pub(crate) const STEP: Duration = ms(600);

pub(crate) fn server() -> Redis {
    Redis::start(Options::default()).expect("redis-server starts")
}

pub(crate) fn server_with(options: Options) -> Redis {
    Redis::start(options).expect("redis-server starts")
}

/// A way to the server that can be cut, and its URL.
pub(crate) fn proxy(server: &Redis) -> (Proxy, String) {
    let proxy = Proxy::start(server.addr()).expect("a port");
    let url = format!("redis://{}", proxy.addr());
    (proxy, url)
}

pub(crate) fn locker(url: &str) -> Locker {
    blocking::wait(Locker::connect(url)).expect("the server answers")
}

/// A locker whose requests can be lost.
pub(crate) fn faulty(url: &str) -> (Locker, Arc<Faults>) {
    let options = fencepost::redis::Options::from_url(url.parse().expect("a url")).expect("options");
    let faults = Arc::default();
    let client = Arc::new(Client::new(options.clone(), host()));
    let transport = Arc::new(Faulty::new(client, host(), Arc::clone(&faults)));
    let driver = blocking::wait(fencepost::redis::driver(transport, options, host())).expect("it connects");
    (Locker::from_parts(driver, host()), faults)
}

pub(crate) fn host() -> Arc<dyn Host> {
    Arc::new(SystemHost)
}

/// Returns once this many stand in line.
#[track_caller]
pub(crate) fn in_line(server: &Redis, lock: &str, count: usize) {
    let key = |end: &str| format!("{{lock:{lock}}}:{end}");
    let size = |end: &str| server.command::<usize>(&["ZCARD", &key(end)]).expect("it answers");
    until("in line", LONG, || (size("queue") + size("aside") == count).then_some(()));
}

/// How often the server has carried out each command.
pub(crate) fn calls(server: &Redis) -> BTreeMap<String, u64> {
    let info: String = server.command(&["INFO", "commandstats"]).expect("it answers");
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(line).collect()
}

/// How many scripts the server has run.
pub(crate) fn scripts(server: &Redis) -> u64 {
    let calls = calls(server);
    ["eval", "evalsha"].iter().filter_map(|name| calls.get(*name)).sum()
}

/// The keys that should be gone when nobody holds or waits. The last token, the lineage and the mark of a claim that was given
/// up stay on purpose, the mark for as long as a request may be under way.
fn residue(server: &Redis) -> Vec<String> {
    let keys: Vec<String> = server.command(&["KEYS", "*lock:*"]).expect("it answers");
    let stays = |key: &String| key.ends_with(":token") || key.ends_with("/lineage") || key.contains(":left:");
    keys.into_iter().filter(|key| !stays(key)).collect()
}

/// Nothing is left, at the latest when the leases of this length are over.
#[track_caller]
pub(crate) fn nothing_is_left(server: &Redis, ttl: Duration) {
    only_left(server, ttl, &[]);
}

/// Nothing is left but what is known of waiters who died, and that not for long.
#[track_caller]
pub(crate) fn nothing_stays(server: &Redis, ttl: Duration) {
    only_left(server, ttl, &[":aside", ":beat", ":who", ":queue", ":offer"]);
    for key in residue(server) {
        let left: i64 = server.command(&["PTTL", &key]).expect("it answers");
        assert!(left != -1 && left <= 60_000, "{key} stays for {left} ms");
    }
}

#[track_caller]
fn only_left(server: &Redis, ttl: Duration, but: &[&str]) {
    let end = now() + ttl + ms(1000);
    loop {
        let mut left = residue(server);
        left.retain(|key| !but.iter().any(|end| key.ends_with(end)));
        if left.is_empty() {
            return;
        }
        assert!(now() < end, "left behind: {left:?}");
        pass(ms(5));
    }
}
