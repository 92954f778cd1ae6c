//! A writer in a process of its own: this test binary, started again; and stepped with ptrace, to be killed before a given
//! system call.
//!
//! So the gate's own code is killed, at every step at which it could be, and needs no switches for it.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use fencepost::{
    Token,
    conformance::{Hook, NotApplicable},
    gate::{FileGate, conformance::Crash},
};
use libtest_mimic::{Completion, Failed};
use nix::{
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill, raise},
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};

const TASK: &str = "FENCEPOST_GATES_WRITE";

/// How the writer goes about it: as the gate does, or the data first and then the fence.
pub(crate) const SOUND: &str = "sound";
pub(crate) const DATA_FIRST: &str = "data-first";
/// As the gate does, in one go.
const UNTRACED: &str = "untraced";

/// Plays the writer if this process was started as one.
pub(crate) fn serve() -> bool {
    let Ok(task) = env::var(TASK) else { return false };
    let mut words = task.splitn(4, ' ');
    let mut word = || words.next().expect("another word");
    let way = word();
    let (token, text, path): (Token, _, _) = (word().parse().expect("a token"), word(), word());
    let gate = FileGate::new(path).expect("a path of a file");
    if way == UNTRACED {
        match gate.open(token).and_then(|file| file.write(text)) {
            Ok(()) => println!("written"),
            Err(error) => println!("{:?}: {error}", error.kind()),
        }
        return true;
    }
    if ptrace::traceme().is_err() {
        return true;
    }
    raise(Signal::SIGSTOP).expect("a signal to ourselves");
    if way == SOUND {
        gate.open(token).expect("an open gate").write(text).expect("a write");
    } else {
        fs::write(path, text).expect("a write");
        gate.fence(token).expect("a fence");
    }
    true
}

/// Opens the gate of the file at `path`, writes, and is killed before system call `step`.
pub(crate) fn before_system_call(
    way: &str,
    path: &Path,
    token: Token,
    text: &str,
    step: usize,
) -> Hook<Crash> {
    let mut writer = Writer::start(way, path, token, text)?;
    for _ in 0..step {
        if !(writer.go() && writer.go()) {
            return Ok(Crash::Ended);
        }
    }
    // The last system call is the end itself: killed there, a writer has done all.
    Ok(if writer.go() { Crash::Killed } else { Crash::Ended })
}

/// The command of a writer that comes to its end, and then prints `written` or its error.
pub(crate) fn untraced(path: &Path, token: Token, text: &str) -> Command {
    writer(UNTRACED, path, token, text)
}

fn writer(way: &str, path: &Path, token: Token, text: &str) -> Command {
    // Not by its path, which a process that gave root up may not be able to walk.
    let mut command = Command::new("/proc/self/exe");
    command.env(TASK, format!("{way} {token} {text} {}", path.display())).stdin(Stdio::null());
    command
}

/// A writer that is stopped at the begin or the end of a system call. Dropped, it is killed where it stands.
struct Writer {
    pid: Pid,
    is_over: bool,
}

impl Writer {
    /// Starts one that stands before its first step.
    #[allow(clippy::zombie_processes, reason = "it is waited for by its number, as a tracer must")]
    fn start(way: &str, path: &Path, token: Token, text: &str) -> Hook<Self> {
        let child = writer(way, path, token, text).spawn().expect("ourselves again");
        let pid = Pid::from_raw(child.id() as i32);
        match waitpid(pid, None).expect("our child") {
            WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
            _ => return NotApplicable::new("a process may not trace its child here (ptrace)"),
        }
        let writer = Self { pid, is_over: false };
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
        ptrace::setoptions(pid, options).expect("a stopped child");
        Ok(writer)
    }

