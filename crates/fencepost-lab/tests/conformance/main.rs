//! Runs every promise of the conformance suite over every driver, each in a backend of its own.
//!
//! A case that a backend cannot be asked for is shown as ignored, with the reason; so is a driver whose server is not
//! installed, unless the environment variable `CI` is set, where that is an error.

mod etcd;
mod holder;
mod leased;
mod local;
mod redis;
mod zookeeper;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use fencepost::{
    blocking,
    conformance::{CASES, Harness, Stop, check},
};
use fencepost_lab::{leased::Terms, server::zookeeper::Pooled};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// One row of the matrix.
struct Driver {
    name: &'static str,
    /// A fresh backend, or the reason why there is none on this machine.
    fresh: fn() -> Result<Box<dyn Harness>, String>,
}

const DRIVERS: &[Driver] = &[
    Driver { name: "etcd", fresh: etcd::fresh },
    Driver { name: "leased/claim", fresh: || leased::fresh(Terms::Claim) },
    Driver { name: "leased/session", fresh: || leased::fresh(Terms::Session) },
    Driver { name: "local", fresh: local::fresh },
    Driver { name: "redis", fresh: redis::fresh },
    Driver { name: "zookeeper", fresh: zookeeper::fresh },
];

/// What became of each trial.
type Matrix = Arc<Mutex<BTreeMap<String, Option<String>>>>;

fn main() -> ExitCode {
    if holder::serve() {
        return ExitCode::SUCCESS;
    }
    let mut args = Arguments::from_args();
    // The trials spend their time waiting for leases to run out.
    args.test_threads = args.test_threads.or(Some(12));
    let matrix = Matrix::default();
    let trials = DRIVERS.iter().flat_map(|driver| {
        let matrix = &matrix;
        CASES.iter().map(move |case| {
            let (name, matrix) = (format!("{}::{}", driver.name, case.name), matrix.clone());
            Trial::ignorable_test(name.clone(), move || {
                let verdict = match (driver.fresh)() {
                    Ok(harness) => blocking::wait(check(case, &*harness)),
                    Err(missing) if std::env::var_os("CI").is_some() => Err(Stop::Failed(missing)),
                    Err(missing) => Err(Stop::NotApplicable(missing)),
                };
                complete(&matrix, name, verdict)
            })
        })
    });
    let trials: Vec<Trial> = trials.collect();
    let is_whole = !args.list && trials.iter().all(|trial| !args.is_filtered_out(trial));
    let conclusion = libtest_mimic::run(&args, trials);
    Pooled::finish();
    if is_whole && !every_promise_is_accounted_for(&matrix) {
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn complete(matrix: &Matrix, name: String, verdict: Result<(), Stop>) -> Result<Completion, Failed> {
    let (completion, reason) = match verdict {
        Ok(()) => (Ok(Completion::Completed), None),
        Err(Stop::NotApplicable(reason)) => (Ok(Completion::ignored_with(&reason)), Some(reason)),
        Err(Stop::Failed(why)) => (Err(Failed::from(why)), None),
    };
    matrix.lock().unwrap_or_else(PoisonError::into_inner).insert(name, reason);
    completion
}

/// The matrix has no gap: each driver has run each case, or has said why not. Prints the reasons.
fn every_promise_is_accounted_for(matrix: &Matrix) -> bool {
    let matrix = matrix.lock().unwrap_or_else(PoisonError::into_inner);
    let mut gaps = 0;
    for driver in DRIVERS {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let mut ran = 0;
        for case in CASES {
            match matrix.get(&format!("{}::{}", driver.name, case.name)) {
                Some(None) => ran += 1,
                Some(Some(reason)) => *reasons.entry(reason).or_default() += 1,
                None => gaps += 1,
            }
        }
        println!("{}: {ran} of {} cases were run", driver.name, CASES.len());
        for (reason, count) in reasons {
            println!("    {count} not applicable: {reason}");
        }
    }
    if gaps > 0 {
        println!("{gaps} cases were neither run nor given a reason");
    }
    gaps == 0
}
