//! Test tools of Fencepost, and the scenes of `fencepost lab`. Nothing here is needed to use a lock.
//!
//! Published for the command alone: its functions may change in any version.

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
