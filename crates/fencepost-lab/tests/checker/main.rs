//! The checker against an exhaustive search, against locks broken on purpose, and against a large history.

mod findings;
mod large;
mod malformed;
mod mutants;
mod prng;
mod search;
mod simulated;
