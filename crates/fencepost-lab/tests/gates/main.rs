//! Runs every promise of the gate suite over every gate, each with a store of its own, storms each gate with random
//! interleavings that the checker judges, and shows that broken gates are caught.
//!
//! A case that a store cannot be asked for is shown as ignored, with the reason; so is a gate whose server is not
//! installed, unless the environment variable `CI` is set, where that is an error.

mod broken;
mod etcd;
mod file;
mod killed;
mod lost;
mod memory;
mod owners;
mod postgres;
mod redis;
mod toy;
mod traps;
mod zookeeper;

use std::{
    collections::BTreeMap,
    env,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use fencepost::{
    conformance::Stop,
    gate::conformance::{CASES, Case, Harness, check},
};
use fencepost_lab::{server::zookeeper::Pooled, storm};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// One row of the matrix.
struct Gate {
    name: &'static str,
    /// How many random interleavings it takes.
    storms: u32,
    /// A fresh store, or the reason why there is none on this machine.
    fresh: fn() -> Result<Box<dyn Harness>, String>,
}

const GATES: &[Gate] = &[
    Gate { name: "memory", storms: 10_000, fresh: memory::fresh },
    // On a disk, where a flush takes milliseconds; `file::trials` has ten thousand more.
    Gate { name: "file", storms: 500, fresh: file::fresh },
    Gate { name: "redis", storms: 500, fresh: redis::fresh },
    Gate { name: "etcd", storms: 300, fresh: etcd::fresh },
    Gate { name: "zookeeper", storms: 200, fresh: zookeeper::fresh },
    Gate { name: "postgres", storms: 500, fresh: postgres::fresh },
    // The gate that the broken ones are made of. It has what the real ones of this crate lack: transactions.
    Gate { name: "toy", storms: 10_000, fresh: || Ok(Box::new(toy::Toy::sound())) },
];

/// What became of each trial.
type Matrix = Arc<Mutex<BTreeMap<String, Option<String>>>>;

fn main() -> ExitCode {
    if killed::serve() {
        return ExitCode::SUCCESS;
    }
    let args = Arguments::from_args();
    let matrix = Matrix::default();
    let mut trials: Vec<Trial> = GATES.iter().flat_map(|gate| promises(gate, &matrix)).collect();
    trials.extend(GATES.iter().map(stormed));
    trials.extend(broken::trials());
    trials.extend(traps::trials());
    trials.extend(file::trials());
    trials.extend(owners::trials());
    trials.extend(etcd::trials());
    trials.extend(redis::trials());
    trials.extend(lost::trials());
    trials.extend(zookeeper::trials());
    let is_whole = !args.list && trials.iter().all(|trial| !args.is_filtered_out(trial));
    let conclusion = libtest_mimic::run(&args, trials);
    Pooled::finish();
    if is_whole && !every_promise_is_accounted_for(&matrix) {
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn fresh(gate: &Gate) -> Result<Box<dyn Harness>, Stop> {
    (gate.fresh)().map_err(|missing| {
        if env::var_os("CI").is_some() { Stop::Failed(missing) } else { Stop::NotApplicable(missing) }
    })
}

fn promises(gate: &'static Gate, matrix: &Matrix) -> Vec<Trial> {
    let trial = |case: &'static Case| {
        let (name, matrix) = (format!("{}::{}", gate.name, case.name), matrix.clone());
        Trial::ignorable_test(name.clone(), move || {
            complete(&matrix, name, fresh(gate).and_then(|harness| check(case, &*harness)))
        })
    };
    CASES.iter().map(trial).collect()
}

fn stormed(gate: &'static Gate) -> Trial {
    let run = || match fresh(gate) {
        Ok(harness) => storm::judge(&*harness, gate.storms, storm::seed()).map(|()| Completion::Completed),
        Err(Stop::NotApplicable(reason)) => Ok(Completion::ignored_with(reason)),
        Err(Stop::Failed(why)) => Err(why),
    };
    Trial::ignorable_test(format!("{}::random_interleavings", gate.name), move || run().map_err(Failed::from))
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

/// The matrix has no gap: each gate has run each case, or has said why not. Prints the reasons.
fn every_promise_is_accounted_for(matrix: &Matrix) -> bool {
    let matrix = matrix.lock().unwrap_or_else(PoisonError::into_inner);
    let mut gaps = 0;
    for gate in GATES {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let mut ran = 0;
        for case in CASES {
            match matrix.get(&format!("{}::{}", gate.name, case.name)) {
                Some(None) => ran += 1,
                Some(Some(reason)) => *reasons.entry(reason).or_default() += 1,
                None => gaps += 1,
            }
        }
        println!("{}: {ran} of {} cases were run", gate.name, CASES.len());
        for (reason, count) in reasons {
            println!("    {count} not applicable: {reason}");
        }
    }
    if gaps > 0 {
        println!("{gaps} cases were neither run nor given a reason");
    }
    gaps == 0
}