    /// Goes on to the begin of the next system call, or from there to its end; false if it was the last.
    fn go(&mut self) -> bool {
        ptrace::syscall(self.pid, None).expect("a stopped child");
        match waitpid(self.pid, None).expect("our child") {
            WaitStatus::PtraceSyscall(_) => {}
            WaitStatus::Exited(_, 0) => self.is_over = true,
            other => {
                self.is_over = !matches!(other, WaitStatus::Stopped(..));
                panic!("the writer failed: {other:?}");
            }
        }
        !self.is_over
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_over {
            // It is our child and was not waited for, so the number is still its own.
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

/// A kill shows the order of what a process did, and not what a power cut leaves. So this looks at the calls themselves:
/// each rename comes after a flush of what is renamed, and with a flush of the directory on either side.
pub(crate) fn flushes_come_first() -> Result<Completion, Failed> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("stock");
    // The first writes the fence file too; the second finds it there, and must not trust that it was flushed.
    for (renames, was_flushed) in [(2, true), (1, false)] {
        match calls::of_writer(&path, Token::new(42).expect("not zero")) {
            Ok(calls) => calls::judge(&calls, renames, was_flushed)?,
            Err(reason) => return Ok(Completion::ignored_with(reason.0)),
        }
    }
    Ok(Completion::Completed)
}

#[cfg(target_arch = "x86_64")]
mod calls {
    use std::{fs, path::Path};

    use fencepost::{Token, conformance::Hook};
    use nix::sys::ptrace;

    use super::{SOUND, Writer};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Call {
        WriteDraft,
        FlushDraft,
        FlushDirectory,
        Rename,
    }

    pub(super) fn of_writer(path: &Path, token: Token) -> Hook<Vec<Call>> {
        let mut writer = Writer::start(SOUND, path, token, "text")?;
        let mut calls = Vec::new();
        while writer.go() {
            calls.extend(call(&writer, path));
            if !writer.go() {
                break;
            }
        }
        Ok(calls)
    }

    /// The call at whose begin the writer stands, if it is one of those.
    fn call(writer: &Writer, path: &Path) -> Option<Call> {
        let registers = ptrace::getregs(writer.pid).expect("a stopped child");
        let target = fs::read_link(format!("/proc/{}/fd/{}", writer.pid, registers.rdi)).ok();
        let is_draft = target.as_deref().is_some_and(|target| target.extension() == Some("tmp".as_ref()));
        // Source: arch/x86/entry/syscalls/syscall_64.tbl.
        match registers.orig_rax {
            1 | 18 | 20 if is_draft => Some(Call::WriteDraft),
            74 if is_draft => Some(Call::FlushDraft),
            74 if target.as_deref() == path.parent() => Some(Call::FlushDirectory),
            82 | 264 | 316 => Some(Call::Rename),
            _ => None,
        }
    }

    pub(super) fn judge(calls: &[Call], renames: usize, was_flushed: bool) -> Result<(), String> {
        let (mut is_draft_flushed, mut is_directory_flushed, mut found) = (false, was_flushed, 0);
        for call in calls {
            match call {
                Call::WriteDraft => is_draft_flushed = false,
                Call::FlushDraft => is_draft_flushed = true,
                Call::FlushDirectory => is_directory_flushed = true,
                Call::Rename if is_draft_flushed && is_directory_flushed => {
                    (is_draft_flushed, is_directory_flushed) = (false, false);
                    found += 1;
                }
                Call::Rename => return Err(format!("a rename before its flushes: {calls:?}")),
            }
        }
        if is_directory_flushed && found == renames {
            return Ok(());
        }
        Err(format!("not {renames} renames and a flush of the directory in the end: {calls:?}"))
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod calls {
    use std::path::Path;

    use fencepost::{
        Token,
        conformance::{Hook, NotApplicable},
    };

    pub(super) fn of_writer(_: &Path, _: Token) -> Hook<()> {
        NotApplicable::new("the numbers of the system calls are written down for x86-64 only")
    }

    pub(super) fn judge((): &(), _: usize, _: bool) -> Result<(), String> {
        Ok(())
    }
}
