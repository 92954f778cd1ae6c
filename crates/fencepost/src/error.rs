//! The one error type: opaque, with a kind that names the caller's next move.

use std::{error, fmt};

use crate::{
    driver::Holder,
    gate::{OtherLineage, Refusal, Stale},
};

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody held the lock until your deadline: try later. [`Error::holder`] says who, if it is known.
    Timeout,
    /// You may no longer hold the lock: stop.
    Lost,
    /// The resource has seen a newer token: abandon the work. [`Error::stale`] has both numbers.
    Stale,
    /// The resource compares tokens of another source: lock where the others do, or rebind it.
    /// [`Error::other_lineage`] has both lineages.
    OtherLineage,
    /// The backend cannot be reached, or gave way to another request; nothing of this one is left there: retry.
    Unavailable,
    /// It may or may not have happened. Of a lock: the claim could not be withdrawn, and one lease length may pass before
    /// the lock is free. Of a write: read before you repeat it.
    Unknown,
    /// Authentication or permission.
    Denied,
    /// Fix the name, the option or the URL; the message names it.
    Invalid,
    /// This backend or build cannot do it; the message lists what it can.
    Unsupported,
    /// A bug in Fencepost: report it.
    Internal,
}

/// The error of every operation of this crate.
///
/// Its text is one lowercase sentence without secrets; [`kind`](Error::kind) says what to do next.
pub struct Error {
    kind: ErrorKind,
    message: String,
    holder: Option<Box<Holder>>,
    refusal: Option<Box<Refusal>>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind; for drivers and gates outside this crate too.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), holder: None, refusal: None, source: None }
    }

    /// The same error with its cause.
    pub fn caused_by(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn held_by(mut self, holder: Option<Holder>) -> Self {
        self.holder = holder.map(Box::new);
        self
    }

    pub(crate) fn refused(mut self, refusal: Refusal) -> Self {
        self.refusal = Some(Box::new(refusal));
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// For [`ErrorKind::Timeout`]: who held the lock when it was last asked about.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_deref()
    }

    /// For [`ErrorKind::Stale`]: the token that was shown and the highest that the gate has seen, which is the
    /// [floor](crate::Lock::floor) of the next acquire if the lock's backend has lost its tokens.
    pub fn stale(&self) -> Option<Stale> {
        self.refusal.as_deref().and_then(Refusal::stale)
    }

    /// For [`ErrorKind::OtherLineage`]: the lineage that was shown and the one that the gate has recorded.
    pub fn other_lineage(&self) -> Option<&OtherLineage> {
        match self.refusal.as_deref() {
            Some(Refusal::OtherLineage(other)) => Some(other),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.kind).field("message", &self.message).finish()
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
