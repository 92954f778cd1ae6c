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
    (
        "linked_before_it_is_locked",
        Mutant {
            story: "a ticket is visible before it is locked",
            edits: &[Edit {
                file: "drivers/local/ticket.rs",
                right: "        fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;\n",
                broken: "",
            }],
        },
    ),
    (
        "promoted_though_removed",
        Mutant {
            story: "a waiter that was passed over takes the lock all the same",
            edits: &[Edit {
                file: "drivers/local/mod.rs",
                right: "&& (seat.place != place.id() || ticket.is_unlinked()?)",
                broken: "&& seat.place != place.id()",
            }],
        },
    ),
    (
        "stopped_waiters_block",
        Mutant {
            story: "a stopped waiter at the head of the line is never passed over",
            edits: &[Edit {
                file: "drivers/local/turn.rs",
                right: "now.since(since) >= STOPPED_AFTER",
                broken: "now.since(since) >= STOPPED_AFTER * 100_000",
            }],
        },
    ),
    (
        "dead_tickets_live",
        Mutant {
            story: "the ticket of a dead owner is taken for a live one",
            edits: &[Edit {
                file: "drivers/local/ticket.rs",
                right: "fs::flock(&self.file, FlockOperation::NonBlockingLockShared).is_err()",
                broken: "true",
            }],
        },
    ),
    (
        "closed_and_not_unlinked",
        Mutant {
            story: "a release closes its ticket and leaves it there",
            edits: &[Edit {
                file: "drivers/local/ticket.rs",
                right: "        match fs::unlink(&self.path) {\n            Ok(()) => Ok(true),",
                broken: "        match io::Result::Ok(()) {\n            Ok(()) => Ok(true),",
            }],
        },
    ),
    (
        "token_older_than_a_forced_unlock",
        Mutant {
            story: "a forced unlock hands out a token that later holders do not exceed",
            edits: &[Edit {
                file: "drivers/local/place.rs",
                right: "        let token = self.mint(floor)?;\n        Ok(ticket.promote(token, owner)?)",
                broken: "        let token = Token::new(ticket.number.max(floor + 1)).ok_or(Trouble::NoMoreTokens)?;\n        self.store()?;\n        Ok(ticket.promote(token, owner)?)",
            }],
        },
    ),
    (
        "floor_of_the_boot_not_raised",
        Mutant {
            story: "after a power loss the counters may be older than tokens that were given",
            edits: &[Edit {
                file: "drivers/local/root.rs",
                right: "let floor = old.floor.saturating_add(BOOT_STEP).max(wall_micros());",
                broken: "let floor = { let _ = BOOT_STEP; old.floor };",
            }],
        },
    ),
    (
        "heirs_lose_the_lock",
        Mutant {
            story: "a release removes the ticket that a child has inherited",
            edits: &[Edit {
                file: "drivers/local/mod.rs",
                right: "if seat.is_inherited { ticket.disown()? } else { ticket.end()? }",
                broken: "ticket.end()?",
            }],
        },
    ),
];
