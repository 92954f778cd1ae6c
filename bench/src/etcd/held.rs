//! Very many locks, held and renewed by one process.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use fencepost::{DEFAULT_TTL, Locker, blocking};
use fencepost_lab::server::etcd::Etcd;

use super::requests::messages;
use crate::{outcome::Outcome, redis::held::take, table::Table};

pub(super) fn measure(table: &mut Table, cluster: &Etcd, effort: usize) -> Outcome<()> {
    let (many, window) = if effort > 1 { (10_000, DEFAULT_TTL) } else { (1000, Duration::from_secs(11)) };
    let one = requests(cluster, 1, window)?;
    let all = requests(cluster, many, window)?;
    let second = |count: f64| format!("{:.2}", count / window.as_secs_f64());
    let ratio = all / one.max(1.0);
    table.row([
        format!("requests a second to renew {many} locks, etcd"),
        "1 lock".into(),
        second(one),
        second(all),
        format!("{ratio:.2}"),
        format!("at most 1.2: {}", if ratio <= 1.2 { "met" } else { "not met" }),
    ]);
    Ok(())
}

/// How many requests the members get while so many locks are held.
fn requests(cluster: &Etcd, locks: usize, window: Duration) -> Outcome<f64> {
    let mut process = Command::new(env::current_exe()?)
        .args(["kept", &cluster.url(), &locks.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut out = BufReader::new(process.stdout.take().ok_or("a pipe")?);
    out.read_line(&mut String::new())?;
    let before = messages(cluster, |_| true)?;
    thread::sleep(window);
    let sum = messages(cluster, |_| true)? - before;
    // Its standard input is closed now, which ends it.
    drop(process.stdin.take());
    let mut held = String::new();
    out.read_line(&mut held)?;
    process.wait()?;
    if held.trim() != locks.to_string() {
        return Err(format!("of {locks} locks {} were still held", held.trim()).into());
    }
    Ok(sum)
}

/// The part of the process of its own.
pub(crate) fn play(url: &str, locks: usize) -> Outcome<()> {
    let locker = blocking::wait(Locker::connect(url))?;
    let guards = take(&locker, 0..locks, "kept")?;
    // Until the last of them are watched, too.
    thread::sleep(Duration::from_secs(2));
    println!("up");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    println!("{}", guards.iter().filter(|guard| guard.is_held()).count());
    Ok(())
}
