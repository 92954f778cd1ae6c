//! The gate of a real etcd server.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use fencepost::{
    Error, ErrorKind, Lineage, Locker, Token,
    blocking::wait,
    conformance::{Hook, NotApplicable},
    gate::{
        Answer, EtcdGate, Mark, Operation, Pass,
        conformance::{Client, Crash, Harness, Transaction},
    },
};
use fencepost_lab::server::{
    etcd::{self, Etcd},
    ignored,
};
use libtest_mimic::{Failed, Trial};

#[derive(Clone)]
struct Store(Arc<Mutex<Etcd>>);

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    etcd::installed().map_err(|missing| missing.to_string())?;
    Ok(Box::new(Store::start().map_err(|error| format!("no etcd: {error}"))?))
}

impl Store {
    fn start() -> std::io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Etcd::start(etcd::Options::default())?))))
    }

    fn server(&self) -> MutexGuard<'_, Etcd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self) -> Result<EtcdGate, Error> {
        let url = self.server().url();
        wait(EtcdGate::connect(&url))
    }
}

/// Where the suite's text of a resource lies.
fn key(resource: &str) -> Result<String, Error> {
    Ok(format!("text/{}", EtcdGate::key(resource)?))
}

impl Harness for Store {
    fn connect(&self) -> Result<Box<dyn Client>, Error> {
        Ok(Box::new(Connected { gate: self.gate()?, store: self.clone() }))
    }

    fn largest(&self) -> Token {
        Token::new(u64::MAX).expect("not zero")
    }

    fn restart(&self) -> Hook {
        self.server().restart().expect("the server starts again");
        Ok(())
    }

    /// The client goes on to its step, and then the server is killed.
    fn crash(&self, resource: &str, pass: &Pass, text: &str, step: usize) -> Hook<Crash> {
        let gate = self.gate().expect("a gate");
        if step > 0 {
            let open = wait(gate.open(resource, pass)).expect("an open gate");
            if step > 1 {
                wait(open.set(key(resource).expect("a key"), text)).expect("a write");
            }
        }
        if step > 2 {
            return Ok(Crash::Ended);
        }
        self.server().restart().expect("the server starts again");
        Ok(Crash::Killed)
    }

    fn residue(&self) -> Vec<String> {
        let keys = self.server().keys("").expect("the server's keys");
        let is_known = |key: &String| {
            key.starts_with("text/")
                || key.starts_with(".fencepost-gate-")
                    && (key.ends_with("-highest") || key.ends_with("-lineage"))
        };
        keys.into_iter().map(|(key, _)| key).filter(|key| !is_known(key)).collect()
    }
}

struct Connected {
    gate: EtcdGate,
    store: Store,
}

/// As a user would: every request of the suite may be repeated, and after a restart the first one finds a dead connection.
fn again<T>(request: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..20 {
        match request() {
            Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => {
                thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
    request()
}

impl Client for Connected {
    fn fence(&self, resource: &str, pass: &Pass) -> Result<(), Error> {
        again(|| wait(self.gate.fence(resource, pass)))
    }

    fn read(&self, resource: &str, pass: &Pass) -> Result<String, Error> {
        let text = again(|| wait(wait(self.gate.open(resource, pass))?.get(key(resource)?)))?;
        Ok(String::from_utf8(text.unwrap_or_default()).expect("what the cases write"))
    }

    fn write(&self, resource: &str, pass: &Pass, text: &str) -> Result<(), Error> {
        again(|| wait(wait(self.gate.open(resource, pass))?.set(key(resource)?, text)))
    }

    fn peek(&self, resource: &str) -> Result<String, Error> {
        let text =
            self.store.server().command(&["get", &key(resource)?, "--print-value-only"]).expect("an answer");
        Ok(text.strip_suffix('\n').unwrap_or_default().to_owned())
    }

    fn mark(&self, resource: &str) -> Result<Mark, Error> {
        again(|| wait(self.gate.mark(resource)))
    }

    fn rebind(&self, resource: &str, mark: &Mark) -> Result<(), Error> {
        again(|| wait(self.gate.rebind(resource, mark.clone()))).map(drop)
    }

    fn begin(&self, _: &str) -> Hook<Result<Box<dyn Transaction + '_>, Error>> {
        NotApplicable::new("no transactions that stay open: the check and the operations are one request")
    }
}

/// What only this gate promises.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 3] = [
        ("all_or_nothing", all_or_nothing),
        ("a_mark_stands_in_no_locks_line", no_line),
        ("what_is_invalid_is_named", invalid),
    ];
    let trial = |(name, test): (&str, fn())| {
        let found = etcd::installed();
        let skip = ignored(&found);
        let run = move || {
            found?;
            std::panic::catch_unwind(test).map_err(|_| Failed::from("see the panic above"))
        };
        Trial::test(format!("etcd::{name}"), run).with_ignored_flag(skip)
    };
    tests.into_iter().map(trial).collect()
}

