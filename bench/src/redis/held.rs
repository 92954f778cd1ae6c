//! Very many locks, held and renewed by one process.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use fencepost::{DEFAULT_TTL, Guard, Locker, blocking};
use fencepost_lab::server::redis::Redis;
use tokio::{runtime::Builder, task::LocalSet};

use crate::{
    crowd::{processor_time, status},
    outcome::Outcome,
    table::{Table, show},
};

/// Counts the locks that the server still has.
const COUNT: &str =
    "local n = 0 for i = 0, ARGV[1] - 1 do n = n + redis.call('EXISTS', 'lock:held/' .. i) end return n";

/// How many locks are taken at the same time.
const AT_ONCE: usize = 256;

pub(super) fn measure(table: &mut Table, server: &Redis, effort: usize) -> Outcome<()> {
    let (locks, window) =
        if effort > 1 { (100_000, DEFAULT_TTL + DEFAULT_TTL / 3) } else { (5000, Duration::from_secs(1)) };
    let (number, millis) = (locks.to_string(), window.as_millis().to_string());
    let mut process = Command::new(env::current_exe()?)
        .args(["held", &server.url(), &number, &millis])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut answer = String::new();
    BufReader::new(process.stdout.take().ok_or("a pipe")?).read_line(&mut answer)?;
    let there: u64 = server.command(&["EVAL", COUNT, "0", &number])?;
    // Its standard input is closed now, which ends it.
    drop(process.stdin.take());
    process.wait()?;
    let numbers: Vec<u64> = answer.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let &[held, kibibytes, taken, nanos] = &numbers[..] else { return Err("four numbers".into()) };
    let met = |met| if met { "met" } else { "not met" };
    let none = String::new;
    let kept = held.min(there);
    table.row([
        format!("{locks} locks held for {window:?} of ttl {DEFAULT_TTL:?}: still held"),
        none(),
        number,
        kept.to_string(),
        none(),
        format!("all: {}", met(kept == locks)),
    ]);
    let memory = kibibytes as f64 / locks as f64;
    let goal = format!("at most 1 KiB: {}", met(memory <= 1.0));
    table.row(["  memory, a lock".into(), none(), none(), format!("{memory:.2} KiB"), none(), goal]);
    let share = Duration::from_nanos(nanos).as_secs_f64() / window.as_secs_f64();
    let goal = format!("at most 25 % of one: {}", met(share <= 0.25));
    let measured = format!("{:.1} %", share * 100.0);
    table.row(["  processor time to renew them".into(), none(), none(), measured, none(), goal]);
    table.plain("  time to take one, 256 at once", show(Duration::from_nanos(taken) / locks as u32));
    Ok(())
}

/// The part of the process of its own.
pub(crate) fn play(url: &str, locks: usize, millis: u64) -> Outcome<()> {
    let locker = blocking::wait(Locker::connect(url))?;
    drop(take(&locker, 0..AT_ONCE.min(locks), "first")?);
    blocking::wait(locker.inspect("first/0"))?;
    let (memory, start) = (status("VmRSS:")?, crate::pairs::now());
    let guards = take(&locker, 0..locks, "held")?;
    let taken = crate::pairs::now().since(start);
    // Until the last of them are watched, too.
    thread::sleep(Duration::from_secs(1));
    let start = processor_time();
    thread::sleep(Duration::from_millis(millis));
    let used = processor_time() - start;
    let memory = status("VmRSS:")?.saturating_sub(memory);
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("{held} {memory} {} {}", taken.as_nanos(), used.as_nanos());
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Takes the locks of these numbers.
pub(crate) fn take(locker: &Locker, numbers: std::ops::Range<usize>, kind: &str) -> Outcome<Vec<Guard>> {
    let mut guards = Vec::with_capacity(numbers.len());
    let runtime = Builder::new_current_thread().build()?;
    let numbers: Vec<_> = numbers.collect();
    for batch in numbers.chunks(AT_ONCE) {
        let set = LocalSet::new();
        let tasks: Vec<_> = batch
            .iter()
            .map(|number| {
                let lock = locker.lock(format!("{kind}/{number}"));
                set.spawn_local(async move { lock.acquire().await })
            })
            .collect();
        runtime.block_on(async {
            set.await;
            for task in tasks {
                guards.push(task.await??);
            }
            Outcome::Ok(())
        })?;
    }
    Ok(guards)
}
