//! Curator's `InterProcessMutex` and kazoo's `Lock` in one line with us.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use fencepost::{ErrorKind, Guard, Locker, blocking::wait};
use fencepost_lab::server::{
    Missing, home, ignored,
    zookeeper::{self, Client as Operator, Pooled, class_path},
};
use libtest_mimic::{Failed, Trial};

use super::players::{Client, Task};

const LOCK: &str = "orders";
const TTL: Duration = Duration::from_millis(1500);
/// A peer that was killed is believed in for its session of two seconds, and Java takes its time to start.
const PATIENCE: Duration = Duration::from_secs(40);
/// What does not come within this time does not come.
const QUIET: Duration = Duration::from_millis(700);

#[derive(Clone, Copy, Debug)]
enum Peer {
    Curator,
    Kazoo,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
        }
    }

    fn found(self) -> Result<(), Missing> {
        zookeeper::installed()?;
        match self {
            Self::Curator => zookeeper::jar("curator-recipes", "libcurator-recipes-java"),
            Self::Kazoo => python().map(drop),
        }
    }

    fn command(self, home: &Path) -> std::io::Result<Command> {
        match self {
            Self::Curator => {
                let source = home.join("Curator.java");
                fs::write(&source, include_str!("peers/Curator.java"))?;
                let mut command = Command::new("java");
                let jars = ["curator-recipes", "curator-framework", "curator-client", "guava", "slf4j-api"];
                command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
                command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", &class_path(&jars)]);
                command.arg(source);
                Ok(command)
            }
            Self::Kazoo => {
                let mut command = Command::new(python().map_err(std::io::Error::other)?);
                command.args(["-c", include_str!("peers/kazoo_lock.py")]);
                Ok(command)
            }
        }
    }
}

/// The interpreter that has Debian's package, which need not be the first one in `PATH`.
fn python() -> Result<&'static str, Missing> {
    let has = |python: &&str| {
        let looked = Command::new(python).args(["-c", "import kazoo"]).stderr(Stdio::null()).status();
        looked.is_ok_and(|status| status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has);
    found.ok_or_else(|| Missing::new("kazoo", "apt-get install python3-kazoo"))
}

