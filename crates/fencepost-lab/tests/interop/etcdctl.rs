//! A player over `etcdctl lock`, and what only clients in one line can promise one another: the order of their arrival.

use std::{
    fs, io,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use fencepost::{Guard, Locker, SystemHost, blocking::wait, driver::Host};
use fencepost_lab::{
    clock::now_ns,
    history::Outcome,
    server::{
        Process,
        etcd::{self, Etcd},
        home, ignored,
    },
};
use libtest_mimic::{Failed, Trial};

use super::{
    diary::{Diary, pause},
    players::{Client, Task},
};

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn() -> Result<(), Failed>;
    let tests: [(&str, Test); 4] = [
        ("each_excludes_the_other", exclusion),
        ("both_stand_in_one_line", one_line),
        ("its_death_frees_the_lock_for_us", its_death),
        ("our_forced_end_frees_the_lock_for_it", our_end),
    ];
    let trials = tests.into_iter().map(|(name, test)| {
        let found = Client::Etcdctl.found();
        let skip = ignored(&found);
        let run = move || found.map_err(Failed::from).and_then(|()| test());
        Trial::test(format!("etcdctl::{name}"), run).with_ignored_flag(skip)
    });
    trials.collect()
}

/// `etcdctl lock` without a command: it prints the key once it holds the lock, and gives it back when it is told to end.
struct Theirs {
    process: Process,
    log: std::path::PathBuf,
    key: String,
}

impl Theirs {
    fn start(home: &Path, endpoints: &str, lock: &str, ttl_ms: u64) -> io::Result<Self> {
        let (_, program) = etcd::installed().map_err(io::Error::other)?;
        let log = home.join(format!("etcdctl-{:x}", SystemHost.random()));
        let mut command = Command::new(program);
        command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints, "lock", lock]);
        command.arg(format!("--ttl={}", ttl_ms / 1000));
        Ok(Self { process: Process::spawn(command, &log)?, log, key: format!("{lock}/") })
    }

    fn holds(&self) -> bool {
        says(&self.log, &self.key)
    }

    fn wait(&mut self) -> io::Result<()> {
        self.process.wait_ready(PATIENCE, || says(&self.log, &self.key))
    }

    fn give(&mut self) -> io::Result<bool> {
        Ok(self.process.terminate(PATIENCE)?.success())
    }
}

fn says(log: &Path, key: &str) -> bool {
    fs::read_to_string(log).is_ok_and(|said| said.lines().any(|line| line.starts_with(key)))
}

/// One of the crowd.
pub(crate) fn play(task: &Task) -> ExitCode {
    let mut diary = Diary::new(task, Client::Etcdctl.name());
    let home = task.resource.parent().expect("a file has a folder").to_owned();
    let endpoints = task.url.trim_start_matches("etcd://").to_owned();
    loop {
        diary.asks();
        let mut lock = Theirs::start(&home, &endpoints, &task.key, task.ttl_ms).expect("it can be started");
        if lock.wait().is_err() {
            // Its session ended before its turn.
            diary.refused();
            continue;
        }
        // Its lease was renewed a third of its length ago, at most.
        let deadline = now_ns() + task.ttl_ms * 1_000_000 / 3;
        diary.granted(deadline, None);
        diary.update(deadline);
        diary.releases();
        let was_ours = lock.give().expect("our own child");
        diary.released(if was_ours { Outcome::Ok } else { Outcome::Unknown });
        pause(50);
    }
}

struct Stage {
    server: Etcd,
    home: tempfile::TempDir,
    locker: Locker,
}

impl Stage {
    fn new() -> Result<Self, Failed> {
        let server = Etcd::start(etcd::Options::default())?;
        let locker = wait(Locker::connect(&server.url()))?;
        Ok(Self { server, home: home("interop")?, locker })
    }

    fn theirs(&self) -> io::Result<Theirs> {
        Theirs::start(self.home.path(), &self.server.addr(0).to_string(), "orders", 2000)
    }

    fn ours(&self) -> Result<Guard, Failed> {
        Ok(wait(self.locker.lock("orders").ttl(Duration::from_secs(2)).wait(PATIENCE).acquire())?)
    }

    /// Returns once so many stand in line, the holder among them.
    fn in_line(&self, count: usize) -> Result<(), Failed> {
        let end = now_ns() + PATIENCE.as_nanos() as u64;
        while self.server.keys("orders/")?.len() != count {
            if now_ns() > end {
                return Err(format!("never {count} in line").into());
            }
        }
        Ok(())
    }
}

fn exclusion() -> Result<(), Failed> {
    let stage = Stage::new()?;
    for _ in 0..5 {
        let guard = stage.ours()?;
        let mut theirs = stage.theirs()?;
        stage.in_line(2)?;
        assert!(!theirs.holds(), "it has what we hold");
        wait(guard.release())?;
        theirs.wait()?;
        let busy = wait(stage.locker.lock("orders").try_acquire());
        assert!(busy.is_err(), "we have what it holds");
        let status = wait(stage.locker.inspect("orders"))?;
        assert!(status.holder.is_some_and(|holder| holder.owner.is_none() && holder.token.is_some()));
        assert!(theirs.give()?, "its release failed");
    }
    Ok(())
}

/// Theirs, ours, theirs, ours …: each gets the lock in its turn.
fn one_line() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let first = stage.ours()?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for pair in 0..3 {
        theirs.push(stage.theirs()?);
        stage.in_line(2 * pair + 2)?;
        let lock = stage.locker.lock("orders").ttl(Duration::from_secs(2)).wait(PATIENCE);
        ours.push(std::thread::spawn(move || wait(lock.acquire())));
        stage.in_line(2 * pair + 3)?;
    }
    let mut last = first.token();
    wait(first.release())?;
    for (mut theirs, ours) in theirs.into_iter().zip(ours) {
        theirs.wait()?;
        assert!(!ours.is_finished(), "we were first, out of turn");
        assert!(theirs.give()?, "its release failed");
        let guard = ours.join().expect("no panic")?;
        assert!(guard.token() > last);
        last = guard.token();
        wait(guard.release())?;
    }
    Ok(())
}

fn its_death() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let mut theirs = stage.theirs()?;
    theirs.wait()?;
    theirs.process.kill()?;
    let guard = stage.ours()?;
    assert!(guard.is_held());
    Ok(wait(guard.release())?)
}

/// And the other way round; our holder is told, which it would not be.
fn our_end() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let guard = stage.ours()?;
    let mut theirs = stage.theirs()?;
    stage.in_line(2)?;
    wait(stage.locker.force_unlock("orders"))?;
    wait(guard.lost());
    theirs.wait()?;
    assert!(!guard.is_held());
    drop(guard);
    // Our late removal must not hit its key.
    std::thread::sleep(Duration::from_millis(300));
    assert!(wait(stage.locker.lock("orders").try_acquire()).is_err(), "its lock was removed with ours");
    assert!(theirs.give()?, "its release failed");
    Ok(())
}
