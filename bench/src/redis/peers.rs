//! The same with the lock of redis-py, in a Python process that takes its own time.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
    time::Duration,
};

use fencepost_lab::server::{peers::python, redis::Redis};

use super::alone::{REPEATED, WHAT};
use crate::{
    outcome::Outcome,
    pairs::{time, timed_in_turn},
    table::Table,
};

/// Takes and releases a lock as often as each line says, and answers the nanoseconds.
const SCRIPT: &str = r#"
import redis, sys, time
lock = redis.Redis.from_url(sys.argv[1]).lock("redis-py", timeout=30)
for line in sys.stdin:
    start = time.monotonic_ns()
    for _ in range(int(line)):
        lock.acquire()
        lock.release()
    print(time.monotonic_ns() - start, flush=True)
"#;

pub(super) fn measure(
    table: &mut Table,
    server: &Redis,
    pairs: usize,
    ours: impl Fn() -> Outcome<()>,
) -> Outcome<()> {
    let python = match python("redis") {
        Ok(python) => python,
        Err(missing) => {
            table.plain("  nothing beside redis-py", missing.to_string());
            return Ok(());
        }
    };
    let mut command = python.command();
    command.args(["-c", SCRIPT, &server.url()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn()?;
    let (Some(mut ask), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
        return Err("two pipes".into());
    };
    let mut answers = BufReader::new(answers).lines();
    let floor = || {
        writeln!(ask, "{REPEATED}")?;
        let nanos = answers.next().ok_or("redis-py gave up")??;
        Ok(Duration::from_nanos(nanos.parse()?))
    };
    let redis_py = timed_in_turn(pairs, floor, || time(&ours))?.each_of(REPEATED);
    drop(ask);
    process.wait()?;
    table.pairs(WHAT, "redis-py", &redis_py, Some(1.0));
    Ok(())
}
