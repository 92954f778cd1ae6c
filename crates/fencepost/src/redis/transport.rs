//! The seam between those who know Redis commands and whatever carries them.

use std::{fmt, sync::Arc};

use crate::{driver::Fail, host::Fut};

/// One command: its name and its arguments. `Debug` shows the name alone: an argument may be a claim's id.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// All words in one piece: a command is made by one thread and dropped by another, and has twenty of them.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Command {
    /// The command of this name, without arguments.
    pub fn new(name: &str) -> Self {
        Self::default().arg(name)
    }

    /// As [`new`](Self::new), with room for so many words of so many bytes in all.
    pub(crate) fn with_capacity(name: &str, words: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(words) }.arg(name)
    }

    /// The same command with one more argument.
    pub fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.bytes.extend_from_slice(arg.as_ref());
        self.ends.push(self.bytes.len());
        self
    }

    /// Its name and its arguments.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.words().next().map_or("".into(), String::from_utf8_lossy);
        write!(f, "Command({name}, ..{})", self.ends.len().saturating_sub(1))
    }
}

/// What the server answers to one command. `Debug` shows no text but an error's: it may be a claim's id.
#[derive(Clone, PartialEq)]
pub enum Reply {
    /// Nothing there.
    Nil,
    /// A number.
    Int(i64),
    /// A string, of whichever kind.
    Text(Vec<u8>),
    /// Several answers in one.
    List(Vec<Reply>),
    /// The server refused: its code, such as `NOPERM`, and the rest of its sentence.
    Error {
        /// The first word.
        code: String,
        /// The words after it.
        text: String,
    },
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("Nil"),
            Self::Int(number) => write!(f, "Int({number})"),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::List(items) => f.debug_list().entries(items).finish(),
            Self::Error { code, text } => write!(f, "Error({code} {text})"),
        }
    }
}

impl Reply {
    /// The reply, or the failure that an error reply stands for.
    pub(crate) fn ok(self) -> Result<Self, Fail> {
        match self {
            Self::Error { code, text } => Err(super::fail(&code, &text)),
            reply => Ok(reply),
        }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn is_error(&self, code: &str) -> bool {
        matches!(self, Self::Error { code: found, .. } if found == code)
    }
}

/// What carries commands to one Redis server, for one driver: a second one would take its pushes away.
pub trait Transport: Send + Sync + 'static {
    /// Sends the commands one after the other, in one go where it can, and answers as many replies in that order. Never sends
    /// one twice.
    ///
    /// # Errors
    ///
    /// [`Fail::Unavailable`] if surely nothing was sent, [`Fail::Unknown`] if it may have been.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have been carried out.
    fn send(&self, commands: Vec<Command>) -> Fut<'_, Result<Vec<Reply>, Fail>>;

    /// Subscribes the present connection to a channel. True if it was not subscribed before: what was published until now
    /// may have been missed.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); [`Fail::Unsupported`] where nothing can be pushed, [`Fail::Denied`] without the right.
    fn subscribe<'a>(&'a self, channel: &'a str) -> Fut<'a, Result<bool, Fail>>;

    /// Whether the server tells of changes of keys that were read right after `CLIENT CACHING YES`.
    fn tracks(&self) -> bool;

    /// Hands what is pushed to `listener` from now on, which is called from the thread that reads.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// Sends these commands whenever a connection is made anew, before all others.
    fn greet(&self, commands: Vec<Command>);

    /// The server as messages name it, without credentials, such as `redis://cache1:6379/0`.
    fn name(&self) -> String;
}

/// Who is told what the server pushes. None of these may block.
pub trait Listener: Send + Sync {
    /// A message on a subscribed channel.
    fn message(&self, payload: &[u8]);

    /// This key has changed; `None` when all may have.
    fn changed(&self, key: Option<&[u8]>);

    /// The connection broke: whatever was pushed since is missed, and subscriptions are gone.
    fn cut(&self);
}
