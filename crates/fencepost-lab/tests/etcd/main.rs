//! The etcd driver over real servers, with everything that can happen to a member, a client and the way between them.
//!
//! The conformance suite asks what every driver promises; here is what is etcd's own, and what needs several members.

#[path = "../redis/acts.rs"]
mod acts;
mod blind;
mod cluster;
#[path = "../redis/cuts.rs"]
mod cuts;
mod endpoints;
#[path = "../conformance/holder.rs"]
mod holder;
mod holding;
mod logins;
#[path = "../redis/player.rs"]
mod player;
mod refusals;
mod restores;
mod scene;
#[path = "../redis/steps.rs"]
mod steps;
mod waiting;

use std::process::ExitCode;

use fencepost_lab::server::{etcd, ignored};
use libtest_mimic::{Arguments, Failed, Trial};

type Tests = &'static [(&'static str, fn())];

fn main() -> ExitCode {
    if holder::serve() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Most tests wait; those that measure must not be starved.
    arguments.test_threads = arguments.test_threads.or(Some(6));
    let rooms: [(&str, Tests); 8] = [
        ("blind", blind::TESTS),
        ("cuts", cuts::TESTS),
        ("holding", holding::TESTS),
        ("logins", logins::TESTS),
        ("refusals", refusals::TESTS),
        ("restores", restores::TESTS),
        ("steps", steps::TESTS),
        ("waiting", waiting::TESTS),
    ];
    let mut trials = all(&rooms);
    // Those of the cluster come one after the other: spread over the run, they keep one thread busy, and not all.
    for (place, trial) in
        all(&[("cluster", cluster::TESTS), ("endpoints", endpoints::TESTS)]).into_iter().enumerate()
    {
        trials.insert((4 * place).min(trials.len()), trial);
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    scene::end_of_the_cluster();
    conclusion.exit_code()
}

fn all(rooms: &[(&'static str, Tests)]) -> Vec<Trial> {
    rooms.iter().flat_map(|(room, tests)| tests.iter().map(move |test| trial(room, *test))).collect()
}

fn trial(room: &str, (name, test): (&str, fn())) -> Trial {
    let found = etcd::installed();
    let skip = ignored(&found);
    let run = move || {
        found?;
        std::panic::catch_unwind(test).map_err(|_| Failed::from("see the panic above"))
    };
    Trial::test(format!("{room}::{name}"), run).with_ignored_flag(skip)
}
