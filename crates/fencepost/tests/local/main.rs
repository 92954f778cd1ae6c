//! The promises of `local:`, through the public API, with real processes that are killed and stopped.

mod between;
mod crowd;
mod faults;
mod process;
mod queue;
mod roles;
mod stress;
mod support;
mod tokens;
