//! The gate of a real ZooKeeper server.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use fencepost::{
    Error, ErrorKind, Lineage, Token,
    blocking::wait,
    conformance::{Hook, NotApplicable},
    gate::{
        Mark, Pass, Step, ZooKeeperGate,
        conformance::{Client, Crash, Harness, Transaction},
    },
};
use fencepost_lab::server::{
    ignored,
    zookeeper::{self, OPEN, Pooled},
};
use libtest_mimic::{Failed, Trial};

#[derive(Clone)]
struct Store(Arc<Mutex<Pooled>>);

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    zookeeper::installed().map_err(|missing| missing.to_string())?;
    Ok(Box::new(Store::start().map_err(|error| format!("no zookeeper: {error}"))?))
}

impl Store {
    fn start() -> std::io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Pooled::take()?))))
    }

    fn server(&self) -> MutexGuard<'_, Pooled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self) -> Result<ZooKeeperGate, Error> {
        let url = self.server().url();
        wait(ZooKeeperGate::connect(&url))
    }
}

/// Where the suite's text of a resource lies.
fn path(resource: &str) -> Result<String, Error> {
    let mark = ZooKeeperGate::path(resource)?;
    Ok(format!("/text-{}", mark.rsplit('/').next().unwrap_or_default()))
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
                wait(open.set(path(resource).expect("a path"), text)).expect("a write");
            }
        }
        if step > 2 {
            return Ok(Crash::Ended);
        }
        self.server().restart().expect("the server starts again");
        Ok(Crash::Killed)
    }

    fn residue(&self) -> Vec<String> {
        let server = self.server();
        let mut client = server.client().expect("a client");
        let mut left = client.children(server.chroot()).expect("an answer");
        left.retain(|name| name != "fencepost" && !name.starts_with("text-"));
        left
    }
}

struct Connected {
    gate: ZooKeeperGate,
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
        let text = again(|| wait(wait(self.gate.open(resource, pass))?.get(path(resource)?)))?;
        Ok(String::from_utf8(text.unwrap_or_default()).expect("what the cases write"))
    }

    fn write(&self, resource: &str, pass: &Pass, text: &str) -> Result<(), Error> {
        again(|| wait(wait(self.gate.open(resource, pass))?.set(path(resource)?, text)))
    }

    fn peek(&self, resource: &str) -> Result<String, Error> {
        let server = self.store.server();
        let full = format!("{}{}", server.chroot(), path(resource)?);
        let mut client = server.client().expect("a client");
        let text = client.read(&full).map(|node| node.data).unwrap_or_default();
        Ok(String::from_utf8(text).expect("what the cases write"))
    }

    fn mark(&self, resource: &str) -> Result<Mark, Error> {
        again(|| wait(self.gate.mark(resource)))
    }

    fn rebind(&self, resource: &str, mark: &Mark) -> Result<(), Error> {
        again(|| wait(self.gate.rebind(resource, mark.clone()))).map(drop)
    }

    fn begin(&self, _: &str) -> Hook<Result<Box<dyn Transaction + '_>, Error>> {
        NotApplicable::new("no transactions: the check and the changes are one multi")
    }
}

/// What only this gate promises.
pub(crate) fn trials() -> Vec<Trial> {
    let skip = ignored(&zookeeper::installed());
    let trial = |name: &str, run: fn(&Store) -> Result<(), Failed>| {
        Trial::test(format!("zookeeper::{name}"), move || run(&Store::start()?)).with_ignored_flag(skip)
    };
    vec![
        trial("all_steps_happen_or_none", steps),
        trial("an_open_gate_is_closed_by_a_later_holder", closed),
        trial("an_open_gate_outlives_a_rebind_that_still_accepts_it", rebound),
        trial("what_is_no_gate_is_said_in_one_sentence", bad_input),
    ]
}

fn pass(number: u64) -> Pass {
    Token::new(number).expect("not zero").into()
}

fn ensure(kept: bool, broken: impl Into<String>) -> Result<(), Failed> {
    if kept { Ok(()) } else { Err(broken.into().into()) }
}

