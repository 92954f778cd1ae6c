//! The gate of a real Redis server that keeps every write that it has answered.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use fencepost::{
    Error, ErrorKind, Lineage, SystemHost, Token,
    blocking::wait,
    conformance::{Hook, NotApplicable},
    gate::{
        Mark, Pass, RedisGate,
        conformance::{Client, Crash, Harness, Transaction},
    },
    redis::{Client as Transport, Command, Options, Reply},
};
use fencepost_lab::server::{
    ignored,
    redis::{self, Persistence, Redis},
};
use libtest_mimic::{Failed, Trial};

#[derive(Clone)]
struct Store(Arc<Mutex<Redis>>);

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    redis::installed().map_err(|missing| missing.to_string())?;
    Ok(Box::new(Store::start().map_err(|error| format!("no redis-server: {error}"))?))
}

impl Store {
    fn start() -> std::io::Result<Self> {
        let options = redis::Options { persistence: Persistence::Always, ..redis::Options::default() };
        Ok(Self(Arc::new(Mutex::new(Redis::start(options)?))))
    }

    fn server(&self) -> MutexGuard<'_, Redis> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self) -> Result<RedisGate, Error> {
        let url = self.server().url();
        wait(RedisGate::connect(&url))
    }
}

/// Where the suite's text of a resource lies.
fn key(resource: &str) -> Result<String, Error> {
    Ok(format!("{}:text", RedisGate::key(resource)?))
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
        let keys: Vec<String> = self.server().command(&["KEYS", "*"]).expect("the server's keys");
        keys.into_iter().filter(|key| !key.ends_with('}') && !key.ends_with("}:text")).collect()
    }
}

struct Connected {
    gate: RedisGate,
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
        let text: Option<String> = self.store.server().command(&["GET", &key(resource)?]).expect("an answer");
        Ok(text.unwrap_or_default())
    }

    fn mark(&self, resource: &str) -> Result<Mark, Error> {
        again(|| wait(self.gate.mark(resource)))
    }

    fn rebind(&self, resource: &str, mark: &Mark) -> Result<(), Error> {
        again(|| wait(self.gate.rebind(resource, mark.clone()))).map(drop)
    }

    fn begin(&self, _: &str) -> Hook<Result<Box<dyn Transaction + '_>, Error>> {
        NotApplicable::new("no transactions: the check and the commands are one script")
    }
}

/// What only this gate promises.
pub(crate) fn trials() -> Vec<Trial> {
    let skip = ignored(&redis::installed());
    let trial = |name: &str, run: fn(&Store) -> Result<(), Failed>| {
        Trial::test(format!("redis::{name}"), move || run(&Store::start()?)).with_ignored_flag(skip)
    };
    vec![
        trial("commands_stop_at_the_first_that_is_refused", commands),
        trial("a_mark_never_expires", no_expiry),
        trial("a_command_that_cannot_be_is_refused_before_any_other", impossible),
        trial("a_user_without_the_right_is_told_of_the_gates_keys", no_right),
        trial("a_script_of_ones_own_is_gated", own_script),
        trial("a_frozen_server_leaves_it_unknown_in_time", frozen),
        trial("what_is_no_gate_is_said_in_one_sentence", bad_input),
    ]
}

fn pass(number: u64) -> Pass {
    Token::new(number).expect("not zero").into()
}

fn ensure(kept: bool, broken: impl Into<String>) -> Result<(), Failed> {
    if kept { Ok(()) } else { Err(broken.into().into()) }
}

fn commands(store: &Store) -> Result<(), Failed> {
    let open = wait(store.gate()?.open("orders/4821", pass(42)))?;
    let command =
        |words: &[&str]| words[1..].iter().fold(Command::new(words[0]), |command, word| command.arg(word));
    let replies = wait(open.run(vec![
        command(&["SET", "a", "\0\r\n"]),
        command(&["GET", "b"]),
        command(&["LPUSH", "a", "x"]),
        command(&["SET", "b", "never"]),
    ]))?;
    let is_refused = matches!(replies.last(), Some(Reply::Error { code, .. }) if code == "WRONGTYPE");
    ensure(replies.len() == 3 && replies[1] == Reply::Nil && is_refused, format!("{replies:?}"))?;
    ensure(wait(open.get("a"))? == Some(b"\0\r\n".to_vec()), "the text is another")?;
    ensure(wait(open.get("b"))?.is_none(), "a command after the refused one was carried out")?;
    ensure(wait(open.del("a"))? && !wait(open.del("a"))?, "a key was not removed once")?;
    // A thousand words in one command, and a thousand commands in one step.
    let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let many = words.iter().fold(Command::new("RPUSH").arg("list"), |command, word| command.arg(word));
    ensure(wait(open.run(vec![many]))? == [Reply::Int(1000)], "a long command was not carried out")?;
    let steps = vec![Command::new("INCR").arg("count"); 1000];
    ensure(wait(open.run(steps))?.last() == Some(&Reply::Int(1000)), "not every command was carried out")
}

