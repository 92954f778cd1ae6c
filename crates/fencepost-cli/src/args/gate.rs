//! The arguments of `fencepost gate`.

use std::time::Duration;

use clap::{Args, Subcommand};
use fencepost::Token;

use crate::duration;

const EXAMPLE: &str = "\
In a job under `fencepost run`, with FENCEPOST_GATE set:
  fencepost gate fence || exit          # before it reads
  psql -1 -v ON_ERROR_STOP=1 \\
       -c \"SELECT fencepost_admit('$FENCEPOST_LOCK', $FENCEPOST_TOKEN)\" -f write.sql

Exit status:
  64 usage      69 the gate was not reached    77 permission denied
  78 the gate cannot do it, or compares tokens of another lineage
  79 stale      80 unknown: the message says what to do";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Gate {
    /// The gate: postgres://host/database or file:/path [default: FENCEPOST_GATE]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) gate: Option<String>,
    /// How long the gate may take to answer: it waits for a transaction of the former holder
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = duration::positive, allow_hyphen_values = true)]
    pub(crate) wait: Duration,
    #[command(subcommand)]
    pub(crate) command: GateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// Raise the gate to a token: call it before you read
    Fence(Pass),
    /// Ask whether a token may still pass, and raise the gate to it
    Admit(Pass),
    /// Replace the file of a file gate by what is read from stdin, if the token may pass
    Write(Pass),
    /// Show the highest token that a gate has seen
    Show(Show),
    /// Set what a gate has recorded, as after a move to locks of another lineage
    Rebind(Rebind),
    #[cfg(feature = "postgres")]
    /// Install the gate into a database, or bring it up to date
    Install(Install),
    #[cfg(feature = "postgres")]
    /// Remove the gate from a database, with every mark
    Uninstall(Uninstall),
}

#[derive(Debug, Args)]
pub(crate) struct Pass {
    /// What is protected [default: FENCEPOST_LOCK]; of a file gate it is the file
    pub(crate) resource: Option<String>,
    /// The token to show [default: FENCEPOST_TOKEN]
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub(crate) token: Option<Token>,
    /// The lineage of the token [default: FENCEPOST_LINEAGE, if the token is FENCEPOST_TOKEN]
    #[arg(long, value_name = "ID")]
    pub(crate) lineage: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// What is protected [default: everything]
    pub(crate) resource: Option<String>,
    /// Print JSON, a line a resource; tokens are strings
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rebind {
    /// What is protected; of a file gate it is the file
    pub(crate) resource: Option<String>,
    /// The lineage from now on [default: that of the next token]
    #[arg(long, value_name = "ID")]
    pub(crate) lineage: Option<String>,
    /// The highest token so far, a lower one too [default: none, any token passes next]
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub(crate) highest: Option<Token>,
    /// Yes, tokens that are stale now may pass again
    #[arg(long)]
    pub(crate) yes: bool,
}

#[cfg(feature = "postgres")]
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// Let this role show tokens and look at the gate; give it once for each
    #[arg(long, value_name = "ROLE")]
    pub(crate) grant: Vec<String>,
    /// Print the statements instead of running them
    #[arg(long, conflicts_with = "grant")]
    pub(crate) print: bool,
}

#[cfg(feature = "postgres")]
#[derive(Debug, Args)]
pub(crate) struct Uninstall {
    /// Also if tables are protected or tokens were seen
    #[arg(long)]
    pub(crate) yes: bool,
}