/// A peer's process. Dropped, it is killed.
struct Player {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Player {
    fn start(peer: Peer, stage: &Stage) -> Result<Self, Failed> {
        let mut command = peer.command(stage.home.path())?;
        command.args([stage.server.addr().to_string(), stage.path()]);
        let log = fs::File::create(stage.home.path().join(format!("{}.log", peer.name())))?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(send.send(line)));
        });
        let mut player = Self { child, input, lines };
        player.hears("ready")?;
        Ok(player)
    }

    fn asks(&mut self, words: &str) -> Result<(), Failed> {
        Ok(writeln!(self.input, "{words}")?)
    }

    fn hears(&mut self, words: &str) -> Result<(), Failed> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) if line == words => Ok(()),
            other => Err(format!("the peer says {other:?} instead of {words:?}").into()),
        }
    }

    fn does(&mut self, words: &str) -> Result<(), Failed> {
        self.asks(words)?;
        self.hears(&format!("done {}", words.split(' ').next().unwrap_or_default()))
    }

    /// It is still waiting.
    fn is_silent(&mut self) -> Result<(), Failed> {
        match self.lines.recv_timeout(QUIET) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            other => Err(format!("the peer did not wait: {other:?}").into()),
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Stage {
    server: Pooled,
    home: tempfile::TempDir,
}

impl Stage {
    fn new() -> Result<Self, Failed> {
        Ok(Self { server: Pooled::take()?, home: home("interop")? })
    }

    fn url(&self) -> String {
        format!("{}?root=/locks&names=raw", self.server.url())
    }

    fn path(&self) -> String {
        format!("{}/locks/{LOCK}", self.server.chroot())
    }

    fn locker(&self) -> Result<Locker, Failed> {
        Ok(wait(Locker::connect(&self.url()))?)
    }

    fn line(&self, count: usize) -> Result<(), Failed> {
        let mut operator: Operator = self.server.client()?;
        let end = fencepost_lab::clock::now_ns() + PATIENCE.as_nanos() as u64;
        while operator.line(&self.path())?.len() != count {
            if fencepost_lab::clock::now_ns() > end {
                return Err(format!("there are never {count} in line").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn take(locker: &Locker) -> Result<Guard, Failed> {
    Ok(wait(locker.lock(LOCK).ttl(TTL).wait(PATIENCE).acquire())?)
}

pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn(Peer) -> Result<(), Failed>;
    let tests: [(&str, Test); 4] = [
        ("each_excludes_the_other_in_the_order_of_arrival", in_order),
        ("a_killed_peers_lock_passes_to_us", killed_peer),
        ("our_killed_processs_lock_passes_to_the_peer", killed_ours),
        ("no_update_is_lost_among_all", updates),
    ];
    let all = [Peer::Curator, Peer::Kazoo].into_iter().flat_map(|peer| tests.map(|test| (peer, test)));
    let trials = all.map(|(peer, (name, test))| {
        let found = peer.found();
        let skip = ignored(&found);
        let run = move || found.map_err(Failed::from).and_then(|()| test(peer));
        Trial::test(format!("zookeeper::{}::{name}", peer.name()), run).with_ignored_flag(skip)
    });
    trials.collect()
}

fn in_order(peer: Peer) -> Result<(), Failed> {
    let stage = Stage::new()?;
    let locker = stage.locker()?;
    let mut player = Player::start(peer, &stage)?;
    player.does("take")?;
    let held = wait(locker.lock(LOCK).ttl(TTL).try_acquire());
    assert_eq!(held.map(drop).unwrap_err().kind(), ErrorKind::Timeout, "two hold it");
    player.does("give")?;
    // Ours, then theirs, then ours again: first come, first served, whoever it is.
    let first = take(&locker)?;
    player.asks("take")?;
    stage.line(2)?;
    let second = locker.clone();
    let second = thread::spawn(move || take(&second).map_err(|failed| format!("{failed:?}")));
    stage.line(3)?;
    player.is_silent()?;
    let token = first.token();
    wait(first.release())?;
    player.hears("done take")?;
    thread::sleep(QUIET);
    assert!(!second.is_finished(), "we overtook the peer");
    player.does("give")?;
    let second = second.join().expect("no panic")?;
    assert!(second.token() > token);
    Ok(wait(second.release())?)
}

fn killed_peer(peer: Peer) -> Result<(), Failed> {
    let stage = Stage::new()?;
    let locker = stage.locker()?;
    let mut player = Player::start(peer, &stage)?;
    player.does("take")?;
    drop(player);
    let guard = take(&locker)?;
    // One that was killed while it waits stands in nobody's way either.
    let mut waiting = Player::start(peer, &stage)?;
    waiting.asks("take")?;
    stage.line(2)?;
    drop(waiting);
    wait(guard.release())?;
    Ok(wait(take(&locker)?.release())?)
}

fn killed_ours(peer: Peer) -> Result<(), Failed> {
    let stage = Stage::new()?;
    let task = Task::new(stage.home.path(), LOCK, stage.url(), LOCK.into(), TTL.as_millis() as u64);
    let mut player = Player::start(peer, &stage)?;
    for _ in 0..2 {
        let mut ours = task.start(Client::Fencepost)?;
        stage.line(1)?;
        ours.kill()?;
        player.does("take")?;
        player.does("give")?;
    }
    Ok(())
}

fn updates(peer: Peer) -> Result<(), Failed> {
    const EACH: usize = 40;
    let stage = Stage::new()?;
    let file = stage.home.path().join("count");
    fs::write(&file, "0")?;
    let mut player = Player::start(peer, &stage)?;
    player.asks(&format!("add {} {EACH}", file.display()))?;
    let ours: Vec<_> = (0..2)
        .map(|_| {
            let (locker, file) = (stage.locker(), file.clone());
            thread::spawn(move || {
                let locker = locker.map_err(|failed| format!("{failed:?}"))?;
                for _ in 0..EACH {
                    let guard = take(&locker).map_err(|failed| format!("{failed:?}"))?;
                    let count: usize = fs::read_to_string(&file).unwrap().trim().parse().expect("a number");
                    thread::sleep(Duration::from_millis(2));
                    fs::write(&file, (count + 1).to_string()).unwrap();
                    wait(guard.release()).map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    for thread in ours {
        thread.join().expect("no panic")?;
    }
    player.hears("done add")?;
    assert_eq!(fs::read_to_string(&file)?.trim(), (EACH * 3).to_string(), "an update was lost");
    Ok(())
}