fn no_expiry(store: &Store) -> Result<(), Failed> {
    let gate = store.gate()?;
    wait(wait(gate.open("orders/4821", pass(42)))?.set("k", "v"))?;
    let key = RedisGate::key("orders/4821")?;
    ensure(store.server().command::<i64>(&["TTL", &key])? == -1, "the mark expires")?;
    // Not even if somebody has given it one, as long as it is raised.
    for set in [42, 43] {
        store.server().command::<i64>(&["EXPIRE", &key, "1000"])?;
        if set == 43 {
            wait(gate.fence("orders/4821", pass(set)))?;
        } else {
            wait(gate.rebind("orders/4821", Mark { highest: Token::new(set), lineage: None }))?;
        }
        ensure(store.server().command::<i64>(&["TTL", &key])? == -1, "the mark expires")?;
    }
    ensure(
        key == "gate:{orders/4821}",
        "the key of a mark has changed, which loses every mark that was made before",
    )
}

fn impossible(store: &Store) -> Result<(), Failed> {
    let open = wait(store.gate()?.open("orders/4821", pass(42)))?;
    let words =
        |count: u32| (0..count).fold(Command::new("RPUSH").arg("list"), |all, n| all.arg(n.to_string()));
    ensure(wait(open.run(vec![words(6_998)]))? == [Reply::Int(6_998)], "7,000 words were refused")?;
    let key = RedisGate::key("orders/4821")?;
    let refused = [
        words(6_999),
        words(20_000),
        Command::new("DEL").arg(&key),
        Command::new("RENAME").arg("list").arg(&key),
        Command::new("flushall"),
        Command::new("FLUSHDB").arg("ASYNC"),
        Command::new("SWAPDB").arg("0").arg("1"),
    ];
    for command in refused {
        let told = wait(open.run(vec![Command::new("SET").arg("a").arg("x"), command.clone()]));
        let is_told = told.as_ref().is_err_and(|error| error.kind() == ErrorKind::Invalid);
        ensure(is_told, format!("{:?}: {told:?}", command.words().len()))?;
    }
    ensure(wait(open.get("a"))?.is_none(), "a part was carried out")
}

fn no_right(store: &Store) -> Result<(), Failed> {
    let rules = ["resetkeys", "~data", "+@all"];
    let setuser = ["ACL", "SETUSER", "app", "on", ">pass"];
    let told = |rules: &[&str], run: &dyn Fn(RedisGate) -> Result<(), Error>| {
        store.server().command::<()>(&[&setuser[..], rules].concat()).expect("an answer");
        let url = store.server().url().replace("redis://", "redis://app:pass@");
        let error =
            wait(RedisGate::connect(&url)).and_then(run).err().map(|error| (error.kind(), error.to_string()));
        let fits =
            error.as_ref().is_some_and(|(kind, text)| *kind == ErrorKind::Denied && text.contains("~gate:*"));
        ensure(fits && error.as_ref().is_some_and(|(_, text)| !text.contains("lock:")), format!("{error:?}"))
    };
    told(&rules, &|gate| wait(gate.fence("a", pass(1))))?;
    told(&rules, &|gate| wait(gate.mark("a")).map(drop))?;
    told(&["~gate:*", "-hset"], &|gate| wait(gate.fence("a", pass(1))))?;
    told(&["+hset"], &|gate| wait(wait(gate.open("a", pass(1)))?.set("other", "x")))
}

