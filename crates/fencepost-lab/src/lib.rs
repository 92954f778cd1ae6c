//! Test tools of Fencepost. Nothing here is needed to use a lock.

pub mod checker;
pub mod clock;
pub mod faulty;
pub mod history;
pub mod leased;
pub mod proxy;
#[cfg(feature = "scenes")]
pub mod scenes;
pub mod server;
pub mod sim;
pub mod storm;
