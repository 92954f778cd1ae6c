//! Many processes that are killed and stopped at random, judged by the log that their holders write.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::Path,
    thread,
    time::Duration,
};

use fencepost::{Locker, blocking::wait};
use rustix::process::Signal;

use crate::{
    roles::{Actor, say},
    support::{LOCK, TestRoot, now},
};

const WORKERS: usize = 8;
const RUN: Duration = Duration::from_secs(12);

/// How the run goes is in the hands of the scheduler; what is done to it follows from the seed.
const SEED: u64 = 0x5EED;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn holders_never_overlap_and_tokens_strictly_rise() {
    let root = TestRoot::new();
    // The root is made first: whoever is stopped while making it keeps all others from connecting.
    let locker = root.connect();
    let mut random = Random(SEED);
    let mut workers: Vec<_> = (0..WORKERS).map(|_| Actor::start("work", &root)).collect();
    let (start, mut killed) = (now(), 0);
    while start.elapsed() < RUN {
        thread::sleep(Duration::from_millis(1 + random.below(6)));
        let victim = random.below(WORKERS as u64) as usize;
        if random.below(4) == 0 {
            workers[victim].signal(Signal::KILL);
            workers[victim] = Actor::start("work", &root);
            killed += 1;
        } else {
            // Now and then for so long that a stopped waiter is passed over.
            let pause = if random.below(60) == 0 { 1200 } else { random.below(12) };
            workers[victim].signal(Signal::STOP);
            thread::sleep(Duration::from_millis(pause));
            workers[victim].signal(Signal::CONT);
        }
    }
    drop(workers);
    let grants = judge(&root.path().join("log"));
    wait(wait(locker.lock(LOCK).wait(Duration::from_secs(3)).acquire()).unwrap().release()).unwrap();
    assert_eq!(root.tickets(), [""; 0]);
    eprintln!("{grants} grants, {killed} processes killed");
    assert!(grants > 1000 && killed > 20, "{grants} grants, {killed} killed: too few to tell");
}

/// Checks the log, and answers the number of grants.
///
/// Each line is one append: the worker's life, the token, and `+` or `-`. A hold without an end is that of a worker
/// that was killed, so nothing of that life may follow.
fn judge(log: &Path) -> usize {
    let (mut holder, mut last, mut grants) = (None::<String>, 0, 0);
    let mut dead = HashMap::new();
    for (number, line) in BufReader::new(File::open(log).unwrap()).lines().enumerate() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        let (life, token, mark) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let token: u64 = token.parse().unwrap();
        if let Some(since) = dead.get(life) {
            panic!("line {number}: {line}: the lock was given to another in line {since}");
        }
        if mark == "+" {
            if let Some(killed) = holder.replace(life.to_owned()) {
                dead.insert(killed, number);
            }
            assert!(token > last, "line {number}: {line} after token {last}");
            (last, grants) = (token, grants + 1);
        } else {
            assert_eq!((holder.take().as_deref(), token), (Some(life), last), "line {number}: {line}");
        }
    }
    grants
}

/// The part of one worker: two threads that compete for the lock, with it, without it, and with all their ways out.
pub(crate) fn work(url: &str) {
    let locker = wait(Locker::connect(url)).unwrap();
    let root = url.strip_prefix("local:").unwrap();
    let log = Path::new(root).join("log");
    thread::scope(|scope| {
        for thread in 0..2 {
            let (locker, log) = (locker.clone(), &log);
            scope.spawn(move || {
                let mut log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
                let life = format!("{}.{thread}.{:?}", std::process::id(), now());
                let life = life.replace(' ', "");
                let mut random = Random(u64::from(std::process::id()) * 2 + thread + 1);
                loop {
                    let lock = locker.lock(LOCK);
                    let got = match random.below(4) {
                        0 => wait(lock.try_acquire()),
                        1 => wait(lock.wait(Duration::from_micros(random.below(3000))).acquire()),
                        _ => wait(lock.acquire()),
                    };
                    let Ok(guard) = got else { continue };
                    log.write_all(format!("{life} {} +\n", guard.token()).as_bytes()).unwrap();
                    (0..random.below(3)).for_each(|_| thread::yield_now());
                    log.write_all(format!("{life} {} -\n", guard.token()).as_bytes()).unwrap();
                    if random.below(2) == 0 { drop(guard) } else { wait(guard.release()).unwrap() }
                }
            });
        }
    });
    say("never");
}
