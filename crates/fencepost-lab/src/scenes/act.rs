//! What is played, as data.

use serde::{Deserialize, Serialize};

use crate::checker::{Rule, Rules};

/// One run of two workers, A and B, who sell one piece each from a stock of 100.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// What it shows, in one line.
    pub title: &'static str,
    /// What is done, in a sentence or two.
    pub plan: &'static str,
    /// How the workers keep apart.
    pub lock: Lock,
    /// Whether the stock looks at tokens.
    pub gate: Gate,
    /// Where the stock lies.
    pub store: Store,
    /// Who waits for whom.
    pub turn: Turn,
    /// What has to come out.
    pub expected: Expected,
}

/// How the workers keep apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lock {
    /// Not at all.
    None,
    /// `SET NX PX` with a random value, and a script that deletes the key if it still has that value.
    Textbook,
    /// A lock of this library, on the same Redis.
    Fencepost,
}

/// When the stock is shown the token of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gate {
    /// Never.
    Off,
    /// Together with what is written.
    WritesOnly,
    /// Before anything is read, and together with what is written.
    On,
}

/// Where the stock lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// In a file.
    File,
    /// In a row of a PostgreSQL table.
    Postgres,
}

/// Who waits for whom. In each, both have read before one of them writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Both work at the same time; A writes first.
    Together,
    /// A is stopped after its read, and goes on after B has written and is done.
    AfterTheOther,
    /// A is stopped after its read, and goes on after B has read and before B writes.
    BeforeTheOther,
}

/// What has to come out of an act.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// In a sentence.
    pub text: &'static str,
    /// What becomes of the write of a worker whose lock has gone to the other; `None` if there is none.
    pub late: Option<Late>,
    /// How many of the two sales are confirmed.
    pub confirmed: usize,
    /// How many of those are missing in the end.
    pub lost: usize,
    /// The promises that the history has to break.
    pub broken: &'static [Rule],
}

/// What became of a write that came after the lock had gone to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It was accepted.
    Accepted,
    /// The gate rejected it.
    Rejected,
}

impl Act {
    /// The promises that this kind of lock and stock is measured by, kept or not.
    #[must_use]
    pub fn rules(&self) -> Rules {
        match self.lock {
            Lock::None => Rules::from([Rule::Updates]),
            Lock::Textbook => Rules::from([Rule::Belief, Rule::Updates]),
            Lock::Fencepost => Rules::leased(),
        }
    }
}
