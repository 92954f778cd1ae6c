//! Gates for SQL databases: a stale fencing token is rejected in the same transaction as the write.
