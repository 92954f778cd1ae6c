//! The relay: on a terminal, the process that our caller started and waits for, when another one must not stop.
//!
//! It stays in the caller's process group and is stopped whenever the job is, so that the shell takes the terminal
//! back; meanwhile the supervisor, in a session of its own that no terminal reaches, goes on renewing the lock.
//! It decides nothing: signals go to the supervisor, orders come back. It ends with the supervisor's exit status,
//! and if that was killed, not before the guardian has done its work.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::libc;
use serde::{Deserialize, Serialize};

use super::signals::{Signal, Signals, take_signal};
use super::wake::wait_readable;
use super::wire::{Channel, Received};
use crate::{exit, sys};

/// The relay as the supervisor knows it.
pub(super) struct Relay {
    pub(super) pid: i32,
    pub(super) channel: Channel,
}

/// From the relay to the supervisor.
#[derive(Serialize, Deserialize)]
pub(crate) enum Report {
    Signal(Signal),
    /// The answer to [`Request::Go`].
    Going,
}

/// From the supervisor to the relay.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// Stop as if by this signal.
    Stop(i32),
    /// Answer: a relay that is stopped cannot, and then the job must not start.
    Go,
    /// End by SIGINT, as the job did.
    Interrupted,
}

/// Serves until `supervisor` is gone, and answers with its exit status.
pub(crate) fn serve(supervisor: i32, channel: &Channel) -> io::Result<u8> {
    sys::let_go_of_stdio()?;
    let signals = Signals::new()?;
    let mut status = None;
    let mut interrupted = false;
    loop {
        while let Some(signal) = signals.next()? {
            if signal.number == libc::SIGCHLD {
                status = reap(supervisor).or(status);
            } else if signal.sender != supervisor {
                // A supervisor that does not listen is about to show as the connection's end.
                let _ = channel.send(&Report::Signal(signal), None);
            }
        }
        match channel.receive()? {
            Received::Message(Request::Stop(signal), _) => take_signal(signal)?,
            Received::Message(Request::Go, _) => drop(channel.send(&Report::Going, None)),
            Received::Message(Request::Interrupted, _) => interrupted = true,
            Received::Nothing => wait_readable(&[signals.as_fd(), channel.as_fd()])?,
            // The guardian holds a copy of the supervisor's end, so that both are gone.
            Received::End => break,
        }
    }
    while status.is_none() {
        wait_readable(&[signals.as_fd()])?;
        while signals.next()?.is_some() {}
        status = reap(supervisor);
    }
    if interrupted {
        take_signal(libc::SIGINT)?;
    }
    Ok(status.map_or(exit::INTERNAL, code))
}

/// Reaps whatever there is, since as process 1 we get the orphans of others, and answers how the supervisor ended.
fn reap(supervisor: i32) -> Option<ExitStatus> {
    let mut status = None;
    while let Ok(Some((pid, seen))) = sys::wait_any() {
        if pid == supervisor && (seen.code().is_some() || seen.signal().is_some()) {
            status = Some(seen);
        }
    }
    status
}

fn code(status: ExitStatus) -> u8 {
    if let Some(signal) = status.signal() {
        eprintln!("fencepost: the supervisor was killed by signal {signal}, so the command was stopped");
        return exit::INTERNAL;
    }
    exit::of_status(status)
}
