//! Measures what Fencepost promises about speed, each beside the floor that the machine gives, and prints one table.
//!
//! Every figure is a ratio, or comes with what it has to be compared with, taken in turn within the same run: times
//! alone say more about the machine than about the program. Nothing is judged by the exit status; the table says what
//! is the goal and what was measured.

mod backends;
mod crowd;
mod detour;
mod etcd;
mod gate;
mod handover;
mod library;
mod outcome;
mod pairs;
mod places;
mod processes;
mod redis;
mod table;
mod zookeeper;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};

use outcome::Outcome;
use places::Place;
use table::Table;

/// Measure what Fencepost promises about speed.
#[derive(Parser)]
#[command(name = "fencepost-bench")]
struct Cli {
    /// Only see that every part works, in a few seconds: the figures are rough
    #[arg(long)]
    quick: bool,
    /// The fencepost to start [default: built like this program, and found beside it]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Leave out all but this backend's locks, or all but the gate in this database
    #[arg(long, value_name = "BACKEND")]
    only: Option<Backend>,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    Local,
    Redis,
    Zookeeper,
    Postgres,
    Etcd,
    /// None by itself: all of them side by side
    Together,
}

/// The parts that are played in a process of their own, which the benchmark starts itself.
#[derive(Subcommand)]
#[command(hide = true)]
enum Role {
    #[command(hide = true)]
    Crowd { url: String, waiters: usize, millis: u64 },
    #[command(hide = true)]
    Held { url: String, locks: usize, millis: u64 },
    #[command(hide = true)]
    Kept { url: String, locks: usize },
    #[command(hide = true)]
    Line { url: String, waiters: usize },
    #[command(hide = true)]
    Flock { path: PathBuf },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.role {
        None => measure(&cli),
        Some(Role::Crowd { url, waiters, millis }) => crowd::play(url, *waiters, *millis),
        Some(Role::Held { url, locks, millis }) => redis::held::play(url, *locks, *millis),
        Some(Role::Kept { url, locks }) => etcd::held::play(url, *locks),
        Some(Role::Line { url, waiters }) => handover::play(url, *waiters),
        Some(Role::Flock { path }) => handover::play_flock(path),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencepost-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(cli: &Cli) -> Outcome<()> {
    let memory = Place::in_memory()?;
    let disk = Place::on_disk()?;
    let effort = if cli.quick { 1 } else { 20 };
    let mut table = Table::new(&[&memory, &disk]);
    let is_asked = |backend| cli.only.is_none_or(|only| only == backend);
    if is_asked(Backend::Local) {
        let program = processes::program(cli.program.as_deref())?;
        table.note(format!("program: {}", program.display()));
        processes::measure(&mut table, &processes::install(&program, &disk)?, &memory, effort)?;
        library::measure(&mut table, &memory, Some(15.0), effort)?;
        library::measure(&mut table, &disk, None, effort)?;
        detour::measure(&mut table, &memory, effort)?;
        handover::measure(&mut table, &memory, effort)?;
        crowd::measure(&mut table, &memory, effort)?;
    }
    if is_asked(Backend::Redis) {
        redis::measure(&mut table, effort)?;
    }
    if is_asked(Backend::Etcd) {
        etcd::measure(&mut table, cli.program.as_deref(), &memory, effort)?;
    }
    if is_asked(Backend::Zookeeper) && fencepost_lab::server::zookeeper::installed().is_ok() {
        zookeeper::measure(&mut table, effort)?;
    }
    if is_asked(Backend::Postgres) {
        gate::measure(&mut table, effort)?;
    }
    if is_asked(Backend::Together) {
        backends::measure(&mut table, &memory, effort)?;
    }
    table.print();
    Ok(())
}