fn token(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

/// Several operations, of a holder with and without a successor, in each of both forms of a pass.
fn all_or_nothing() {
    let store = Store::start().expect("etcd starts");
    let gate = store.gate().expect("a gate");
    for (resource, lineage) in [("plain", None), ("with/lineage", Some(Lineage::new("here")))] {
        let pass = |number| Pass { token: token(number), lineage: lineage.clone() };
        let (old, new) = (
            wait(gate.open(resource, pass(9))).expect("first"),
            wait(gate.open(resource, pass(10))).expect("next"),
        );
        let operations = |value: &str| {
            vec![
                Operation::Put(b"a".into(), value.into()),
                Operation::Get(b"a".into()),
                Operation::Delete(b"b".into()),
                Operation::Put(b"c".into(), value.into()),
            ]
        };
        let answers = wait(new.run(operations("new"))).expect("it is the latest");
        let expected = [Answer::Put, Answer::Value(Some(b"new".into())), Answer::Deleted(false), Answer::Put];
        assert_eq!(answers, expected);
        let error = wait(old.run(operations("old"))).expect_err("it has a successor");
        let stale = error.stale().expect("both numbers");
        assert_eq!((stale.presented, stale.highest), (token(9), token(10)));
        assert_eq!(wait(new.get("c")).expect("it may"), Some(b"new".to_vec()));
        assert!(wait(new.del("c")).expect("it may") && !wait(new.del("c")).expect("it may"));
    }
}

/// Locks of every name that a mark's key might be taken to belong to, written both ways.
fn no_line() {
    let store = Store::start().expect("etcd starts");
    let gate = store.gate().expect("a gate");
    let pass = Pass { token: token(7), lineage: Some(Lineage::new("here")) };
    for resource in ["x", "gate/x", "%2F"] {
        wait(gate.fence(resource, &pass)).expect("the first");
    }
    let url = store.server().url();
    for url in [url.clone(), format!("{url}?names=raw")] {
        let locker = wait(Locker::connect(&url)).expect("it answers");
        for lock in ["gate", "gate/x", ".fencepost-gate", ".fencepost-gate-x", ".fencepost-gate-gate", "x"] {
            let guard = wait(locker.lock(lock).ttl(Duration::from_secs(30)).try_acquire());
            wait(guard.expect("it is free").release()).expect("it was held");
        }
        // What lies in a lock's line and hangs on no lease is somebody's data.
        store.server().command(&["put", "data/x", "1"]).expect("it answers");
        let error = wait(locker.force_unlock("data")).expect_err("it is no claim");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("key=data/x"), "{error}");
        assert_eq!(store.server().keys("data/").expect("it answers").len(), 1);
    }
    assert_eq!(wait(gate.mark("x")).expect("it is there").highest, Some(token(7)));
}

fn invalid() {
    let store = Store::start().expect("etcd starts");
    let gate = store.gate().expect("a gate");
    let open = wait(gate.open("x", token(1))).expect("the first");
    let twice = vec![Operation::Put(b"a".into(), b"1".into()), Operation::Delete(b"a".into())];
    for operations in [
        twice,
        vec![Operation::Delete(b".fencepost-gate-x-highest".into())],
        vec![Operation::Get(Vec::new())],
    ] {
        let error = wait(open.run(operations)).expect_err("it cannot be carried out");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    store.server().command(&["put", ".fencepost-gate-y-highest", "no number"]).expect("it answers");
    let error = wait(gate.mark("y")).expect_err("no mark");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(wait(gate.open("y", token(1))).map(drop).expect_err("no mark").kind(), ErrorKind::Invalid);
    assert_eq!(
        wait(EtcdGate::connect("redis://h")).map(drop).expect_err("no etcd").kind(),
        ErrorKind::Invalid
    );
}