fn steps(store: &Store) -> Result<(), Failed> {
    let open = wait(store.gate()?.open("orders/4821", pass(42)))?;
    let create = |path: &str| Step::Create { path: path.into(), data: b"x".to_vec() };
    wait(open.run(vec![create("/a"), create("/a/b"), Step::Set { path: "/a".into(), data: b"y".to_vec() }]))?;
    ensure(wait(open.get("/a"))? == Some(b"y".to_vec()), "the text is another")?;
    for bad in
        [create("/a"), Step::Set { path: "/z".into(), data: vec![] }, Step::Delete { path: "/a".into() }]
    {
        let told = wait(open.run(vec![create("/c"), bad.clone()]));
        let is_told = told.as_ref().is_err_and(|error| error.kind() == ErrorKind::Invalid);
        ensure(is_told, format!("{bad:?}: {told:?}"))?;
        ensure(wait(open.get("/c"))?.is_none(), format!("a part of it was done: {bad:?}"))?;
    }
    ensure(wait(open.delete("/a/b"))? && !wait(open.delete("/a/b"))?, "a node was not removed once")
}

fn closed(store: &Store) -> Result<(), Failed> {
    let (ours, theirs) = (store.gate()?, store.gate()?);
    let open = wait(ours.open("orders/4821", pass(41)))?;
    wait(open.set("/a", "ours"))?;
    wait(wait(theirs.open("orders/4821", pass(42)))?.set("/a", "theirs"))?;
    for told in
        [wait(open.set("/a", "late")), wait(open.get("/a")).map(drop), wait(open.delete("/a")).map(drop)]
    {
        let stale = told.as_ref().err().and_then(Error::stale);
        ensure(stale.is_some_and(|stale| stale.highest.get() == 42), format!("{told:?}"))?;
    }
    ensure(
        wait(wait(theirs.open("orders/4821", pass(42)))?.get("/a"))? == Some(b"theirs".to_vec()),
        "overwritten",
    )
}

fn rebound(store: &Store) -> Result<(), Failed> {
    let gate = store.gate()?;
    let open = wait(gate.open("orders/4821", pass(42)))?;
    let lower = Mark { highest: Token::new(7), lineage: None };
    wait(gate.rebind("orders/4821", lower))?;
    wait(open.set("/a", "x"))?;
    ensure(
        wait(gate.mark("orders/4821"))?.highest == Token::new(42),
        "the write did not raise the mark again",
    )?;
    wait(gate.rebind("orders/4821", Mark { highest: Token::new(50), lineage: Some(Lineage::new("eu")) }))?;
    let told = wait(open.set("/a", "y"));
    ensure(told.as_ref().err().and_then(Error::stale).is_some(), format!("{told:?}"))
}

fn bad_input(store: &Store) -> Result<(), Failed> {
    let refused = |told: Result<(), Error>, kind: ErrorKind, part: &str| {
        let fits = told.as_ref().is_err_and(|error| {
            let text = error.to_string();
            error.kind() == kind && text.contains(part) && !text.contains('\n')
        });
        ensure(fits, format!("{told:?}"))
    };
    refused(wait(ZooKeeperGate::connect("redis://h")).map(drop), ErrorKind::Invalid, "zk://")?;
    let gate = store.gate()?;
    refused(wait(gate.fence("a//b", pass(1))), ErrorKind::Invalid, "resource name")?;
    let open = wait(gate.open("a", pass(1)))?;
    let mark = ZooKeeperGate::path("a")?;
    refused(wait(open.set(&mark, "x")), ErrorKind::Invalid, "own mark")?;
    refused(wait(open.set("/no/such", "x")), ErrorKind::Invalid, "/no/such")?;
    {
        let server = store.server();
        let path = format!("{}/fencepost/gates/odd", server.chroot());
        server.client()?.create(&path, b"nothing of ours", OPEN, 0)?;
    }
    refused(wait(gate.fence("odd", pass(1))), ErrorKind::Invalid, "something other")?;
    let nobody = wait(ZooKeeperGate::connect("zk://127.0.0.1:1"))?;
    refused(wait(nobody.fence("a", pass(1))), ErrorKind::Unavailable, "127.0.0.1:1")
}
