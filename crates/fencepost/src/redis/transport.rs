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

    /// An error that the server has answered: its code and the rest of its sentence.
    pub(crate) fn error(code: &str, text: &str) -> Self {
        let (code, text) = within_a_script(code, text).unwrap_or((code, text));
        Self::Error { code: code.into(), text: text.into() }
    }

    pub(crate) fn is_error(&self, code: &str) -> bool {
        matches!(self, Self::Error { code: found, .. } if found == code)
    }
}

/// Before version 7 a server puts the error of a command within a script into a sentence of its own, whose code is a general
/// one: `ERR Error running script (call to f_<hash>): @user_script:41: @user_script: 41: -OOM command not allowed`.
fn within_a_script<'a>(code: &'a str, text: &'a str) -> Option<(&'a str, &'a str)> {
    if code != "ERR" || !text.starts_with("Error running script") {
        return None;
    }
    let (_, said) = text.rsplit_once("@user_script:")?;
    let said = said.trim_start_matches(|c: char| c.is_ascii_digit() || ": -".contains(c));
    let is_code = |word: &str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    Some(said.split_once(' ').filter(|(word, _)| is_code(word)).unwrap_or((code, said)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(text: &str) -> Fail {
        Reply::error("ERR", text).ok().expect_err("an error")
    }

    #[test]
    fn an_error_within_a_script_of_an_older_server_keeps_its_meaning() {
        let wrapped = |said: &str| {
            format!(
                "Error running script (call to f_8f55ae4a3be429c6d38c5d5db3e80edf89197b64): @user_script:41: {said}"
            )
        };
        let oom =
            failed(&wrapped("@user_script: 41: -OOM command not allowed when used memory > 'maxmemory'."));
        assert!(matches!(oom, Fail::Unavailable(said) if said.contains("OOM command not allowed")));
        let replica =
            failed(&wrapped("@user_script: 41: -READONLY You can't write against a read only replica."));
        assert!(matches!(replica, Fail::Unavailable(said) if said.contains("primary")));
        let kind = failed(&wrapped("WRONGTYPE Operation against a key holding the wrong kind of value"));
        assert!(matches!(kind, Fail::Unsupported(_)));
        let right = "@user_script: 41: The user executing the script can't run this command or subcommand";
        assert!(matches!(failed(&wrapped(right)), Fail::Denied(_)));
        // What a script of ours says by itself, and what is no script's.
        assert!(matches!(failed(&wrapped("the last token is no number")), Fail::Internal(_)));
        assert!(matches!(failed("value is not an integer"), Fail::Internal(_)));
    }
}
