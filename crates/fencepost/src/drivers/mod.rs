//! Where the lock lives: one room per backend. No driver imports the engine, and no driver another.

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "local")]
pub(crate) mod local;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;
