//! Lua scripts, which Redis runs as one atomic step.

use std::{
    borrow::Cow,
    sync::{LazyLock, OnceLock},
};

use super::{Command, Reply, transport::Transport};
use crate::driver::Fail;

/// One script. It is named by the hash of its text, so scripts of two versions live side by side in one server.
pub(crate) struct Script {
    text: LazyLock<Cow<'static, str>>,
    hash: OnceLock<String>,
}

impl Script {
    /// The script whose text `text` makes.
    pub(crate) const fn new(text: fn() -> Cow<'static, str>) -> Self {
        Self { text: LazyLock::new(text), hash: OnceLock::new() }
    }

    /// The command that runs it by its hash.
    pub(crate) fn command(&self, keys: &[&str], args: &[&str]) -> Command {
        let hash = self.hash.get_or_init(|| redis::Script::new(&self.text).get_hash().to_owned());
        let words = || keys.iter().chain(args);
        let bytes = 64 + words().map(|word| word.len()).sum::<usize>();
        let head = Command::with_capacity("EVALSHA", 3 + keys.len() + args.len(), bytes);
        words().fold(head.arg(hash).arg(keys.len().to_string()), Command::arg)
    }

    /// The same command with the script's text, for a server that has never seen it.
    pub(crate) fn spelt_out(&self, command: &Command) -> Command {
        command.words().skip(2).fold(Command::new("EVAL").arg(self.text.as_bytes()), Command::arg)
    }

    /// Runs one of its commands; an error that it answers is a failure.
    pub(crate) async fn run(&self, transport: &dyn Transport, command: Command) -> Result<Reply, Fail> {
        self.ask(transport, command).await?.ok()
    }

    /// As [`run`](Self::run), with errors as they were answered. A command that the server does not know by its hash was not
    /// carried out, and is spelt out.
    pub(crate) async fn ask(&self, transport: &dyn Transport, command: Command) -> Result<Reply, Fail> {
        let reply = one(transport.send(vec![command.clone()]).await?)?;
        if !reply.is_error("NOSCRIPT") {
            return Ok(reply);
        }
        one(transport.send(vec![self.spelt_out(&command)]).await?)
    }

    /// Runs many of its commands in one go; the replies come in their order. With `before`, that command precedes each.
    pub(crate) async fn run_all(
        &self,
        transport: &dyn Transport,
        commands: Vec<Command>,
        before: Option<&Command>,
    ) -> Result<Vec<Reply>, Fail> {
        let send = async |commands: &[Command]| {
            let step = 1 + usize::from(before.is_some());
            let all =
                commands.iter().flat_map(|command| before.cloned().into_iter().chain([command.clone()]));
            let replies = transport.send(all.collect()).await?;
            Ok::<Vec<Reply>, Fail>(replies.into_iter().skip(step - 1).step_by(step).collect())
        };
        let mut replies = send(&commands).await?;
        let unknown: Vec<usize> = (0..replies.len()).filter(|i| replies[*i].is_error("NOSCRIPT")).collect();
        if !unknown.is_empty() {
            let again: Vec<_> = unknown.iter().map(|i| self.spelt_out(&commands[*i])).collect();
            for (index, reply) in unknown.into_iter().zip(send(&again).await?) {
                replies[index] = reply;
            }
        }
        Ok(replies)
    }
}

/// The one reply to one command.
pub(crate) fn one(replies: Vec<Reply>) -> Result<Reply, Fail> {
    replies.into_iter().next().ok_or_else(|| Fail::Internal("redis answered a command with nothing".into()))
}
