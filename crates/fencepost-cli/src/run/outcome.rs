//! How a run ended, as an exit status and as a sentence.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::exit;

/// How a run ended. Unless the command exited, nothing of it runs any more.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The command ended by itself.
    Exited(ExitStatus),
    /// The command could not be executed.
    NotStarted(io::Error),
    /// A signal came before the command was started.
    Interrupted(i32),
    /// The lock was lost, so the command was stopped, or not started.
    Lost,
    /// The command ran for as long as it was allowed to, and was stopped.
    MaxHold,
    /// The process that our caller waits for was killed, so the command was stopped.
    Abandoned,
    /// Something of ours failed, so the command was stopped.
    Broken(String),
}

impl Outcome {
    /// The exit status that tells it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Exited(status) => exit::of_status(*status),
            Self::NotStarted(error) => exit::of_spawn_error(error),
            Self::Interrupted(signal) => exit::of_signal(*signal),
            Self::Lost | Self::MaxHold => exit::LOST,
            Self::Abandoned | Self::Broken(_) => exit::INTERNAL,
        }
    }

    /// The signal that ended the command, or kept it from being started.
    pub(crate) fn signal(&self) -> Option<i32> {
        match self {
            Self::Exited(status) => status.signal(),
            Self::Interrupted(signal) => Some(*signal),
            _ => None,
        }
    }

    /// What to tell a person; a command that ended by itself speaks for itself.
    pub(crate) fn message(&self, program: &str) -> Option<String> {
        Some(match self {
            Self::Exited(_) | Self::Interrupted(_) => return None,
            Self::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => {
                format!("command not found: check the name, or give its path: command={program}")
            }
            Self::NotStarted(error) => format!("cannot execute the command: {error}: command={program}"),
            Self::Lost => format!("the lock was lost, so the command was stopped: command={program}"),
            Self::MaxHold => format!("--max-hold is over, so the command was stopped: command={program}"),
            Self::Abandoned => {
                format!("the waiting process is gone, so the command was stopped: command={program}")
            }
            Self::Broken(reason) => format!("{reason}, so the command was stopped: command={program}"),
        })
    }
}
