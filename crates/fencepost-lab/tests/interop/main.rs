//! Fencepost and the lock clients of others on one key: each excludes the other, whoever of them is killed.
//!
//! The binary has roles: with a task in its environment it is one of the players of a test, otherwise the test runner.

mod crowd;
mod diary;
mod etcdctl;
mod handover;
mod ours;
mod players;
mod rslock;
mod zookeeper;

use std::process::ExitCode;

use fencepost_lab::server::zookeeper::Pooled;
use libtest_mimic::{Arguments, Trial};
use players::{Client, Task};

fn main() -> ExitCode {
    match Task::of_this_process() {
        Some((Client::Fencepost, task)) => return ours::play(&task),
        Some((Client::Etcdctl, task)) => return etcdctl::play(&task),
        Some((_, task)) => return rslock::play(&task),
        None => {}
    }
    let mut arguments = Arguments::from_args();
    // The players spend most of their time waiting, but a stalled one says nothing about a lock.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let trials: Vec<Trial> = [crowd::trials(), etcdctl::trials(), handover::trials(), zookeeper::trials()]
        .into_iter()
        .flatten()
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    Pooled::finish();
    conclusion.exit_code()
}
