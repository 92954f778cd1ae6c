//! Talking to a ZooKeeper ensemble: what the driver and the gate share.
//!
//! The client is ours, not the crate `zookeeper-client`: ARCHITECTURE.md says why. It speaks the few requests that locks
//! need, over the stream and the TLS of all backends.

mod code;
mod connection;
mod handshake;
mod options;
mod request;
mod sasl;
mod session;
mod visitor;
mod wire;

pub(crate) use code::Code;
pub(crate) use options::{Auth, Names, Options, escape, is_forbidden, slash};
pub(crate) use request::{ANY_VERSION, Kind, Reply, Request, Stat};
pub(crate) use session::{PATHS, Session, User};
pub(crate) use visitor::Visitor;
