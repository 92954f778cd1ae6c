//! Requests to the Redis gate that are lost, that nobody answers, and that arrive too late.

use std::{sync::Arc, thread, time::Duration};

use fencepost::{
    Error, ErrorKind, SystemHost, Token,
    blocking::wait,
    gate::{OpenRedis, RedisGate},
    redis::{Client, Options},
};
use fencepost_lab::{
    faulty::{Fault, Faults, Faulty},
    server::{
        ignored,
        redis::{self, Redis},
    },
};
use libtest_mimic::{Failed, Trial};

const PATIENCE: Duration = Duration::from_millis(300);

/// A server, a gate whose requests meet faults, and another one whose requests do not.
struct Stage {
    faults: Arc<Faults>,
    faulty: RedisGate,
    sound: RedisGate,
    // Ends last.
    _server: Redis,
}

impl Stage {
    fn new() -> Result<Self, Failed> {
        let server = Redis::start(redis::Options::default())?;
        let (faults, host) = (Arc::new(Faults::default()), Arc::new(SystemHost));
        let client = Client::new(Options::from_url(server.url().parse()?)?, host.clone());
        let transport = Faulty::new(Arc::new(client), host.clone(), faults.clone());
        let faulty = RedisGate::over(Arc::new(transport), host).patience(PATIENCE);
        let sound = wait(RedisGate::connect(&server.url()))?;
        // Now the server knows the script, and a fault hits the request that is carried out.
        wait(sound.fence("prime", token(1)))?;
        Ok(Self { faults, faulty, sound, _server: server })
    }

    /// The holder of 42, for whom nothing goes wrong yet.
    fn holder(&self) -> Result<OpenRedis, Error> {
        wait(self.faulty.open("a", token(42)))
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let skip = ignored(&redis::installed());
    let trial = |name: &str, test: fn(&Stage) -> Result<(), Failed>| {
        Trial::test(format!("redis::{name}"), move || test(&Stage::new()?)).with_ignored_flag(skip)
    };
    vec![
        trial("an_opening_without_a_reply_has_raised_the_mark", opening),
        trial("a_write_without_a_reply_is_unknown", write),
        trial("a_request_that_never_arrived_is_unknown_too", request),
        trial("a_write_that_arrives_after_the_successor_is_refused", late),
        trial("a_write_that_arrives_twice_is_refused_the_second_time", twice),
    ]
}

fn token(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

fn ensure(kept: bool, broken: &str) -> Result<(), Failed> {
    if kept { Ok(()) } else { Err(broken.into()) }
}

fn is_unknown<T>(result: Result<T, Error>) -> Result<(), Failed> {
    match result {
        Err(error) if error.kind() == ErrorKind::Unknown => Ok(()),
        Err(error) => Err(format!("{:?} instead of unknown: {error}", error.kind()).into()),
        Ok(_) => Err("an answer, where it was lost".into()),
    }
}

fn is_stale<T>(result: Result<T, Error>) -> Result<(), Failed> {
    ensure(result.is_err_and(|error| error.kind() == ErrorKind::Stale), "the former holder came in")
}

fn opening(stage: &Stage) -> Result<(), Failed> {
    stage.faults.arm("42", Fault::LoseReply);
    is_unknown(stage.holder())?;
    ensure(wait(stage.sound.mark("a"))?.highest == Some(token(42)), "the mark was not raised")?;
    is_stale(wait(stage.sound.open("a", token(41))))?;
    // As it was told: again, which is harmless.
    stage.holder().map(drop)?;
    Ok(())
}

fn write(stage: &Stage) -> Result<(), Failed> {
    let open = stage.holder()?;
    stage.faults.arm("42", Fault::LoseReply);
    is_unknown(wait(open.set("k", "v")))?;
    ensure(wait(stage.holder()?.get("k"))? == Some(b"v".to_vec()), "it was not carried out")
}

fn request(stage: &Stage) -> Result<(), Failed> {
    let open = stage.holder()?;
    stage.faults.arm("42", Fault::LoseRequest);
    is_unknown(wait(open.set("k", "v")))?;
    ensure(wait(stage.holder()?.get("k"))?.is_none(), "it was carried out")
}

fn late(stage: &Stage) -> Result<(), Failed> {
    let open = stage.holder()?;
    stage.faults.arm("42", Fault::HoldBack(2 * PATIENCE));
    is_unknown(wait(open.set("k", "late")))?;
    let successor = wait(stage.sound.open("a", token(43)))?;
    wait(successor.set("k", "later"))?;
    thread::sleep(3 * PATIENCE);
    ensure(wait(successor.get("k"))? == Some(b"later".to_vec()), "the late write was carried out")?;
    is_stale(wait(open.set("k", "late")))
}

fn twice(stage: &Stage) -> Result<(), Failed> {
    let open = stage.holder()?;
    stage.faults.arm("42", Fault::Repeat(PATIENCE));
    wait(open.set("k", "first"))?;
    let successor = wait(stage.sound.open("a", token(43)))?;
    wait(successor.set("k", "later"))?;
    thread::sleep(2 * PATIENCE);
    ensure(wait(successor.get("k"))? == Some(b"later".to_vec()), "the repeated write was carried out")
}
