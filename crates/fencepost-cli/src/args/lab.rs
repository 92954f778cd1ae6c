//! The arguments of `fencepost lab` and `fencepost demo`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::duration;

const STATUS: &str = "\
Each scene starts the servers that it needs on free ports of this machine, and ends them: redis-server, and PostgreSQL for
all but `demo`.

Exit status:
  0   everything came out as expected
  1   something did not
  64  usage      69  a server is not installed      70  the scene could not be played to its end";

#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) scene: Option<LabScene>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabScene {
    /// List the scenes
    List,
    /// Two workers without a lock both sell from what they read
    Order,
    /// A holder is paused past its lease, and writes late
    Pause(Pause),
    /// One client of a scene
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// What the database compares tokens with: nothing, every read and write, or writes only
    #[arg(long, default_value = "off", value_name = "WHEN")]
    pub(crate) gate: Gate,
    /// How long the lock lasts without its holder, 500ms to 1m; the pause lasts as much longer
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Gate {
    Off,
    On,
    WritesOnly,
}

#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct Demo {}

/// A shorter lock would run out on a busy machine before its holder is stopped.
fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration::positive(text)?;
    let range = Duration::from_millis(500)..=Duration::from_secs(60);
    if range.contains(&ttl) { Ok(ttl) } else { Err("give at least 500ms and at most 1m".into()) }
}
