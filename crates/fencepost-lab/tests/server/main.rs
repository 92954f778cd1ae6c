//! Real servers: they do what a test tells them, and never outlive it.

mod clock;
mod peers;
mod pgbouncer;
mod postgres;
mod process;
mod redis;

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::Arguments;

const SOON: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if let Some(code) = process::victim() {
        return code;
    }
    let trials = [
        process::trials(),
        redis::trials(),
        postgres::trials(),
        pgbouncer::trials(),
        peers::trials(),
        clock::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The state letter of a process: `S` sleeps, `T` is stopped, `Z` is dead but not collected; `None` is gone.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

fn is_alive(pid: u32) -> bool {
    !matches!(state(pid), None | Some('Z'))
}
