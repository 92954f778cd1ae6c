//! Distributed locks with a fencing token on every lock.
//!
//! ```no_run
//! # async fn charge(_order: u32, _token: fencepost::Token) {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fencepost::Error> {
//! use std::time::Duration;
//! use fencepost::Locker;
//!
//! let locker = Locker::connect("local:").await?;
//! let guard = locker.lock("orders/4821").wait(Duration::from_secs(5)).acquire().await?;
//! guard.run(charge(4821, guard.token())).await?;
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! **What a lock cannot do.** No lock, on any backend, stops a holder that is paused past its deadline from acting late.
//! Only the protected resource can, by rejecting a [token](Token) lower than the highest it has seen:
//! that is a [gate].

mod claim;
mod connect;
mod drivers;
mod election;
mod engine;
mod error;
mod file_system;
mod guard;
mod host;
mod lease;
mod lock;
mod locker;
mod meters;
mod name;
#[cfg(feature = "net")]
mod net;
mod owner;
#[cfg(feature = "net")]
mod secret;
mod token;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub mod blocking;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod driver;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod gate;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "redis")]
pub mod redis;

pub use claim::{Hold, Loss, State};
pub use connect::{SCHEMES, Url};
pub use driver::{About, ForcedOut, Holder, LeaseKind, Level, Status};
pub use election::{Election, Leader, Leaders, Leadership};
pub use engine::SystemHost;
pub use error::{Error, ErrorKind};
pub use guard::{Changes, Guard};
pub use host::Moment;
pub use lock::{DEFAULT_PATIENCE, DEFAULT_TTL, Lock};
pub use locker::{Locker, Observer};
pub use name::{LockName, MAX_NAME_BYTES};
pub use owner::{MAX_LABEL_BYTES, MAX_VALUE_BYTES, Owner};
pub use token::{Lineage, Token};
