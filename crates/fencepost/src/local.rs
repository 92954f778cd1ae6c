//! What only the embedded engine, `local:`, offers.

pub use crate::drivers::local::{default_root, inherit};
