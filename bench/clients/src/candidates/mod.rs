//! What is compared, each behind the same two calls.

mod bare;
mod fred;
mod nudged;
mod redis;

use std::{net::SocketAddr, pin::Pin};

use self::{
    bare::Bare,
    nudged::{Nudged, When},
};
use crate::{Outcome, host::Host};

pub(crate) use self::{
    fred::{Options as FredOptions, connect as connect_fred, count as count_fred},
    redis::{config, connect as connect_redis, count as count_redis, info, open},
};

pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send>>;

pub(crate) type Call = Box<dyn Fn(&'static str) -> Answer<i64>>;
pub(crate) type Batch = Box<dyn Fn(&'static str, usize) -> Answer<usize>>;

/// One client, with one connection.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    /// Runs the script once.
    pub(crate) call: Call,
    /// Runs the script so many times in one pipeline.
    pub(crate) batch: Option<Batch>,
}

/// All of them, connected. Called within the caller's runtime, where those stay that say so.
pub(crate) async fn all(addr: SocketAddr, host: &Host) -> Outcome<Vec<Candidate>> {
    let there = host.handle().clone();
    let here = tokio::runtime::Handle::current();
    let near = redis::candidate("redis, same thread", connect_redis(addr, &here).await?);
    let distant = connect_redis(addr, &there).await?;
    let far = redis::candidate("redis, other thread", distant);
    let offloaded = redis::offloaded("redis, offloaded", connect_redis(addr, &there).await?, there.clone());
    let always = Nudged::connect(addr, &there, When::Always).await?.candidate("redis, nudged always");
    let alone = Nudged::connect(addr, &there, When::Alone).await?.candidate("redis, nudged when alone");
    let both = Nudged::connect(addr, &there, When::Alone).await?;
    let both = both.offloaded("redis, nudged when alone, offloaded", there);
    let near_fred = fred::candidate("fred, same thread", connect_fred(addr, FredOptions::default()).await?);
    let distant_fred = host.run(connect_fred(addr, FredOptions::default()))??;
    let far_fred = fred::candidate("fred, other thread", distant_fred);
    let bare = Bare::connect(addr)?.candidate("a bare socket that blocks");
    Ok(vec![bare, near, far, always, alone, offloaded, both, near_fred, far_fred])
}
