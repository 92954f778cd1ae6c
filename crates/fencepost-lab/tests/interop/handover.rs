//! One lock that goes from a peer to us and back: how soon, and that nobody frees what is not its own.

use std::{fs, io, thread, time::Duration};

use fencepost::{ErrorKind, Guard, Locker, Moment, blocking::wait};
use fencepost_lab::{
    clock::now_ns,
    history::{Event, Kind, Outcome, Phase, read},
    server::{Process, home, ignored, redis},
};
use libtest_mimic::{Failed, Trial};

use super::players::{Client, PEERS, Task};

const LOCK: &str = "orders/4821";
const KEY: &str = "lock:orders/4821";

/// A user for whom nothing is pushed: no tracking of keys, no channel.
const POLLER: &str = "poller on >p ~* +@all -client resetchannels";

/// A freed lock must be ours within this time. Peers tell nobody: the server tells us of the key, or we look.
const SOON_MS: u64 = 200;

/// How often each is done; the middle delay counts, since one stall of the machine says nothing.
const ROUNDS: usize = 7;

pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn(Client) -> Result<(), Failed>;
    let tests: [(&str, Test); 4] = [
        ("freed_by_its_release", |peer| freed_by_its_release(peer, redis::Redis::url)),
        ("freed_by_its_release_when_nothing_is_pushed", |peer| {
            freed_by_its_release(peer, |server| server.url_as("poller", "p"))
        }),
        ("freed_by_expiry_and_not_by_a_late_release", freed_by_expiry),
        ("our_late_release_frees_nothing", our_late_release),
    ];
    let all = PEERS.into_iter().flat_map(|peer| tests.into_iter().map(move |test| (peer, test)));
    let trials = all.map(|(peer, (name, test))| {
        let found = peer.found();
        let skip = ignored(&found);
        let run = move || found.map_err(Failed::from).and_then(|()| test(peer));
        Trial::test(format!("handover::{}::{name}", peer.name()), run).with_ignored_flag(skip)
    });
    trials.collect()
}

/// A server, and the task of a peer there.
struct Stage {
    server: redis::Redis,
    task: Task,
    _home: tempfile::TempDir,
}

impl Stage {
    fn new(ttl_ms: u64, hold_ms: u64) -> Result<Self, Failed> {
        let options = redis::Options { users: vec![POLLER.into()], ..redis::Options::default() };
        let server = redis::Redis::start(options)?;
        let home = home("interop")?;
        let mut task = Task::new(home.path(), LOCK, server.url(), KEY.into(), ttl_ms);
        task.hold_ms = Some(hold_ms);
        Ok(Self { server, task, _home: home })
    }

    /// A peer that holds the lock.
    fn holder(&self, peer: Client) -> io::Result<Process> {
        let before = self.count(Kind::Acquire);
        let mut process = self.task.start(peer)?;
        process.wait_ready(Duration::from_secs(20), || self.count(Kind::Acquire) > before)?;
        Ok(process)
    }

    fn events(&self) -> Vec<Event> {
        let text = fs::read(&self.task.history).unwrap_or_default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        read(&text[..whole]).map(|event| event.expect("an event")).collect()
    }

    /// How many operations of this kind have returned.
    fn count(&self, kind: Kind) -> usize {
        self.events().iter().filter(|e| e.kind == kind && e.phase == Some(Phase::Return)).count()
    }

    /// The last event of this kind, waited for if it must be the answer to a release.
    fn last(&self, kind: Kind, phase: Phase) -> Event {
        let found = self.events().into_iter().rfind(|e| e.kind == kind && e.phase == Some(phase));
        found.expect("the peer has written it")
    }

    /// How the peer's release went, once it has ended.
    fn release_of(&self, mut peer: Process) -> Result<Option<Outcome>, Failed> {
        let end = now_ns() + 20_000_000_000;
        while peer.exited()?.is_none() {
            if now_ns() > end {
                return Err("the peer's release does not end".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(self.last(Kind::Release, Phase::Return).outcome)
    }

    /// As bytes: not every client writes text.
    fn value(&self) -> Result<Option<Vec<u8>>, Failed> {
        Ok(self.server.command(&["GET", KEY])?)
    }
}

fn acquire(locker: &Locker, ttl: Duration) -> Result<(Guard, u64), Failed> {
    let guard = wait(locker.lock(LOCK).ttl(ttl).wait(Duration::from_secs(20)).acquire())?;
    Ok((guard, now_ns()))
}

fn freed_by_its_release(peer: Client, url: fn(&redis::Redis) -> String) -> Result<(), Failed> {
    let stage = Stage::new(10_000, 500)?;
    let locker = wait(Locker::connect(&url(&stage.server)))?;
    let mut delays = Vec::new();
    for _ in 0..ROUNDS {
        let process = stage.holder(peer)?;
        let (guard, got) = acquire(&locker, Duration::from_secs(10))?;
        assert_ne!(stage.release_of(process)?, Some(Outcome::Lost), "we took what was not free");
        let freed = stage.last(Kind::Release, Phase::Invoke).t_ns;
        assert!(got > freed, "we had it before it was given back");
        delays.push((got - freed) / 1000);
        wait(guard.release())?;
    }
    delays.sort_unstable();
    println!("{}: ours {delays:?} us after its release was asked for", peer.name());
    assert!(delays[ROUNDS / 2] <= SOON_MS * 1000, "{delays:?}");
    Ok(())
}

fn freed_by_expiry(peer: Client) -> Result<(), Failed> {
    let (ttl, hold) = (600, 1_500);
    let stage = Stage::new(ttl, hold)?;
    let locker = wait(Locker::connect(&stage.server.url()))?;
    let mut delays = Vec::new();
    for _ in 0..ROUNDS {
        let process = stage.holder(peer)?;
        let granted = stage.last(Kind::Acquire, Phase::Return);
        let (guard, got) = acquire(&locker, Duration::from_secs(10))?;
        assert!(Some(got) > granted.deadline_ns, "the peer could still rely on it");
        delays.push(got.saturating_sub(granted.t_ns + ttl * 1_000_000) / 1000);
        let ours = stage.value()?;
        assert_eq!(stage.release_of(process)?, Some(Outcome::Lost), "the peer freed what was not its own");
        assert_eq!(stage.value()?, ours);
        assert!(guard.is_held());
        wait(guard.release())?;
    }
    delays.sort_unstable();
    println!("{}: ours {delays:?} us after its lease", peer.name());
    assert!(delays[ROUNDS / 2] <= SOON_MS * 1000, "{delays:?}");
    Ok(())
}

fn our_late_release(peer: Client) -> Result<(), Failed> {
    let stage = Stage::new(10_000, 700)?;
    let locker = wait(Locker::connect(&stage.server.url()))?;
    let (guard, _) = acquire(&locker, Duration::from_secs(10))?;
    stage.server.command::<i64>(&["PEXPIRE", KEY, "1"])?;
    let process = stage.holder(peer)?;
    let theirs = stage.value()?;
    assert!(guard.deadline() > Some(Moment::default()) && theirs.is_some());
    assert_eq!(wait(guard.release()).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(stage.value()?, theirs, "we freed what was not our own");
    assert_eq!(wait(locker.lock(LOCK).try_acquire()).unwrap_err().kind(), ErrorKind::Timeout);
    assert_ne!(stage.release_of(process)?, Some(Outcome::Lost), "its lock was gone before its release");
    Ok(wait(wait(locker.lock(LOCK).try_acquire())?.release())?)
}
