//! The Redis driver with one rule of its scripts broken.

use super::{Edit, Mutant};

pub(crate) const MUTANTS: &[(&str, Mutant)] = &[
    (
        "release_without_comparison",
        Mutant {
            story: "a release deletes the key whoever holds it, as the naive DEL does",
            edits: &[Edit {
                file: "drivers/redis/scripts/leave.lua",
                right: "if is_of(held, claim) then",
                broken: "if held then",
            }],
        },
    ),
    (
        "renewal_without_comparison",
        Mutant {
            story: "a renewal prolongs the key whoever holds it",
            edits: &[Edit {
                file: "drivers/redis/scripts/renew.lua",
                right: " and string.sub(held, 5, 36) == ARGV[2]",
                broken: "",
            }],
        },
    ),
    (
        "renewal_creates",
        Mutant {
            story: "a renewal sets a key that is missing (RedLock.net PR #64)",
            edits: &[Edit {
                file: "drivers/redis/scripts/renew.lua",
                right: "return 0",
                broken: "redis.call('SET', KEYS[1], 'fp1 ' .. ARGV[2] .. ' 1 0 + {}', 'PX', ARGV[3])\nreturn 1",
            }],
        },
    ),
    (
        "no_tombstone",
        Mutant {
            story: "an enter that arrives after its claim was given up is granted",
            edits: &[Edit {
                file: "drivers/redis/scripts/leave.lua",
                right: "if tomb then",
                broken: "if false then",
            }],
        },
    ),
    (
        "counted_tokens",
        Mutant {
            story: "tokens are counted only: a server that has lost the counter repeats them",
            edits: &[Edit {
                file: "drivers/redis/scripts/mint.lua",
                right: "math.max(last + 1, floor + 1, clock[1] * 1000000 + clock[2])",
                broken: "math.max(last + 1, floor + 1)",
            }],
        },
    ),
    (
        "nobody_is_woken",
        Mutant {
            story: "a release tells nobody",
            edits: &[Edit {
                file: "drivers/redis/scripts/leave.lua",
                right: "  found = 1\n  more = wake()",
                broken: "  found = 1",
            }],
        },
    ),
];

/// Those that the suite lets pass, since a driver may refuse a floor and need not keep an order: the driver's own tests do not.
pub(crate) const FLOORS: &[(&str, Mutant)] = &[(
    "floor_ignored",
    Mutant {
        story: "a token may be below the floor that the caller names",
        edits: &[Edit {
            file: "drivers/redis/scripts/mint.lua",
            right: "math.max(last + 1, floor + 1, clock",
            broken: "math.max(last + 1, clock",
        }],
    },
)];

pub(crate) const ORDERS: &[(&str, Mutant)] = &[(
    "the_line_is_ignored",
    Mutant {
        story: "whoever comes when the lock is free gets it, whoever waits",
        edits: &[Edit {
            file: "drivers/redis/scripts/enter.lua",
            right: "  if not first or first == me then\n    return grant()",
            broken: "  if true then\n    return grant()",
        }],
    },
)];
