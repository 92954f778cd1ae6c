//! Which passes a gate has recorded, as far as this process remembers: a guess that saves a round trip, and no more.
//!
//! It is not asked of which database, nor whether it still is so: a mark may have been restored from a backup or set back. The
//! database says so if the guess is wrong. What is forgotten costs a few statements, and nothing else.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};

use fencepost::gate::{Pass, Resource};

/// Room for as many passes as a process is likely to use at a time.
const SLOTS: usize = 4096;

/// The hash of the latest pass of each slot.
static RECORDED: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

/// One pass for one resource, in the place where it is remembered.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    hash: u64,
}

impl Memory {
    pub(super) fn of(resource: &Resource, pass: &Pass) -> Self {
        let mut hasher = DefaultHasher::new();
        (resource.as_str(), pass.token, &pass.lineage).hash(&mut hasher);
        Self { hash: hasher.finish() }
    }

    pub(super) fn is_there(self) -> bool {
        self.slot().load(Ordering::Relaxed) == self.hash
    }

    pub(super) fn keep(self) {
        self.slot().store(self.hash, Ordering::Relaxed);
    }

    fn slot(self) -> &'static AtomicU64 {
        &RECORDED[self.hash as usize % SLOTS]
    }
}
