//! The embedded engine with one rule of its recipe broken.

use super::{Edit, Mutant};

pub(crate) const MUTANTS: &[(&str, Mutant)] = &[
    (
        "no_directory_lock",
        Mutant {
            story: "tickets are made and promoted without the directory lock",
            edits: &[Edit {
                file: "drivers/local/place.rs",
                right: "match fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {",
                broken: "match io::Result::Ok(()) {",
            }],
        },
    ),
    (
        "counter_after_the_ticket",
        Mutant {
            story: "the counter is not written before the ticket appears: a crash in between repeats a number",
            edits: &[Edit {
                file: "drivers/local/place.rs",
                right: "        self.store()?;\n        let (dir, mode) =",
                broken: "        let (dir, mode) =",
            }],
        },
    ),
];
