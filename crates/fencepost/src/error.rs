//! The one error type: opaque, with a kind that names the caller's next move.

use std::{error, fmt};

use crate::driver::Holder;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody held the lock until your deadline: try later. [`Error::holder`] says who, if it is known.
    Timeout,
    /// You may no longer hold the lock: stop.
    Lost,
    /// The resource has seen a newer token: abandon the work.
    Stale,
    /// The backend cannot be reached; nothing of the claim is left there: retry.
    Unavailable,
    /// The claim could not be withdrawn: one lease length may pass before the lock is free.
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
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind; for drivers and gates outside this crate too.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), holder: None, source: None }
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

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// For [`ErrorKind::Timeout`]: who held the lock when it was last asked about.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_deref()
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
