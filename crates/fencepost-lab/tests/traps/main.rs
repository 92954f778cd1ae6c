//! The traps of locks on Redis, each in its textbook form, which breaks, and in ours, which does not.
//!
//! The textbook's side is Python over redis-py, as most readers meet it: `textbook.py`.

mod crash;
mod release;
mod textbook;
mod token;

use std::process::ExitCode;

use fencepost_lab::server::{ignored, peers::python, redis};
use libtest_mimic::{Arguments, Failed, Trial};
use textbook::Stage;

fn main() -> ExitCode {
    if let Some(code) = crash::holder() {
        return code;
    }
    type Test = fn(&mut Stage) -> Result<(), Failed>;
    let tests: [(&str, Test); 6] = [
        ("a_plain_del_frees_somebody_elses_lock", release::plain_del),
        ("get_then_del_frees_somebody_elses_lock", release::get_then_del),
        ("without_a_ttl_a_crash_blocks_for_ever", crash::blocks),
        ("a_token_is_given_out_without_the_lock", token::without_the_lock),
        ("a_counter_that_is_deleted_repeats_its_tokens", token::deleted_counter),
        ("a_server_that_lost_its_data_repeats_its_tokens", token::lost_data),
    ];
    let trials = tests.into_iter().map(|(name, test)| {
        let found = redis::installed().and_then(|_| python("redis"));
        let skip = ignored(&found);
        let run = move || test(&mut Stage::new(found?)?);
        Trial::test(format!("traps::{name}"), run).with_ignored_flag(skip)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
