//! How long a free lock stays free: from the release in one process to the grant in another.
//!
//! Two processes keep a line of a constant length: whoever gave the lock back stands in line again. Each notes when it
//! got the lock and when it began to give it back, on a clock that both share. The floor is the same with flock(2),
//! which wakes those who wait by itself.

use std::{
    env,
    fs::File,
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use fencepost::{Locker, Moment, blocking};
use tokio::{runtime::Builder, task::LocalSet};

use crate::{
    outcome::Outcome,
    pairs::{median, now},
    places::Place,
    table::{Table, show},
};

const LOCK: &str = "line";

/// How long each one has the lock: long enough for the last one to stand in line again.
const HELD: Duration = Duration::from_millis(1);

pub(crate) fn measure(table: &mut Table, place: &Place, effort: usize) -> Outcome<()> {
    let window = Duration::from_millis(if effort > 1 { 2000 } else { 200 });
    let file = place.file("line");
    File::create(&file)?;
    let path = file.to_str().ok_or("a path that is not UTF-8")?;
    let flock = ["flock", path];
    let floor = patiently(window, |window| Ok(across(&follow(&flock, &flock, || thread::sleep(window))?)))?;
    for waiters in [1, 1000] {
        let ours = patiently(window, |window| ours(&place.url(), waiters, window))?;
        table.row([
            format!("hand-over to another process, {waiters} waiting"),
            "flock(2), 1 waiting".into(),
            show(floor),
            show(ours),
            format!("{:.2}", ours.as_secs_f64() / floor.as_secs_f64()),
            String::new(),
        ]);
    }
    Ok(())
}

/// Tries longer and longer until the lock was handed over: on a busy machine the processes need a while to start.
pub(crate) fn patiently<T>(
    mut window: Duration,
    measure: impl Fn(Duration) -> Outcome<Option<T>>,
) -> Outcome<T> {
    loop {
        match measure(window)? {
            Some(found) => return Ok(found),
            None if window > Duration::from_secs(8) => return Err("the lock was never handed over".into()),
            None => window *= 2,
        }
    }
}

fn ours(url: &str, waiters: usize, window: Duration) -> Outcome<Option<Duration>> {
    Ok(across(&line_up(url, waiters, || thread::sleep(window))?))
}

/// Keeps `waiters` of two processes in line, and answers all holds until the end of `meanwhile`, which begins when they
/// stand there.
pub(crate) fn line_up(url: &str, waiters: usize, meanwhile: impl FnOnce()) -> Outcome<Vec<Hold>> {
    let locker = blocking::Locker::connect(url)?;
    let guard = locker.acquire(&locker.lock(LOCK))?;
    // One of them will hold the lock.
    let all = waiters + 1;
    let (one, other) = ((all / 2).to_string(), (all - all / 2).to_string());
    follow(&["line", url, &one], &["line", url, &other], || {
        while locker.inspect(LOCK).is_ok_and(|status| status.waiters.len() < all) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = guard.release();
        meanwhile();
    })
}

/// One time that the lock was held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hold {
    pub(crate) from: Moment,
    /// When its holder began to give it back.
    pub(crate) until: Moment,
    /// Which of the two processes.
    who: usize,
}

/// The median of the times between a release in one process and the next grant, if that was in the other; `None` if it
/// never was.
pub(crate) fn across(holds: &[Hold]) -> Option<Duration> {
    let pairs = holds.windows(2).filter(|pair| pair[0].who != pair[1].who);
    let times: Vec<_> = pairs.map(|pair| pair[1].from.since(pair[0].until)).collect();
    (!times.is_empty()).then(|| median(times.into_iter()))
}

/// Runs two processes for as long as `meanwhile` takes, and answers when they held the lock, in order.
fn follow(one: &[&str], other: &[&str], meanwhile: impl FnOnce()) -> Outcome<Vec<Hold>> {
    let processes = [start(one)?, start(other)?];
    meanwhile();
    let mut holds = Vec::new();
    for (who, process) in processes.into_iter().enumerate() {
        // Its standard input is closed now, which ends it.
        let output = process.wait_with_output()?;
        for line in String::from_utf8(output.stdout)?.lines() {
            let (from, until) = line.split_once(' ').ok_or("two numbers")?;
            let (from, until) = (Moment::from_nanos(from.parse()?), Moment::from_nanos(until.parse()?));
            holds.push(Hold { from, until, who });
        }
    }
    holds.sort_unstable();
    Ok(holds)
}

fn start(arguments: &[&str]) -> io::Result<Child> {
    Command::new(env::current_exe()?).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// From when until when the lock was held.
type Holds = Arc<Mutex<Vec<(Moment, Moment)>>>;

fn hold(holds: &Holds) {
    let from = now();
    thread::sleep(HELD);
    holds.lock().unwrap_or_else(PoisonError::into_inner).push((from, now()));
}

/// The part of a process of its own: so many of its futures stand in line again and again.
pub(crate) fn play(url: &str, waiters: usize) -> Outcome<()> {
    let locker = blocking::wait(Locker::connect(url))?;
    until_told(move |holds| {
        let set = LocalSet::new();
        for _ in 0..waiters {
            let (lock, holds) = (locker.lock(LOCK), holds.clone());
            set.spawn_local(async move {
                while let Ok(guard) = lock.acquire().await {
                    hold(&holds);
                    let _ = guard.release().await;
                }
            });
        }
        Builder::new_current_thread().build().map(|runtime| runtime.block_on(set)).unwrap_or(());
    })
}

/// The same with one waiter and flock(2).
pub(crate) fn play_flock(path: &Path) -> Outcome<()> {
    let file = File::open(path)?;
    until_told(move |holds| {
        while file.lock().is_ok() {
            hold(&holds);
            let _ = file.unlock();
            // It is not fair: the other one has to wake up before we ask again.
            thread::sleep(HELD / 2);
        }
    })
}

/// Runs `work` on another thread until the standard input ends, and then says what it noted. `work` ends with the
/// process.
fn until_told(work: impl FnOnce(Holds) + Send + 'static) -> Outcome<()> {
    let holds = Holds::default();
    let noted = holds.clone();
    thread::spawn(move || work(noted));
    io::stdin().read_to_end(&mut Vec::new())?;
    let mut out = io::stdout().lock();
    for (from, until) in holds.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        writeln!(out, "{} {}", from.as_nanos(), until.as_nanos())?;
    }
    Ok(())
}
