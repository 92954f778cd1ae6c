//! Gates: the check at the protected resource, which rejects a token lower than the highest that it has seen.
//!
//! A lock cannot stop a holder that was paused past its lease and acts late. A gate can: it stands at the resource, keeps
//! the highest token as a durable [`Mark`], and judges every [`Pass`] by it.
//!
//! ```
//! # fn main() -> Result<(), fencepost::Error> {
//! use fencepost::{Token, gate::{Mark, Pass}};
//! let token = |number| Token::new(number).expect("not zero");
//!
//! let mut mark = Mark::default();
//! mark.raise(&Pass::from(token(41)))?;          // the first holder
//! mark.raise(&Pass::from(token(42)))?;          // its successor
//! mark.raise(&Pass::from(token(42)))?;          // the successor's second write: equal is accepted
//! let late = mark.raise(&Pass::from(token(41))).unwrap_err();
//! assert_eq!(late.stale().map(|stale| stale.highest), Some(token(42)));
//! # Ok(()) }
//! ```
//!
//! Rules that every gate keeps, and the conformance suite (feature `conformance`) checks:
//! 1. An equal token is accepted, a higher one is accepted and recorded, a lower one is rejected.
//! 2. The check and the write that it protects are one atomic step.
//! 3. The mark is raised *before* the holder reads what it is going to change. So the ordinary way through a gate is its
//!    `open`, which raises the mark and then gives reads and writes. A gate on writes alone loses updates.
//! 4. The mark is durable before anything that it let through is, is never lowered, and never expires.
//! 5. The rejection carries both numbers ([`Stale`]); the lock takes the higher one as its [floor](crate::Lock::floor).
//! 6. Tokens of different lineages never compare. A gate records the first lineage that it is shown and refuses another
//!    ([`OtherLineage`]) until an operator rebinds the resource.
//!
//! *Stale* says that a successor has raised the gate. Until then the write of a holder whose lease is over is accepted,
//! and that is in order: nobody has begun to rely on its absence.

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod mark;
mod memory;
mod pass;
#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod patience;
#[cfg(feature = "redis")]
mod redis;
mod refusal;
mod resource;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "etcd")]
pub use etcd::{Answer, EtcdGate, OpenEtcd, Operation};
pub use file::{FileGate, OpenFile};
pub use mark::{Decision, Mark};
pub use memory::{MemoryGate, OpenMemory};
pub use pass::Pass;
#[cfg(feature = "redis")]
pub use redis::{OpenRedis, RedisGate};
pub use refusal::{OtherLineage, Refusal, Stale, unknown_outcome};
pub use resource::Resource;
#[cfg(feature = "zookeeper")]
pub use zookeeper::{OpenZooKeeper, Step, ZooKeeperGate};
