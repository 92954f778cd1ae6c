//! One file a command.

pub(crate) mod held;
pub(crate) mod hold;
pub(crate) mod pages;
pub(crate) mod run;
pub(crate) mod unlock;
pub(crate) mod view;

use fencepost::{Error, Guard, Lock, Locker};

use crate::args::Wanted;

/// The lock that was asked for, with its options.
fn lock(locker: &Locker, name: &str, wanted: &Wanted) -> Lock {
    let mut lock = locker.lock(name).ttl(wanted.ttl).patience(wanted.connect_timeout);
    if let Some(wait) = wanted.wait {
        lock = lock.wait(wait);
    }
    if let Some(label) = &wanted.label {
        lock = lock.label(label);
    }
    if let Some(above) = wanted.above {
        lock = lock.floor(above);
    }
    lock
}

/// Takes the lock in the way that was asked for.
async fn take(lock: &Lock, wanted: &Wanted) -> Result<Guard, Error> {
    if wanted.no_wait { lock.try_acquire().await } else { lock.acquire().await }
}
