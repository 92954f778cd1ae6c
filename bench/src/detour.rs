//! What it costs that an operation which must wait goes on in the library's own thread.
//!
//! The caller polls first, and what is ready then needs no other thread: so it is with `local:`. Beside it the same
//! locks, through a driver that always answers one poll later, as one that asks a server does.

use std::{any::Any, sync::Arc, time::Duration};

use fencepost::{
    ForcedOut, LockName, Locker, Owner, Status, SystemHost, blocking,
    driver::{
        About, Claim, Driver, Entered, Fail, Fut, Host, Intent, Lease, Left, Operator, Proclaimed, Report,
        connect,
    },
};

use tokio::sync::Notify;

use crate::{outcome::Outcome, pairs::in_turn, places::Place, table::Table};

const REPEATED: u32 = 100;

pub(crate) fn measure(table: &mut Table, place: &Place, effort: usize) -> Outcome<()> {
    let host: Arc<dyn Host> = Arc::new(SystemHost);
    let driver = blocking::wait(connect(&place.url(), host.clone()))?;
    let at_once = Locker::from_parts(driver.clone(), host.clone());
    let later = Locker::from_parts(Arc::new(Later(driver)), host);
    let pairs = in_turn(10 * effort, || repeat(&at_once), || repeat(&later))?.each_of(REPEATED);
    table.pairs("acquire and release, answered one poll later", "answered at once", &pairs, None);
    Ok(())
}

fn repeat(locker: &Locker) -> Outcome<()> {
    for _ in 0..REPEATED {
        let guard = blocking::wait(locker.lock("detour").acquire())?;
        blocking::wait(guard.release())?;
    }
    Ok(())
}

/// Answers each verb one poll later.
struct Later(Arc<dyn Driver>);

impl Driver for Later {
    fn about(&self) -> About {
        self.0.about()
    }

    fn open<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<Duration, Fail>> {
        self.0.open(lease)
    }

    fn enter<'a>(&'a self, claim: &'a Arc<Claim>, intent: Intent) -> Fut<'a, Result<Entered, Fail>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.enter(claim, intent).await
        })
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Arc<Lease>,
        claims: &'a [Arc<Claim>],
        report: Report<'a>,
    ) -> Fut<'a, Result<(), Fail>> {
        self.0.renew(lease, claims, report)
    }

    fn attend(&self, claims: &[Arc<Claim>]) {
        self.0.attend(claims);
    }

    fn proclaim<'a>(&'a self, claim: &'a Arc<Claim>, owner: &'a Owner) -> Fut<'a, Result<Proclaimed, Fail>> {
        self.0.proclaim(claim, owner)
    }

    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.leave(claim).await
        })
    }

    fn close<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>> {
        self.0.close(lease)
    }
}

impl Operator for Later {
    fn inspect<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<Status, Fail>> {
        self.0.inspect(lock)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Fut<'a, Result<Vec<Status>, Fail>> {
        self.0.list(prefix)
    }

    fn force_unlock<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<ForcedOut, Fail>> {
        self.0.force_unlock(lock)
    }

    fn observe(&self, lock: &LockName, hint: Arc<Notify>) -> Option<Box<dyn Any + Send>> {
        self.0.observe(lock, hint)
    }
}
