//! The real `fencepost` command, from its command line: over the embedded engine, and over the leased test backend and a
//! real redis-server with all that can happen to a lease.
//!
//! The binary has roles: without arguments of its own it is the test runner, as `role:…` it is the backend's server or
//! one of the jobs. Every process of a test has the test's directory in its environment and ends with it.

#[path = "../run/scene.rs"]
#[allow(dead_code, reason = "the other tests' program under test is not ours")]
mod scene;
#[path = "../../src/sys.rs"]
#[allow(dead_code, reason = "few of these calls are needed here")]
mod sys;
#[path = "../run/worker.rs"]
mod worker;

mod backend;
mod config;
mod elect;
mod events;
mod foreign;
mod gate;
mod held;
mod hold;
mod input;
mod lease;
mod local;
mod look;
mod pages;
mod redis;
mod redis_input;
mod roots;
mod stall;
mod terminal;
mod wait;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("role:server") => backend::serve(),
        Some("role:tree") => worker::tree(arguments.next().as_deref()),
        Some("role:leaf") => worker::leaf(&arguments.next().expect("a name")),
        Some("role:count") => worker::count_signals(),
        Some("role:now") => {
            scene::note(&arguments.next().expect("a name"), sys::now());
            ExitCode::SUCCESS
        }
        _ => {
            // A runner in the background ignores the keys of the terminal, and what it starts would as well.
            for signal in [nix::libc::SIGHUP, nix::libc::SIGINT, nix::libc::SIGQUIT] {
                sys::set_ignored(signal, false);
            }
            let mut arguments = libtest_mimic::Arguments::from_args();
            // The tests spend their time waiting, but what they wait for must not be starved.
            arguments.test_threads = arguments.test_threads.or(Some(4));
            stall::measure();
            let trials = [
                config::trials(),
                elect::trials(),
                events::trials(),
                gate::trials(),
                foreign::trials(),
                held::trials(),
                hold::trials(),
                input::trials(),
                lease::trials(),
                local::trials(),
                look::trials(),
                pages::trials(),
                redis::trials(),
                redis_input::trials(),
                roots::trials(),
                terminal::trials(),
                wait::trials(),
            ];
            libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
        }
    }
}
