//! The process side of `run`, tested with real processes and a hold that follows a script.
//!
//! The binary has roles: without arguments of its own it is the test runner, as `role:run` it is the program under
//! test, as `role:…` otherwise one of the jobs. Every role notes its process id, so that a test ends what it began.

#[path = "../../src/exit.rs"]
#[allow(dead_code, reason = "the other commands' exit statuses are not tested here")]
mod exit;
#[path = "../../src/run/mod.rs"]
#[allow(dead_code, unused_imports, reason = "a script holds the lock here, and its unit tests are not run")]
mod run;
#[path = "../../src/sys.rs"]
#[allow(dead_code, reason = "a call of `hold` is among them")]
mod sys;

mod deadline;
mod init;
mod plain;
mod program;
mod scene;
mod signal;
mod terminal;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("role:run") => program::main(arguments.collect()),
        Some("role:tree") => worker::tree(arguments.next().as_deref()),
        Some("role:leaf") => worker::leaf(&arguments.next().expect("a name")),
        Some("role:count") => worker::count_signals(),
        _ => {
            // A runner in the background ignores the keys of the terminal, and what it starts would as well.
            for signal in [nix::libc::SIGHUP, nix::libc::SIGINT, nix::libc::SIGQUIT] {
                sys::set_ignored(signal, false);
            }
            let trials =
                [deadline::trials(), init::trials(), plain::trials(), signal::trials(), terminal::trials()];
            let arguments = libtest_mimic::Arguments::from_args();
            libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
        }
    }
}
