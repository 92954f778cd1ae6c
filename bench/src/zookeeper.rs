//! Locks on an ensemble of three ZooKeeper servers: beside the bare requests, beside Curator and kazoo, and how many requests
//! a hand-over and many held locks cost.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use fencepost::{Guard, Locker, blocking::wait};
use fencepost_lab::server::{
    home,
    zookeeper::{Client, Ensemble, Frames, OPEN, Options, class_path, jar},
};
use tokio::{runtime::Builder, task::JoinSet};

use crate::{
    outcome::Outcome,
    pairs::{in_turn, timed_in_turn},
    table::Table,
};

/// How often each measurement repeats what it measures.
const REPEATED: u32 = 20;

const WHAT: &str = "acquire and release, zookeeper";

pub(crate) fn measure(table: &mut Table, effort: usize) -> Outcome<()> {
    let ensemble = Ensemble::start(&Options { tick: Duration::from_secs(2), ..Options::default() })?;
    let server = ensemble.addrs()[0];
    // All at the same server: a follower costs a round trip more than the leader.
    let locker = wait(Locker::connect(&format!("zk://{server}")))?;
    let ours = || {
        for _ in 0..REPEATED {
            wait(wait(locker.lock("alone").acquire())?.release())?;
        }
        Ok(())
    };
    ours()?;
    let mut bare = Client::connect(server, Duration::from_secs(30))?;
    bare.create("/bare", b"", OPEN, 0)?;
    let floor = || {
        for _ in 0..REPEATED {
            let node = bare.create("/bare/n-", b"", OPEN, 3)?;
            bare.delete(&node)?;
        }
        Ok(())
    };
    let pairs = in_turn(10 * effort, floor, ours)?.each_of(REPEATED);
    table.pairs(WHAT, "create and delete, one blocking socket", &pairs, Some(1.15));
    for peer in ["curator", "kazoo"] {
        let mut peer = match Peer::start(peer, &server.to_string()) {
            Ok(peer) => peer,
            Err(why) => {
                table.note(format!("{peer} was not measured: {why}"));
                continue;
            }
        };
        // It compiles what it runs often.
        (0..5).try_for_each(|_| peer.time().map(drop))?;
        let mine = || crate::pairs::time(ours);
        let pairs = timed_in_turn(3 * effort, || peer.time(), mine)?.each_of(REPEATED);
        table.pairs(WHAT, peer.name, &pairs, Some(1.0));
    }
    hand_over(table, &ensemble)?;
    keep_alive(table, &ensemble, effort)
}

/// Requests for one release and the next one's grant.
fn hand_over(table: &mut Table, ensemble: &Ensemble) -> Outcome<()> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let cost = |waiting: usize| -> Outcome<u64> {
        let frames = Frames::start(ensemble.addrs()[0])?;
        let locker = wait(Locker::connect(&format!("zk://{}", frames.addr())))?;
        let lock = format!("line-{waiting}");
        let first = wait(locker.lock(&lock).acquire())?;
        let mut waiters = JoinSet::new();
        for _ in 0..waiting {
            let lock = locker.lock(&lock);
            waiters.spawn_on(async move { lock.acquire().await }, runtime.handle());
        }
        while wait(locker.inspect(&lock))?.waiters.len() < waiting {
            thread::sleep(Duration::from_millis(100));
        }
        thread::sleep(Duration::from_secs(1));
        let before = frames.passed();
        wait(first.release())?;
        thread::sleep(Duration::from_millis(500));
        Ok(frames.passed() - before)
    };
    let (few, many) = (cost(10)?, cost(1000)?);
    let ratio = many as f64 / few as f64;
    let met = if ratio <= 1.2 { "met" } else { "not met" };
    table.row([
        "requests a hand-over, 1000 waiting".into(),
        "10 waiting".into(),
        few.to_string(),
        many.to_string(),
        format!("{ratio:.2}"),
        format!("at most 1.2: {met}"),
    ]);
    Ok(())
}

/// Requests of a locker that holds many locks for more than a term.
fn keep_alive(table: &mut Table, ensemble: &Ensemble, effort: usize) -> Outcome<()> {
    let locks = if effort > 1 { 10_000 } else { 500 };
    let cost = |count: usize| -> Outcome<u64> {
        let frames = Frames::start(ensemble.addrs()[0])?;
        let locker = wait(Locker::connect(&format!("zk://{}", frames.addr())))?;
        let take = |number| wait(locker.lock(format!("many-{number}")).acquire());
        let held: Vec<Guard> = (0..count).map(take).collect::<Result<_, _>>()?;
        thread::sleep(Duration::from_secs(2));
        let before = frames.passed();
        thread::sleep(fencepost::DEFAULT_TTL);
        let cost = frames.passed() - before;
        if held.iter().all(Guard::is_held) { Ok(cost) } else { Err("a lock was lost".into()) }
    };
    let (one, many) = (cost(1)?, cost(locks)?);
    table.row([
        format!("requests in {:?} to keep {locks} locks", fencepost::DEFAULT_TTL),
        "1 lock".into(),
        one.to_string(),
        many.to_string(),
        format!("{:.2}", many as f64 / one.max(1) as f64),
        format!("the same: {}", if many <= one + 1 { "met" } else { "not met" }),
    ]);
    Ok(())
}

/// Another client, which takes its own time.
struct Peer {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _home: tempfile::TempDir,
}

impl Peer {
    fn start(name: &str, server: &str) -> Outcome<Self> {
        let home = home("peer")?;
        let (name, mut command) = match name {
            "curator" => {
                jar("curator-recipes", "libcurator-recipes-java")?;
                let source = home.path().join("Curator.java");
                fs::write(
                    &source,
                    include_str!("../../crates/fencepost-lab/tests/interop/peers/Curator.java"),
                )?;
                let jars = ["curator-recipes", "curator-framework", "curator-client", "guava", "slf4j-api"];
                let mut command = Command::new("java");
                command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", &class_path(&jars)]);
                command.arg(source);
                ("Curator's InterProcessMutex", command)
            }
            _ => {
                let mut command = Command::new("/usr/bin/python3");
                let script = include_str!("../../crates/fencepost-lab/tests/interop/peers/kazoo_lock.py");
                command.args(["-c", script]);
                ("kazoo's Lock", command)
            }
        };
        command.args([server, "/peers"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take().ok_or("a pipe")?, child.stdout.take().ok_or("a pipe")?);
        let mut peer = Self { name, child, input, output: BufReader::new(output), _home: home };
        match peer.line()?.trim() {
            "ready" => Ok(peer),
            other => Err(format!("it does not start: {other:?}").into()),
        }
    }

    /// How long as many pairs take as one of our measurements has.
    fn time(&mut self) -> Outcome<Duration> {
        writeln!(self.input, "time {REPEATED}")?;
        let line = self.line()?;
        let nanos = line.trim().strip_prefix("took ").ok_or("it says something else")?;
        self.line()?;
        Ok(Duration::from_nanos(nanos.parse()?))
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
