//! The scenes.

use super::act::{Act, Expected, Gate, Late, Lock, Store, Turn};
use crate::checker::Rule;

/// A failure, or how it is prevented.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// What to type behind `fencepost lab`.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    /// Who does what, before the first act.
    pub setting: &'static str,
    /// Its acts, in order.
    pub acts: &'static [Act],
    /// What to take home, after the last act.
    pub moral: &'static str,
}

/// Every scene of `fencepost lab`.
pub const SCENES: &[Scene] = &[ORDER, PAUSE, PAUSE_GATED, PAUSE_WRITES_ONLY];

/// Order #4821: two workers and no lock.
pub const ORDER: Scene = Scene {
    name: "order",
    about: "two workers, no lock: an update is lost",
    setting: UNLOCKED,
    acts: &[Act {
        title: "Order #4821: two workers, no lock",
        plan: "The stock is a row of PostgreSQL. Nothing keeps the two apart.",
        lock: Lock::None,
        gate: Gate::Off,
        store: Store::Postgres,
        turn: Turn::Together,
        expected: Expected {
            text: "both sales are confirmed, and one of them is lost",
            late: None,
            confirmed: 2,
            lost: 1,
            broken: &[Rule::Updates],
        },
    }],
    moral: "A lock would have kept the two apart: see `fencepost lab pause` for what it cannot do.",
};

/// A pause past the TTL of a textbook lock.
pub const PAUSE: Scene = Scene {
    name: "pause",
    about: "paused past its lease, a holder writes late: accepted",
    setting: LOCKED,
    acts: &[Act { store: Store::Postgres, ..TEXTBOOK }],
    moral: "No lock can prevent this: a pause may come after any check. Only the stock itself can, by a token: see \
            `fencepost lab pause --gate on`.",
};

/// The same with a gate.
pub const PAUSE_GATED: Scene = Scene {
    name: "pause --gate on",
    about: "the same with a fencing token: rejected",
    setting: LOCKED,
    acts: &[Act {
        plan: "A is stopped between its read and its write for longer than its lock lasts. Each holder has a token, a number \
               larger than that of every holder before it. It shows it to the database before it reads, and in the \
               transaction in which it writes.",
        store: Store::Postgres,
        ..GATED
    }],
    moral: "A has lost its lock all the same. What keeps the stock right is that the database compares tokens, in the \
            transaction of the write.",
};

/// A gate that is asked too late.
pub const PAUSE_WRITES_ONLY: Scene = Scene {
    name: "pause --gate writes-only",
    about: "tokens shown with writes only: an update is lost",
    setting: LOCKED,
    acts: &[
        Act {
            title: "A gate on writes only",
            plan: "A is stopped between its read and its write, until the lock has gone to B and B has read. The stock is \
                   shown tokens with writes only: when A's write comes, it has not seen B's token yet.",
            lock: Lock::Fencepost,
            gate: Gate::WritesOnly,
            store: Store::Postgres,
            turn: Turn::BeforeTheOther,
            expected: Expected {
                text: "the late write is accepted, and then overwritten: an update is lost",
                late: Some(Late::Accepted),
                confirmed: 2,
                lost: 1,
                broken: &[Rule::Updates],
            },
        },
        Act {
            title: "The same, with the token shown before the read",
            plan: "Now each worker shows its token to the stock before it reads, too.",
            lock: Lock::Fencepost,
            gate: Gate::On,
            store: Store::Postgres,
            turn: Turn::BeforeTheOther,
            expected: Expected {
                text: "the late write is rejected, although B has not written yet, and nothing is lost",
                ..REJECTED
            },
        },
    ],
    moral: "What is read and then written back needs the gate before the read: `fence` first, then read.",
};

/// The pause without and with a gate, with nothing but redis-server.
pub const DEMO: Scene = Scene {
    name: "demo",
    about: "the pause without and with a gate, with redis-server alone",
    setting: LOCKED,
    acts: &[TEXTBOOK, GATED],
    moral: "No lock can keep a paused worker from waking up late. A fencing token can: a number that is larger for every \
            later holder, compared by the thing that the lock protects. More: `fencepost lab list`.",
};

const UNLOCKED: &str = "Two workers, A and B, sell one piece each from a stock of 100. Each reads the stock, works for a \
                        while, and writes back what is left.";

const LOCKED: &str = "Two workers, A and B, sell one piece each from a stock of 100. Each takes the lock, reads the stock, \
                      works for a while, writes back what is left, and gives the lock back.";

const TEXTBOOK: Act = Act {
    title: "The lock that everybody writes first, and no gate",
    plan: "SET NX PX in Redis. A is stopped between its read and its write for longer than its lock lasts, as a long \
           garbage collection or a suspended machine would stop it.",
    lock: Lock::Textbook,
    gate: Gate::Off,
    store: Store::File,
    turn: Turn::AfterTheOther,
    expected: Expected {
        text: "the late write is accepted, and an update is lost",
        late: Some(Late::Accepted),
        confirmed: 2,
        lost: 1,
        broken: &[Rule::Belief, Rule::Updates],
    },
};

const GATED: Act = Act {
    title: "A Fencepost lock, and a gate at the stock",
    plan: "The same pause. Each holder has a token, a number larger than that of every holder before it, and shows it to the \
           stock when it reads and when it writes.",
    lock: Lock::Fencepost,
    gate: Gate::On,
    store: Store::File,
    turn: Turn::AfterTheOther,
    expected: REJECTED,
};

const REJECTED: Expected = Expected {
    text: "the late write is rejected, and nothing is lost",
    late: Some(Late::Rejected),
    confirmed: 1,
    lost: 0,
    broken: &[],
};
