//! The command line, as data. Everything else takes it from here already checked.

mod gate;
#[cfg(feature = "scenes")]
mod lab;

use std::{ffi::OsString, ops::Deref, path::PathBuf, time::Duration};

use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use fencepost::{Level, LockName, Token};

use crate::duration;

pub(crate) use gate::{Gate, GateCommand, Pass, Rebind, Show};
#[cfg(feature = "scenes")]
pub(crate) use lab::{Demo, Gate as GateOfScene, Lab, LabScene, Pause};

/// What every command takes stands apart, so that a command's own options come first.
const EVERYWHERE: &str = "Options of every command";

const RUN_STATUS: &str = "\
Exit status: the command's own, 128+n if signal n killed it, or
  64   usage
  69   the backend was not reached
  75   the lock was not acquired (-E sets another)
  76   the lock was lost, or --max-hold was over: the command was stopped
  77   permission denied
  78   the URL or the backend cannot give what was required
  126  the command cannot be executed
  127  the command was not found

The command finds these in its environment:
  FENCEPOST_LOCK    FENCEPOST_TOKEN   FENCEPOST_LINEAGE
  FENCEPOST_BACKEND FENCEPOST_HANDLE";

const ELECT_STATUS: &str = "\
When the term is lost, or --max-hold is over, the command is stopped and stands for election
again; it ends with the command, or when it is told to. Exit status and environment: as for
`fencepost run`, with 76 only if the term was lost while it was told to end.

An election is the lock of its name: `status` shows who leads, `watch` follows it.";

const HOLD_EXAMPLE: &str = "\
In a script:
  variables=$(fencepost hold --pid $$ orders/4821) || exit
  eval \"$variables\"
  fencepost held && ./write-to-storage \"$FENCEPOST_TOKEN\"
  fencepost release \"$FENCEPOST_HANDLE\"";

/// Run jobs under a distributed lock, with a fencing token on every lock.
#[derive(Debug, Parser)]
#[command(name = "fencepost", version, max_term_width = 100)]
#[command(
    after_help = "Without --url, FENCEPOST_URL or a config file, locks are kept on this machine only (local:)."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The backend, such as local: or local:/path [default: FENCEPOST_URL, the config file, local:]
    #[arg(long, global = true, value_name = "URL", help_heading = EVERYWHERE)]
    pub(crate) url: Option<String>,
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = EVERYWHERE)]
    pub(crate) quiet: bool,
    /// Say more about what happens
    #[arg(short, long, global = true, help_heading = EVERYWHERE)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    Run(Defined<Run>),
    /// Run a command as the leader of an election, for as long as it leads, and again whenever it is elected again
    Elect(Defined<Elect>),
    /// Say whether the lock of the command that asks is still held: exit 0 if so, 76 if not
    Held(Defined<Held>),
    /// Hold a lock in the background for as long as a process lives
    Hold(Defined<Hold>),
    /// Give back a lock taken with `hold`
    Release(Defined<Release>),
    /// Show who holds and who waits for a lock
    Status(Defined<Status>),
    /// List the locks that are held or waited for
    Ls(Defined<Ls>),
    /// Follow who holds a lock, until interrupted
    Watch(Defined<Status>),
    /// Take a lock away from its holder, and print a token higher than the holder's
    ForceUnlock(Defined<ForceUnlock>),
    /// Show a token at the gate of a database or a file, and look after gates
    Gate(Defined<Gate>),
    /// See a lock fail, and a gate hold: a worker is paused past its lease, without a gate and with one
    #[cfg(feature = "scenes")]
    Demo(Defined<Demo>),
    /// Play failures of locks on real servers of their own
    #[cfg(feature = "scenes")]
    Lab(Defined<Lab>),
    /// Print a completion script for a shell
    Completions(Defined<Completions>),
    /// Print the manual page
    Man(Defined<Man>),
}

/// The arguments of one command, defined when it is known to be the one: to define those of all takes longer than a
/// lock.
#[derive(Debug)]
pub(crate) struct Defined<A>(A);

impl<A> Deref for Defined<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

impl<A: Args> Args for Defined<A> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(A::augment_args)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command.defer(A::augment_args_for_update)
    }
}

impl<A: FromArgMatches> FromArgMatches for Defined<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        A::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

// What `run` and `hold` ask of the lock. (A doc comment here would replace what those commands say of themselves.)
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// How long the backend keeps the lock without hearing from us; ignored by local:
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::positive, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
    /// Wait at most so long for the lock [default: for ever]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for the lock
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How long the backend may fail to answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::positive, allow_hyphen_values = true)]
    pub(crate) connect_timeout: Duration,
    /// Refuse a backend that promises less: a larger token for every later holder, or also that consensus decides
    /// who that is
    #[arg(long, value_name = "LEVEL")]
    pub(crate) require: Option<Require>,
    /// Take only a token above this one, such as the highest that a gate has seen
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub(crate) above: Option<Token>,
    /// What others see as the name of the work
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Exit with N instead of 75 if the lock is not acquired
    #[arg(short = 'E', long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) conflict_exit_code: Option<u8>,
}

