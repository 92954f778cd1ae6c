//! What a scene is played on: servers of its own, a directory of its own, and processes that end with it.

use std::fmt;
use std::io::{PipeWriter, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use tempfile::TempDir;

use super::act::{Act, Lock, Store};
use super::shelf::{Place, Shelf};
use super::worker::Part;
use crate::server::{Missing, Process, home, postgres, redis};

/// What the caller adds to a scene.
pub struct Cast<'a> {
    /// The command of a worker: a program that calls [`work`](super::work).
    pub worker: &'a dyn Fn() -> Command,
    /// Whether the scene has to be broken off. Asked every few milliseconds.
    pub interrupted: &'a dyn Fn() -> bool,
    /// Told what happens, while it happens, in sentences.
    pub tell: &'a dyn Fn(&str),
}

/// Why a scene was not played to its end.
#[derive(Debug)]
pub enum Trouble {
    /// A server is not installed.
    Missing(Missing),
    /// The caller broke it off.
    Interrupted,
    /// Something else.
    Failed(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Interrupted => f.write_str("the scene was broken off"),
            Self::Failed(why) => write!(f, "the scene could not be played: {why}"),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<fencepost::Error> for Trouble {
    fn from(error: fencepost::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The servers of a scene and its directory. They end and go when this is dropped.
pub struct Stage {
    // Declared before what they use, so that they end first.
    redis: Option<redis::Redis>,
    postgres: Option<postgres::Postgres>,
    home: TempDir,
    /// How many acts were played.
    acts: usize,
}

impl Stage {
    /// Starts what these acts need.
    ///
    /// # Errors
    ///
    /// [`Trouble::Missing`] before anything is started, and otherwise whatever a server says.
    pub fn set(acts: &[Act], cast: &Cast<'_>) -> Result<Self, Trouble> {
        let (locks, tables) =
            (acts.iter().any(Act::locks), acts.iter().any(|act| act.store == Store::Postgres));
        if locks {
            redis::installed().map_err(Trouble::Missing)?;
        }
        if tables {
            postgres::installed().map_err(Trouble::Missing)?;
        }
        let mut stage = Self { redis: None, postgres: None, home: home("lab")?, acts: 0 };
        if locks {
            (cast.tell)("starting a redis-server");
            stage.redis = Some(
                redis::Redis::start(redis::Options::default())
                    .map_err(|error| unless_broken_off(error, cast))?,
            );
        }
        if tables {
            (cast.tell)("starting a PostgreSQL");
            stage.postgres = Some(
                postgres::Postgres::start(postgres::Options::default())
                    .map_err(|error| unless_broken_off(error, cast))?,
            );
        }
        Ok(stage)
    }

    /// A full stock for the next act, and an empty history.
    pub(super) fn next(&mut self, act: &Act) -> Result<(Place, PathBuf), Trouble> {
        self.acts += 1;
        let place = match (act.store, &self.postgres) {
            (Store::Postgres, Some(postgres)) => Place::Postgres(postgres.url("postgres")),
            (Store::Postgres, None) => {
                return Err(Trouble::Failed("the stage has no PostgreSQL for this act".into()));
            }
            (Store::File, _) => Place::File(self.path(&format!("stock-{}.json", self.acts))),
        };
        wait(Shelf::fill(&place))??;
        let history = self.path(&format!("history-{}.jsonl", self.acts));
        fs::write(&history, "")?;
        Ok((place, history))
    }

    /// The URL of the locks.
    pub(super) fn redis(&self, act: &Act) -> Option<String> {
        self.redis.as_ref().filter(|_| act.locks()).map(redis::Redis::url)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

impl Act {
    fn locks(&self) -> bool {
        self.lock != Lock::None
    }
}

/// A server that ended because the whole of us was told to is no fault of its own.
fn unless_broken_off(error: io::Error, cast: &Cast<'_>) -> Trouble {
    if (cast.interrupted)() { Trouble::Interrupted } else { error.into() }
}

/// Runs a few requests to their end, apart from everything else.
pub(super) fn wait<F: Future>(future: F) -> io::Result<F::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}

/// A worker that was started.
pub(super) struct Actor {
    pub(super) name: String,
    pub(super) process: Process,
    orders: PipeWriter,
    log: PathBuf,
}

impl Actor {
    /// Starts a worker with its part.
    pub(super) fn start(command: Command, part: &Part, log: &Path) -> io::Result<Self> {
        let (input, mut orders) = pipe()?;
        let process = Process::spawn_reading(command, input, log)?;
        writeln!(orders, "{}", serde_json::to_string(part)?)?;
        Ok(Self { name: part.lane.clone(), process, orders, log: log.into() })
    }

    /// Tells it that its work is done. A stopped one hears it when it goes on.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        writeln!(self.orders)
    }

    /// Why it ended before its time.
    pub(super) fn failure(&self) -> Trouble {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let said = said.lines().last().unwrap_or("it said nothing");
        Trouble::Failed(format!("worker {} ended early: {said}", self.name))
    }
}
