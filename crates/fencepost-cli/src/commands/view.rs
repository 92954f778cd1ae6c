//! `fencepost status`, `ls` and `watch`: looking without touching.

use std::{
    io::{self, Write, stdout},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, SystemTime},
};

use fencepost::{About, Error, Holder, LeaseKind, Locker, Owner, Status, blocking::wait};
use nix::{libc, sys::stat::fstat};
use serde_json::{Value, json};

use super::poll_beside;
use crate::{
    args::{self, Global},
    backend::Backend,
    duration, exit, report,
};

/// How long a look may take to connect.
const CONNECT: Duration = Duration::from_secs(10);

pub(crate) fn status(global: &Global, args: &args::Status) -> u8 {
    look(global, |locker| {
        let status = wait(locker.inspect(args.name.as_str()))?;
        Ok(print(&[status], args.json, locker))
    })
}

pub(crate) fn ls(global: &Global, args: &args::Ls) -> u8 {
    look(global, |locker| {
        let all = wait(locker.list(args.prefix.as_str()))?;
        if all.is_empty() && !args.json && !global.quiet {
            report::note(format_args!("no lock is held or waited for at {}", locker.about().backend));
        }
        Ok(print(&all, args.json, locker))
    })
}

pub(crate) fn watch(global: &Global, args: &args::Status) -> u8 {
    look(global, |locker| {
        let mut observer = locker.observe(args.name.as_str())?;
        let out = stdout();
        // A reader that goes, as `head` does, would otherwise be noticed at the next change only.
        let reader = is_pipe(out.as_fd()).then_some(out.as_fd());
        loop {
            let status = match poll_beside(observer.next(), reader.as_slice()) {
                Ok(Some(status)) => status?,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            };
            if let Err(error) = print(&[status], args.json, locker) {
                return Ok(Err(error));
            }
        }
    })
}

/// Whether it is a pipe's end for writing, on which nothing ever happens but that its reader goes.
fn is_pipe(fd: BorrowedFd<'_>) -> bool {
    fstat(fd).is_ok_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Connects for an operator, or says why not and answers the exit status.
pub(super) fn reach(global: &Global) -> Result<Locker, u8> {
    let backend = Backend::find(global)?;
    wait(backend.connect(global.quiet, CONNECT)).map_err(|error| report::fail(Backend::code(&error), error))
}

fn look(global: &Global, view: impl FnOnce(&Locker) -> Result<io::Result<()>, Error>) -> u8 {
    let locker = match reach(global) {
        Ok(locker) => locker,
        Err(code) => return code,
    };
    match view(&locker) {
        Ok(Ok(())) => exit::OK,
        // The reader went away, as `head` does.
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => exit::OK,
        Ok(Err(error)) => report::fail(exit::INTERNAL, format_args!("cannot write the answer: {error}")),
        Err(error) => report::error(&error),
    }
}

fn print(all: &[Status], as_json: bool, locker: &Locker) -> io::Result<()> {
    let mut out = stdout().lock();
    for status in all {
        if as_json {
            writeln!(out, "{}", as_value(status, &locker.about().backend))?;
        } else {
            write!(out, "{}", as_text(status, locker.about()))?;
        }
    }
    out.flush()
}

/// Names the backend: root and other users lock in different places, and wonder why they do not exclude each other.
fn as_text(status: &Status, about: &About) -> String {
    let backend = &about.backend;
    let mut text = match &status.holder {
        None => format!("{}\tfree, at {backend}", status.lock),
        Some(holder) => {
            format!("{}\theld by {}, at {backend}", status.lock, holder_text(holder, about.lease))
        }
    };
    for owner in &status.waiters {
        let owner = owner.as_ref().map_or("somebody".into(), |owner| format!("{owner} for {}", ago(owner)));
        text += &format!("\n\twaiting: {owner}");
    }
    text + "\n"
}

fn holder_text(holder: &Holder, lease: LeaseKind) -> String {
    let mut text = match &holder.owner {
        Some(owner) => format!("{owner} for {}", ago(owner)),
        None => "somebody who left no record".into(),
    };
    if let Some(value) = holder.owner.as_ref().and_then(|owner| owner.value.as_ref()) {
        text += &format!(", value {value:?}");
    }
    if let Some(token) = holder.token {
        text += &format!(", token {token}");
    }
    match holder.expires_in {
        Some(left) => text += &format!(", expires in {}", duration::show(left)),
        // Where claims expire one by one, one that does not was made by another client, and may stay for ever.
        None if lease == LeaseKind::PerClaim => text += ", never expires",
        None => {}
    }
    text
}

/// The stable form: documented in docs/cli.md.
fn as_value(status: &Status, backend: &str) -> Value {
    json!({
        "lock": status.lock.as_str(),
        "backend": backend,
        "held": status.holder.is_some(),
        "holder": status.holder.as_ref().map(|holder| json!({
            "token": holder.token,
            "owner": holder.owner.as_ref().map(owner_value),
            "expires_in_ms": holder.expires_in.map(|left| left.as_millis() as u64),
        })),
        "waiters": status.waiters.iter().map(|owner| owner.as_ref().map(owner_value)).collect::<Vec<_>>(),
    })
}

fn owner_value(owner: &Owner) -> Value {
    let since = humantime::format_rfc3339_millis(owner.since()).to_string();
    json!({ "host": owner.host, "pid": owner.pid, "label": owner.label, "value": owner.value, "since": since })
}

/// For how long somebody has held or waited.
#[allow(clippy::disallowed_methods, reason = "wall time for people")]
pub(crate) fn ago(owner: &Owner) -> String {
    duration::show(SystemTime::now().duration_since(owner.since()).unwrap_or_default())
}
