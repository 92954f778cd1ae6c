//! A process together with everything that it started, however deep, and in whatever session.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock::now_ns;

/// How long one process may take to notice a signal that it cannot catch.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stops a process and then its descendants. They are listed, parents first.
///
/// A parent that stands still starts no child and collects none, so no id in the list can pass to a stranger until the
/// parent goes on. The caller must be the parent of `root`, and not have collected it.
pub(super) fn freeze(root: u32) -> io::Result<Vec<u32>> {
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&pid) = family.get(next) {
        send(pid, Signal::SIGSTOP)?;
        wait_until(pid, "TtZX")?;
        family.extend(children(pid)?);
        next += 1;
    }
    Ok(family)
}

/// Lets a frozen family go on, children first.
pub(super) fn thaw(root: u32) -> io::Result<()> {
    freeze(root)?.into_iter().rev().try_for_each(|pid| send(pid, Signal::SIGCONT))
}

/// Kills all descendants of a process, which stays frozen itself, with all of them dead, for its parent to kill.
pub(super) fn kill_descendants(root: u32) -> io::Result<()> {
    let family = freeze(root)?;
    // Children first: nobody is orphaned before it is dead.
    for &pid in family[1..].iter().rev() {
        send(pid, Signal::SIGKILL)?;
        wait_until(pid, "ZX")?;
    }
    Ok(())
}

fn send(pid: u32, signal: Signal) -> io::Result<()> {
    match kill(Pid::from_raw(pid.cast_signed()), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn wait_until(pid: u32, states: &str) -> io::Result<()> {
    let end = now_ns() + PATIENCE.as_nanos() as u64;
    while status(pid).is_some_and(|status| !states.contains(status.state)) {
        if now_ns() >= end {
            return Err(io::Error::other(format!("the process does not take a signal: pid={pid}")));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn children(parent: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        found.extend(pid.filter(|&pid| status(pid).is_some_and(|status| status.parent == parent)));
    }
    Ok(found)
}

struct Status {
    state: char,
    parent: u32,
}

/// `None` if the process is gone.
fn status(pid: u32) -> Option<Status> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in front may contain anything, also parentheses and blanks.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some(Status { state: fields.next()?.parse().ok()?, parent: fields.next()?.parse().ok()? })
}
