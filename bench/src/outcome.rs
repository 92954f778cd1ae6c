//! What can go wrong here is only told, never handled.

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
