//! Jobs: they stamp the time while they live, so that the last stamp tells when they died.

use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use crate::scene::{directory, note};
use crate::sys;

/// A job with a child, and a descendant that left its session and lost its parent. With `stubborn` none of them hears
/// TERM, with `half` only the job does.
pub(crate) fn tree(how: Option<&str>) -> ExitCode {
    let mut term = SigSet::empty();
    term.add(Signal::SIGTERM);
    if matches!(how, Some("stubborn" | "half")) {
        term.thread_block().expect("a known signal");
    }
    let me = std::env::current_exe().expect("a path");
    let mut child = Command::new(&me).args(["role:leaf", "child"]).spawn().expect("it starts");
    Command::new("setsid").arg("-f").arg(&me).args(["role:leaf", "daemon"]).status().expect("it starts");
    if how == Some("half") {
        term.thread_unblock().expect("a known signal");
    }
    let code = leaf("job");
    let _ = child.wait();
    code
}

/// Stamps until it is killed, or somebody notes `enough`.
pub(crate) fn leaf(name: &str) -> ExitCode {
    let stamps =
        std::fs::File::create(directory().join(format!("{name}.stamp"))).expect("the directory is there");
    note(name, std::process::id());
    while !directory().join("enough").exists() {
        stamps.write_all_at(&sys::now().to_ne_bytes(), 0).expect("it can be written");
        std::thread::sleep(Duration::from_millis(1));
    }
    ExitCode::SUCCESS
}

/// Notes every signal in the order of arrival; ends by TERM.
pub(crate) fn count_signals() -> ExitCode {
    let mut set = SigSet::all();
    set.remove(Signal::SIGTSTP);
    set.thread_block().expect("known signals");
    let signals = SignalFd::new(&set).expect("a descriptor");
    let mut seen = String::new();
    note("signals", "");
    note("job", std::process::id());
    while let Ok(Some(signal)) = signals.read_signal() {
        seen += &format!("{} ", signal.ssi_signo);
        note("signals", &seen);
        if signal.ssi_signo == 15 {
            break;
        }
    }
    ExitCode::from(9)
}
