//! The ZooKeeper driver over real servers, one and three, with everything that can happen to a server, a client and the way
//! between them.
//!
//! The conformance suite asks what every driver promises; here is what is ZooKeeper's own, and each fault of other
//! clients' lock recipes. The single server and the ensemble are started once for all tests; a test of the ensemble has
//! it to itself, and leaves it whole.

#[path = "../redis/acts.rs"]
mod acts;
mod ensemble;
mod figures;
mod lost;
mod names;
mod partition;
mod places;
mod process;
mod refusals;
mod scene;
mod sessions;

use std::process::ExitCode;

use fencepost_lab::server::{ignored, zookeeper};
use libtest_mimic::{Arguments, Failed, Trial};

type Tests = &'static [(&'static str, fn())];

fn main() -> ExitCode {
    if process::serve() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Most tests wait; those that measure must not be starved.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let rooms: [(&str, Tests); 8] = [
        ("ensemble", ensemble::TESTS),
        ("figures", figures::TESTS),
        ("lost", lost::TESTS),
        ("names", names::TESTS),
        ("partition", partition::TESTS),
        ("places", places::TESTS),
        ("refusals", refusals::TESTS),
        ("sessions", sessions::TESTS),
    ];
    let trials = rooms.into_iter().flat_map(|(room, tests)| tests.iter().map(move |test| trial(room, *test)));
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    scene::finish();
    conclusion.exit_code()
}

fn trial(room: &str, (name, test): (&str, fn())) -> Trial {
    let found = zookeeper::installed();
    let skip = ignored(&found);
    let run = move || {
        found?;
        std::panic::catch_unwind(test).map_err(|_| Failed::from("see the panic above"))
    };
    Trial::test(format!("{room}::{name}"), run).with_ignored_flag(skip)
}
