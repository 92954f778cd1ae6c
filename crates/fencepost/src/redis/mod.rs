//! Talking to Redis: the transport that the driver and the gate share.
//!
//! A [`Transport`] sends commands and hands on what the server pushes. [`Client`] is the one that a `redis://` URL makes: one
//! connection, made anew when it breaks, on the thread of the [`Host`]. [`Borrowed`] sends over a connection that
//! the caller has already; anything else can implement the trait.
//!
//! Nothing here sends a command a second time: a command whose reply is lost is [`Fail::Unknown`], and the engine asks again.

mod borrowed;
mod client;
mod connection;
mod options;
mod pump;
mod script;
mod transport;

use std::sync::Arc;

pub use crate::net::Tls;
pub use borrowed::Borrowed;
pub use client::Client;
pub use options::Options;
pub(crate) use script::{Script, one};
pub use transport::{Command, Listener, Reply, Transport};

use crate::{
    driver::{Driver, Fail, Host},
    drivers::redis::Redis,
    error::Error,
};

/// A driver over a transport of the caller's own, such as a [`Borrowed`] connection, for
/// [`Locker::from_parts`](crate::Locker::from_parts).
///
/// The library's own connection lives on a thread of its own and renews locks whatever the program does to its runtime; over
/// a borrowed connection, a blocked runtime loses locks.
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
    Ok(Arc::new(Redis::connect(transport, options, host).await?))
}

/// Whether an access list has refused it. Within a script the code is a general one.
pub(crate) fn lacks_a_right(code: &str, text: &str) -> bool {
    code == "NOPERM" || code == "ERR" && text.starts_with("The user executing the script can't")
}

/// What a server's error means for the request that it answers.
pub(crate) fn fail(code: &str, text: &str) -> Fail {
    // Redis repeats the arguments of a command that it does not know, and a password may be one of them.
    let text = text.split(", with args beginning").next().unwrap_or_default();
    let said = format!("redis says: {code} {text}");
    match code {
        "NOAUTH" | "WRONGPASS" => Fail::Denied(said),
        _ if lacks_a_right(code, text) => Fail::Denied(format!(
            "the user lacks a right; grant the keys (by default ~lock:* and ~{{lock:*), channels and commands that docs/redis.md names: {said}"
        )),
        "WRONGTYPE" => Fail::Unsupported(
            "the key is no plain string: another client's lock of another kind, such as Redisson's hash; give the lock another name or prefix".into(),
        ),
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" => Fail::Invalid(format!(
            "the server is a node of a Redis Cluster, which redis:// does not speak; give a server that is none: {said}"
        )),
        "READONLY" => Fail::Unavailable(format!("the server is a read-only replica; give the primary's address: {said}")),
        "MISCONF" | "LOADING" | "BUSY" | "NOREPLICAS" | "MASTERDOWN" | "TRYAGAIN" | "OOM" => Fail::Unavailable(said),
        _ => Fail::Internal(said),
    }
}
