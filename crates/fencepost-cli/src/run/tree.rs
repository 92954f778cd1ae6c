//! Finding, through `/proc`, every process below one, and signalling it.
//!
//! A subreaper stays the ancestor of whatever its job starts: also of a process that called setsid, and of one whose
//! parent ended. So "everything of the job" is what is below the job's parent.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use crate::sys;

/// A process as `/proc` shows it; `born` tells it from a later one with the same id.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    born: u64,
}

/// Processes that were found below this one, each pinned by a descriptor: to kill them again needs no look at `/proc`,
/// which on a busy machine takes longer than a deadline allows.
#[derive(Default)]
pub(crate) struct Known(Vec<OwnedFd>);

impl Known {
    /// Kills those that still run.
    pub(crate) fn kill(&mut self) {
        for process in self.0.drain(..) {
            // One that has ended is as it should be, and one that we may not signal was noted when it was found.
            let _ = sys::pidfd_kill(&process, libc::SIGKILL);
        }
    }
}

/// Sends TERM to everything below this process, ancestors first, and CONT, since one that is stopped would never see it.
/// Keeps what was found in `known`. Answers the first process that we may not signal, if there is one.
pub(crate) fn terminate_below(known: &mut Known) -> io::Result<Option<i32>> {
    let (ours, _) = below(std::process::id() as i32)?;
    Ok(signal_all(&ours, &[libc::SIGTERM, libc::SIGCONT], known))
}

/// Kills everything below this process, `again` if a first time did not do. What forks faster than it can be found is
/// then killed by groups, since the kernel lets no fork slip out of a group that it kills.
pub(crate) fn kill_below_once(again: bool) -> io::Result<Option<i32>> {
    let (ours, others) = below(std::process::id() as i32)?;
    let denied = signal_all(&ours, &[libc::SIGKILL], &mut Known::default());
    if again {
        let shared: HashSet<i32> = others.iter().map(|other| other.group).collect();
        let groups: HashSet<i32> = ours.iter().map(|process| process.group).collect();
        for group in groups.difference(&shared).filter(|&&group| group > 1) {
            // Its members may all be dead by now, and those that we may not signal were noted above.
            let _ = sys::kill(-group, libc::SIGKILL);
        }
    }
    Ok(denied)
}

/// Kills everything below this process and returns when it is dead: when there is no child left, which for a
/// subreaper means no descendant either.
pub(crate) fn kill_below() {
    let mut denied = Denied::default();
    for again in std::iter::once(false).chain(std::iter::repeat(true)) {
        denied.note(kill_below_once(again));
        loop {
            match sys::wait_any() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Says once that the job cannot be killed, since the wait for its end may then be long.
#[derive(Default)]
pub(crate) struct Denied(bool);

impl Denied {
    pub(crate) fn note(&mut self, answer: io::Result<Option<i32>>) {
        let problem = match answer {
            Ok(None) => return,
            Ok(Some(pid)) => {
                format!("may not kill process {pid} of another user: stop it, or run fencepost as root")
            }
            Err(error) => format!("cannot find the command's processes in /proc: {error}"),
        };
        if !std::mem::replace(&mut self.0, true) {
            eprintln!("fencepost: {problem}");
        }
    }
}

fn signal_all(processes: &[Process], signals: &[i32], known: &mut Known) -> Option<i32> {
    // Every one gets its signals before the answer is looked at.
    let denied: Vec<_> =
        processes.iter().filter(|one| signal_one(**one, signals, known) == Err(Errno::EPERM)).collect();
    denied.first().map(|process| process.pid)
}

fn signal_one(process: Process, signals: &[i32], known: &mut Known) -> nix::Result<()> {
    let exact = match sys::pidfd(process.pid) {
        // Old kernels, containers that forbid the call, and more processes than we may have descriptors.
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EMFILE | Errno::ENFILE) => None,
        opened => Some(opened?),
    };
    // Read again now that the descriptor pins it: the id may have been given away since the first look.
    if look(process.pid).map(|again| again.born) != Some(process.born) {
        return Ok(());
    }
    let sent = signals.iter().try_for_each(|&signal| match &exact {
        Some(pidfd) => sys::pidfd_kill(pidfd, signal),
        None => sys::kill(process.pid, signal),
    });
    known.0.extend(exact);
    sent
}

/// What is below a process, ancestors first, and every other process.
fn below(root: i32) -> io::Result<(Vec<Process>, Vec<Process>)> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(process) = pid.and_then(look) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        found.extend(children.remove(&process.pid).unwrap_or_default());
        next += 1;
    }
    Ok((found, children.into_values().flatten().collect()))
}

fn look(pid: i32) -> Option<Process> {
    parse(pid, &std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The command's name stands in parentheses and may itself contain some, so the numbers start after the last one.
fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    let numbers = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[numbers + 1..]).ok()?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let born = fields.nth(16)?.parse().ok()?;
    Some(Process { pid, parent, group, born })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read_over() {
        let stat = b"42 (a) S 1 b) S 7 43 44 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 999 8 18446744073709551615\n";
        let process = parse(42, stat).unwrap();
        assert_eq!((process.parent, process.group, process.born), (7, 43, 12345));
    }
}
