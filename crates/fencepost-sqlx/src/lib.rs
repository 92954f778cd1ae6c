//! Gates for SQL databases: a stale fencing token is rejected in the same transaction as the write.
//!
//! A check in another connection, beside the transaction, is not a gate: the successor may come between the check and
//! the write. Here the database itself compares, and what was compared stays true until the transaction ends.

#[cfg(feature = "postgres")]
pub mod postgres;

/// The client library, in the version that the types of this crate are of.
pub use sqlx;
