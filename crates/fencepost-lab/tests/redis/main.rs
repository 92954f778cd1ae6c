//! The Redis driver over real servers, with everything that can happen to a server, a client and the way between them.
//!
//! The conformance suite asks what every driver promises; here is what is Redis's own.

mod acts;
mod amnesia;
mod clocks;
mod crowd;
mod cuts;
mod dead;
mod foreign;
mod places;
mod player;
mod process;
mod refusals;
mod rights;
mod scene;
mod scripts;
mod steps;
mod storm;

use std::process::ExitCode;

use fencepost_lab::server::{ignored, redis};
use libtest_mimic::{Arguments, Failed, Trial};

type Tests = &'static [(&'static str, fn())];

fn main() -> ExitCode {
    if process::serve() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Most tests wait; those that measure must not be starved.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let rooms: [(&str, Tests); 12] = [
        ("amnesia", amnesia::TESTS),
        ("clocks", clocks::TESTS),
        ("crowd", crowd::TESTS),
        ("cuts", cuts::TESTS),
        ("dead", dead::TESTS),
        ("foreign", foreign::TESTS),
        ("places", places::TESTS),
        ("refusals", refusals::TESTS),
        ("rights", rights::TESTS),
        ("scripts", scripts::TESTS),
        ("steps", steps::TESTS),
        ("steps", steps::REPEATED),
    ];
    let trials = rooms.into_iter().flat_map(|(room, tests)| tests.iter().map(move |test| trial(room, *test)));
    libtest_mimic::run(&arguments, trials.chain(storm::trials()).collect()).exit_code()
}

fn trial(room: &str, (name, test): (&str, fn())) -> Trial {
    let found = redis::installed();
    let skip = ignored(&found);
    let run = move || {
        found?;
        std::panic::catch_unwind(test).map_err(|_| Failed::from("see the panic above"))
    };
    Trial::test(format!("{room}::{name}"), run).with_ignored_flag(skip)
}
