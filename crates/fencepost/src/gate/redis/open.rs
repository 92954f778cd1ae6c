//! Commands under a pass.

use std::fmt;

use super::{RUN, RedisGate, call::answered};
use crate::{
    error::{Error, ErrorKind},
    gate::{OtherLineage, Pass, Refusal, Stale},
    redis::{Command, Reply},
    token::Lineage,
};

/// A script of Redis passes on at most 8,000 (`LUAI_MAXCSTACK` of its Lua), and needs a few itself.
const MAX_WORDS: usize = 7_000;

/// The way through a [`RedisGate`] that one pass has opened; a later holder closes it.
#[derive(Clone)]
pub struct OpenRedis {
    gate: RedisGate,
    resource: String,
    key: String,
    pass: Pass,
}

impl OpenRedis {
    pub(super) fn new(gate: RedisGate, resource: String, key: String, pass: Pass) -> Self {
        Self { gate, resource, key, pass }
    }

    /// Carries out these commands in one step with the check, and answers their replies. The first one that the server refuses is the
    /// last: its [`Reply::Error`] ends the list, and what the commands before it did stays, as in Redis's own transactions.
    ///
    /// # Errors
    ///
    /// As [`RedisGate::open`], and then no command is carried out; nor is one if any is `Invalid`: it has more than 7,000
    /// words, names the mark's key, or empties or swaps a database, and the mark with it. `Unknown` if the reply was lost: they may have been.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped call may or may not have been carried out.
    pub async fn run(&self, commands: Vec<Command>) -> Result<Vec<Reply>, Error> {
        let token = self.pass.token.to_string();
        let lineage = self.pass.lineage.as_ref().map_or("", Lineage::as_str);
        commands.iter().try_for_each(|command| self.check(command))?;
        let mut command = RUN.command(&[&self.key], &[&token, lineage]);
        for next in &commands {
            let words = next.words();
            command = words.fold(command.arg(next.words().len().to_string()), Command::arg);
        }
        match self.gate.run(&RUN, command, &self.key).await? {
            Reply::List(replies) => Ok(replies),
            Reply::Error { code, text } => Err(self.refused(&code, &text)),
            // An empty list of Lua's.
            _ => Ok(Vec::new()),
        }
    }

    /// A command that could not be carried out by a script, or would take the mark away.
    fn check(&self, command: &Command) -> Result<(), Error> {
        let mut words = command.words();
        let invalid = |why: String| Err(Error::new(ErrorKind::Invalid, why));
        if words.len() > MAX_WORDS {
            let count = words.len();
            return invalid(format!(
                "the command has more words than a script can pass on: split it, at most={MAX_WORDS} words={count}"
            ));
        }
        let verb = words.next().unwrap_or_default();
        let is = |name: &&str| verb.eq_ignore_ascii_case(name.as_bytes());
        if let Some(name) = ["FLUSHALL", "FLUSHDB", "SWAPDB"].into_iter().find(is) {
            return invalid(format!(
                "the command would take the marks of gates away: leave it out, command={name}"
            ));
        }
        if words.any(|word| word == self.key.as_bytes()) {
            return invalid(format!("the key is the gate's own mark: name another, key={}", self.key));
        }
        Ok(())
    }

    /// The text at a key.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run): a holder that has a successor is told when it reads, too; `Invalid` if the key holds no text.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        match self.one(Command::new("GET").arg(key)).await? {
            Reply::Text(text) => Ok(Some(text)),
            _ => Ok(None),
        }
    }

    /// Puts a text at a key.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.one(Command::new("SET").arg(key).arg(value)).await.map(drop)
    }

    /// Removes a key; true if it was there.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn del(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.one(Command::new("DEL").arg(key)).await? == Reply::Int(1))
    }

    async fn one(&self, command: Command) -> Result<Reply, Error> {
        let reply = self.run(vec![command]).await?.pop().unwrap_or(Reply::Nil);
        if let Reply::Error { code, text } = &reply
            && code == "WRONGTYPE"
        {
            let why = "the key holds no text: use `run` with a command that fits, or another key";
            return Err(Error::new(ErrorKind::Invalid, format!("{why}, redis says: {code} {text}")));
        }
        answered(reply)
    }

    fn refused(&self, code: &str, text: &str) -> Error {
        let (presented, lineage) = (self.pass.token, self.pass.lineage.clone());
        let refusal = match (code, text.parse(), lineage) {
            ("STALE", Ok(highest), _) => Some(Refusal::Stale(Stale { presented, highest })),
            ("LINEAGE", _, Some(presented)) => {
                Some(Refusal::OtherLineage(OtherLineage { presented, recorded: Lineage::new(text) }))
            }
            _ => None,
        };
        match refusal {
            Some(refusal) => refusal.at(&self.resource),
            None => Error::new(
                ErrorKind::Internal,
                format!("the gate's script says: {code} {text}, key={}", self.key),
            ),
        }
    }
}

impl fmt::Debug for OpenRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRedis")
            .field("resource", &self.resource)
            .field("pass", &self.pass)
            .finish_non_exhaustive()
    }
}
