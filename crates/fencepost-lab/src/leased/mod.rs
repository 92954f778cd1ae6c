//! The leased test backend: a small lock service with leases, a queue, tokens and switches for faults, and the
//! driver that speaks to it.
//!
//! It exists so that the engine and the conformance suite can be run against every kind of lease without a foreign
//! server, with faults that no real server can be asked for. `lab://host:port?lease=claim` lets each claim expire on
//! its own, as on Redis; `?lease=session` hangs claims on a session, as on ZooKeeper and etcd. With `&path=subject` the
//! connection is one that faults are aimed at, see [`Control`].

mod control;
mod driver;
mod faults;
mod link;
mod routes;
mod server;
mod store;
mod wire;

pub use control::Remote;
pub use driver::connect;
pub use server::Server;
pub use wire::{Control, Fault, Kind, Terms};
