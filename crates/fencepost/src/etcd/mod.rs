//! Talking to etcd: what the driver and the gate share.
//!
//! A [`Transport`] carries encoded requests to whichever endpoint answers. [`Client`] is the one that an `etcd://` URL makes: HTTP/2 over a
//! stream of ours, one connection at a time, to the next endpoint when one fails or keeps silent. Above it `Api` knows the
//! messages, and refuses replies of another cluster or of one that went back in time.
//!
//! Nothing here sends a request a second time, but one that was refused for an outdated login: whoever asked does that, under
//! the claim's name.
//!
//! Sources: etcd's API reference, version 3.4 and later; gRPC over HTTP/2 as `tonic` and `hyper` speak it.

mod api;
mod client;
mod codec;
mod connection;
mod fail;
mod options;
mod proto;
mod transport;

use std::sync::Arc;

pub use client::Client;
pub use options::{Names, Options};
pub use transport::{Call, Events, Transport};

pub use crate::net::Tls;
pub(crate) use {
    api::{
        Alive, Api, compare, delete, first_by_creation, last_by_creation, nested, put, range, unchanged,
        value_is,
    },
    proto::{
        Compare, CompareResult, Event, EventType, Header, KeyValue, RangeRequest, RequestOp, Response,
        TxnRequest, TxnResponse, WatchAsk, WatchCancel, WatchCreate, WatchFilter, WatchRequest,
        WatchResponse,
    },
};

use crate::{
    driver::{Driver, Host},
    drivers::etcd::Etcd,
    error::Error,
};

/// A driver over a transport of the caller's own, for [`Locker::from_parts`](crate::Locker::from_parts).
///
/// # Errors
///
/// As [`Locker::connect`](crate::Locker::connect).
///
/// # Cancel safety
///
/// Safe.
pub async fn driver(
    transport: Arc<dyn Transport>,
    options: Options,
    host: Arc<dyn Host>,
) -> Result<Arc<dyn Driver>, Error> {
    Ok(Arc::new(Etcd::connect(transport, options, host).await?))
}
