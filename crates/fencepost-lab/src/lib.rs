//! Test tools of Fencepost. Nothing here is needed to use a lock.

pub mod clock;
pub mod leased;