// Without a line of help for each value the help of a command stays one page long.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Require {
    Tokens,
    Consensus,
}

impl From<Require> for Level {
    fn from(require: Require) -> Self {
        match require {
            Require::Tokens => Self::Tokens,
            Require::Consensus => Self::Consensus,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = RUN_STATUS)]
pub(crate) struct Run {
    /// The lock, such as orders/4821
    #[arg(value_parser = LockNames)]
    pub(crate) name: LockName,
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// Time between TERM and KILL when the command must end [default: 5s, at most a quarter of --ttl]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,
    /// Keep the lock at least so long, also if the command ends earlier
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) min_hold: Option<Duration>,
    /// Stop the command after so long
    #[arg(long, value_name = "DURATION", value_parser = duration::positive, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,
    /// On local: end the lock with the command itself, not with its last background process
    #[arg(long)]
    pub(crate) close_fd: bool,
    /// Append what happens to the lock to FILE, as lines of JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) events: Option<PathBuf>,
    /// The same to an open descriptor
    #[arg(long, value_name = "N", conflicts_with = "events", allow_hyphen_values = true)]
    pub(crate) events_fd: Option<u32>,
    /// Append a history of the lock to FILE, for a checker to judge
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) history: Option<PathBuf>,
    /// The command and its arguments, executed as given, without a shell
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) argv: Vec<OsString>,
}

impl Run {
    /// The time between TERM and KILL, or what is wrong with it.
    pub(crate) fn grace(&self) -> Result<Duration, String> {
        let ttl = self.wanted.ttl;
        match self.grace {
            None => Ok(Duration::from_secs(5).min(ttl / 4)),
            Some(grace) if grace <= ttl / 2 => Ok(grace),
            Some(_) => {
                Err(format!("--grace is more than half of --ttl; give at most {}", duration::exact(ttl / 2)))
            }
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = ELECT_STATUS)]
pub(crate) struct Elect {
    /// What those who observe the election are told while we lead, such as an address
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<String>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Args)]
pub(crate) struct Held {
    /// Print how much time is left
    #[arg(long)]
    pub(crate) left: bool,
}

#[derive(Debug, Args)]
#[command(after_help = HOLD_EXAMPLE)]
pub(crate) struct Hold {
    /// The lock, such as orders/4821
    #[arg(value_parser = LockNames)]
    pub(crate) name: LockName,
    /// Hold it while this process lives, in a script: $$
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), allow_hyphen_values = true)]
    pub(crate) pid: i32,
    #[command(flatten)]
    pub(crate) wanted: Wanted,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// What `hold` printed as FENCEPOST_HANDLE
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) handle: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The lock, such as orders/4821
    #[arg(value_parser = LockNames)]
    pub(crate) name: LockName,
    /// Print JSON; tokens are strings
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only locks whose names begin with this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Print JSON, a line a lock; tokens are strings
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForceUnlock {
    /// The lock, such as orders/4821
    #[arg(value_parser = LockNames)]
    pub(crate) name: LockName,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command whose page to print [default: fencepost itself]
    pub(crate) command: Option<String>,
}

/// Reads lock names, also ones that are not UTF-8, with the library's own sentence about what is wrong.
#[derive(Clone)]
struct LockNames;

impl clap::builder::TypedValueParser for LockNames {
    type Value = LockName;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<LockName, clap::Error> {
        let name = value.to_str().ok_or("invalid lock name: it is not UTF-8".to_owned());
        name.and_then(|name| name.parse().map_err(|error: fencepost::Error| error.to_string()))
            .map_err(|why| clap::Error::raw(clap::error::ErrorKind::ValueValidation, why).with_cmd(command))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_that_is_defined_late_still_says_what_it_does() {
        let about = |name: &str| {
            let mut command = Cli::command();
            command.build();
            command.find_subcommand(name).unwrap().get_about().unwrap().to_string()
        };
        assert_eq!(about("run"), "Run a command while holding a lock");
        assert_eq!(about("hold"), "Hold a lock in the background for as long as a process lives");
    }

    #[test]
    fn everything_after_the_command_is_the_commands() {
        for line in [
            &["run", "x", "ls", "--ttl", "-q", "--"][..],
            &["run", "--ttl", "5s", "x", "-n", "--", "ls", "--ttl", "-q", "--"],
            &["run", "x", "--ttl", "5s", "ls", "--ttl", "-q", "--"],
        ] {
            let cli = Cli::try_parse_from([&["fencepost"], line].concat()).unwrap();
            let Command::Run(run) = cli.command else { panic!("not run") };
            assert_eq!(run.argv, ["ls", "--ttl", "-q", "--"], "{line:?}");
            assert!(!cli.global.quiet);
        }
    }
}
