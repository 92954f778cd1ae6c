//! The gate in a real PostgreSQL, one database a test.

mod examples;
mod input;
mod install;
mod pooled;
mod protect;
mod recorded;
mod roles;
mod takeover;
mod tokens;
mod transactions;
mod world;

use std::{process::ExitCode, sync::Arc};

use fencepost_lab::server::{
    ignored,
    postgres::{Options, Postgres, installed},
};
use libtest_mimic::{Arguments, Failed, Trial};

use world::World;

/// A test, by its name.
type Test = (&'static str, fn(World));

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let found = installed();
    let skip = ignored(&found);
    // Dropped, and so ended, after the last test.
    let server = found.map_err(|missing| missing.to_string()).and_then(|_| {
        let extra = vec!["max_connections = 200".into(), "deadlock_timeout = '100ms'".into()];
        let options = Options { extra, ..Options::default() };
        Postgres::start(options).map(Arc::new).map_err(|error| error.to_string())
    });
    let tests = [
        (skip, input::TESTS),
        (skip, install::TESTS),
        (skip, protect::TESTS),
        (skip, recorded::TESTS),
        (skip, roles::TESTS),
        (skip, takeover::TESTS),
        (skip, tokens::TESTS),
        (skip, transactions::TESTS),
        (skip || pooled::missing(), pooled::TESTS),
        (skip, examples::PSQL),
        (skip || examples::python_is_missing(), examples::PYTHON),
    ];
    let trials =
        tests.into_iter().flat_map(|(skip, tests)| tests.iter().map(move |&(name, test)| (skip, name, test)));
    let trials = trials.map(|(skip, name, test)| {
        let server = server.clone();
        let run = move || {
            test(World::new(server.map_err(Failed::from)?));
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(skip)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
