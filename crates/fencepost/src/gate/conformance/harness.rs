//! What the suite asks of those who run it: a way to a gated store, and ways to break it.

use crate::{
    conformance::Hook,
    error::Error,
    gate::{Mark, Pass},
    token::Token,
};

/// A store behind a gate that nobody else uses. Each resource holds one text, empty at first.
pub trait Harness: Send + Sync {
    /// A client with a connection of its own, as another process would have it.
    fn connect(&self) -> Result<Box<dyn Client>, Error>;

    /// The largest token that the store can keep.
    fn largest(&self) -> Token;

    /// Ends the store and starts it again; what it has acknowledged survives.
    fn restart(&self) -> Hook;

    /// Opens the gate and writes in another process that is killed before its step `step`, counted from 0. A step is as
    /// small as the store allows.
    fn crash(&self, resource: &str, pass: &Pass, text: &str, step: usize) -> Hook<Crash>;

    /// What lies about at the store that is neither a resource nor a mark.
    fn residue(&self) -> Vec<String>;
}

/// What became of the process that was to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// It was killed.
    Killed,
    /// It came to its end before it reached the step.
    Ended,
}

/// One client of the store.
pub trait Client: Send + Sync {
    /// Raises the mark and does nothing else.
    fn fence(&self, resource: &str, pass: &Pass) -> Result<(), Error>;

    /// Reads under a pass.
    fn read(&self, resource: &str, pass: &Pass) -> Result<String, Error>;

    /// Writes under a pass.
    fn write(&self, resource: &str, pass: &Pass, text: &str) -> Result<(), Error>;

    /// Reads past the gate.
    fn peek(&self, resource: &str) -> Result<String, Error>;

    /// What the gate has recorded.
    fn mark(&self, resource: &str) -> Result<Mark, Error>;

    /// Sets the mark, as an operator does.
    fn rebind(&self, resource: &str, mark: &Mark) -> Result<(), Error>;

    /// Begins a transaction that works on this resource, as early as the store knows it: before the gate is asked.
    fn begin(&self, resource: &str) -> Hook<Result<Box<dyn Transaction + '_>, Error>>;
}

/// A transaction of the caller's own. Dropped, it is rolled back.
pub trait Transaction: Send {
    /// Shows a pass.
    fn admit(&mut self, pass: &Pass) -> Result<(), Error>;

    /// Writes; only asked after a pass was accepted.
    fn write(&mut self, text: &str) -> Result<(), Error>;

    /// Makes it all happen.
    fn commit(self: Box<Self>) -> Result<(), Error>;
}