/// With the snippet in front of it, a script in any language says which of the refusals it was.
fn own_script(store: &Store) -> Result<(), Failed> {
    let script = format!(
        "{}\nlocal refusal = fencepost_admit(KEYS[1], ARGV[1], ARGV[2])\nif refusal then return refusal end\nreturn redis.call('INCR', KEYS[2])",
        RedisGate::ADMIT
    );
    let gate = RedisGate::key("orders/4821")?;
    let run = |token: &str, lineage: &str| {
        let answer: Result<i64, _> =
            store.server().command(&["EVAL", &script, "2", &gate, "{orders/4821}:sold", token, lineage]);
        answer.map_err(|error| {
            format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
        })
    };
    ensure(run("42", "a") == Ok(1) && run("42", "") == Ok(2), "the holder was refused")?;
    for (token, lineage, said) in [("41", "a", "STALE 42"), ("9", "", "STALE 42"), ("43", "b", "LINEAGE a")] {
        ensure(
            run(token, lineage) == Err(said.into()),
            format!("{token} {lineage}: {:?}", run(token, lineage)),
        )?;
    }
    for token in
        ["", "0", "-1", "042", "4e1", "43.0", " 43", "18446744073709551616", "184467440737095516150", "token"]
    {
        let said = run(token, "a");
        ensure(matches!(&said, Err(text) if text.starts_with("INVALID ")), format!("{token:?}: {said:?}"))?;
    }
    // And it is the same mark.
    let stale = wait(store.gate()?.open("orders/4821", pass(41))).err().and_then(|error| error.stale());
    ensure(stale.is_some_and(|stale| stale.highest.get() == 42), "the library sees another mark")?;
    ensure(
        store.server().command::<i64>(&["GET", "{orders/4821}:sold"])? == 2,
        "a refused script has written",
    )
}

fn frozen(store: &Store) -> Result<(), Failed> {
    let gate = store.gate()?.patience(Duration::from_millis(300));
    let open = wait(gate.open("orders/4821", pass(42)))?;
    store.server().pause()?;
    let write = wait(open.set("k", "v"));
    store.server().resume()?;
    ensure(write.is_err_and(|error| error.kind() == ErrorKind::Unknown), "the write is not unknown")?;
    // It was carried out in the end, and the holder finds that out as it was told: by opening the gate again, and reading.
    let open = again(|| wait(gate.open("orders/4821", pass(42))))?;
    again(|| wait(open.get("k"))).map(drop)?;
    Ok(())
}

fn bad_input(store: &Store) -> Result<(), Failed> {
    let kind = |result: Result<(), Error>| result.err().map(|error| (error.kind(), error.to_string()));
    let is = |found: Option<(ErrorKind, String)>, kind: ErrorKind, part: &str| {
        let fits = found.as_ref().is_some_and(|(found, text)| *found == kind && text.contains(part));
        ensure(fits, format!("{found:?} is not {kind:?} with {part:?}"))
    };
    for url in ["local:", "http://cache1", "redis://a,b/0", "redis://cache1/x"] {
        is(kind(wait(RedisGate::connect(url)).map(drop)), ErrorKind::Invalid, "")?;
    }
    let gate = store.gate()?;
    for resource in ["", "/a", "a//b", "a\n"] {
        is(kind(wait(gate.fence(resource, pass(1)))), ErrorKind::Invalid, "invalid resource name")?;
    }
    store.server().command::<()>(&["SET", &RedisGate::key("text")?, "x"])?;
    is(kind(wait(gate.fence("text", pass(1)))), ErrorKind::Invalid, "key=gate:{text}")?;
    is(kind(wait(gate.mark("text")).map(drop)), ErrorKind::Invalid, "key=gate:{text}")?;
    store.server().command::<()>(&["HSET", &RedisGate::key("hash")?, "highest", "x"])?;
    is(kind(wait(gate.mark("hash")).map(drop)), ErrorKind::Invalid, "key=gate:{hash}")?;
    store.server().command::<()>(&["LPUSH", "list", "x"])?;
    let open = wait(gate.open("orders/4821", pass(1).with_lineage(Lineage::new("a"))))?;
    is(kind(wait(open.get("list")).map(drop)), ErrorKind::Invalid, "the key holds no text")?;
    // Nobody listens there.
    let url = "redis://127.0.0.1:1";
    let options = Options::from_url(url.parse()?)?;
    let nobody =
        RedisGate::over(Arc::new(Transport::new(options, Arc::new(SystemHost))), Arc::new(SystemHost));
    is(kind(wait(nobody.fence("orders/4821", pass(1)))), ErrorKind::Unavailable, "127.0.0.1:1")
}
