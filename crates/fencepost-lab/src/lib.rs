//! Test tools.
pub mod sim;
