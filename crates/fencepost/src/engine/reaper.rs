//! Removing claims: releases that a caller waits for, and claims that were given up.
//!
//! A claim whose outcome is unknown may be entered by a request that is still on its way, so its removal is
//! repeated until the lease that could carry it is over.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    claim::{Claim, State},
    driver::{Driver, Fail, LeaseKind, Left},
    engine::{Core, verb},
    error::{Error, ErrorKind},
    host::Moment,
};

/// Counts the claims that still have to be removed.
pub(crate) struct Reaper {
    pending: watch::Sender<usize>,
}

impl Default for Reaper {
    fn default() -> Self {
        Self { pending: watch::Sender::new(0) }
    }
}

impl Reaper {
    /// Takes a claim over, from any thread. With `at_once` the removal is first tried on this thread: where nothing
    /// expires it is a system call or two, and nobody else would ever free the lock.
    pub(crate) fn take(self: &Arc<Self>, driver: Arc<dyn Driver>, claim: Arc<Claim>, at_once: bool) {
        let (pending, host) = (self.expect(), claim.host().clone());
        let mut work: crate::host::Fut<'static, ()> =
            Box::pin(async move { remove(driver, &claim, pending).await });
        let done = at_once && {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            work.as_mut().poll(&mut context).is_ready()
        };
        if !done {
            host.spawn(work);
        }
    }

    /// Counts one removal that is still to come, for as long as the answer lives.
    pub(crate) fn expect(self: &Arc<Self>) -> Pending {
        self.pending.send_modify(|pending| *pending += 1);
        Pending(self.clone())
    }

    /// Completes when every claim that was given up is removed, or its lease is over.
    pub(crate) async fn drained(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.pending.subscribe().wait_for(|pending| *pending == 0).await;
    }
}

/// A removal that is not done yet.
pub(crate) struct Pending(Arc<Reaper>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.pending.send_modify(|pending| *pending -= 1);
    }
}

/// Removes `claim` until the backend confirms it.
///
/// After an unknown outcome only a removal counts that was sent when the lease that could carry a late enter was over;
/// without any answer it ends one lease later, when whatever is there ends by itself. A shared lease does not end by
/// itself: it takes no new claims any more, so that it soon ends, and until then the removal is repeated now and then.
async fn remove(driver: Arc<dyn Driver>, claim: &Arc<Claim>, pending: Pending) {
    let lease = claim.lease();
    let term = lease.term().unwrap_or(Duration::from_secs(60));
    let lease_over = Moment::from_nanos(claim.entered.load(Ordering::Relaxed)) + term;
    let give_up = lease_over.max(claim.now()) + term;
    let is_final = driver.about().leave_is_final;
    // What a removal that takes long hangs on is an outage or a lease: neither is over sooner for being asked often.
    let longest = (term / 8).clamp(Duration::from_millis(640), Duration::from_secs(10));
    let mut pending = Some(pending);
    let mut failures = 0;
    loop {
        let sent = claim.now();
        match leave(&driver, claim).await {
            Ok(_) if !claim.unsure.load(Ordering::Relaxed) => return,
            Ok(_) if sent >= lease_over => {
                if !lease.keeps_alive(claim.now()) {
                    return;
                }
                lease.retire();
                pending = None;
            }
            Ok(_) if is_final => return,
            Err(_) if sent >= give_up && !lease.keeps_alive(sent) => return,
            // Also one that does not look as if it would pass: a server that is full, or whose users are being changed,
            // refuses with the same words.
            Err(fail) if !fail.is_passing() => lease.retire(),
            Ok(_) | Err(_) => {}
        }
        failures += 1;
        let pause = match pending {
            Some(_) => (Duration::from_millis(20) * 2u32.pow(failures.min(10))).min(longest),
            None => term,
        };
        claim.host().sleep_until(claim.now() + pause).await;
    }
}

/// A claim that somebody answers for: dropped, it is given up, and removed in the background.
///
/// A waiting acquire holds its claim in one, a guard is one with a token, and a release lets go of it only when the
/// backend has confirmed: so there is no way out on which a claim is forgotten.
pub(crate) struct Ward {
    pub(crate) core: Arc<Core>,
    /// `None` once the claim's removal is confirmed.
    claim: Option<Arc<Claim>>,
}

impl Ward {
    pub(crate) fn new(core: Arc<Core>, claim: Arc<Claim>) -> Self {
        Self { core, claim: Some(claim) }
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        self.claim.as_ref().expect("only a confirmed release, which consumes the ward, takes the claim")
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            claim.release();
            self.core.schedule.remove(&claim);
            let at_once = self.core.about.lease == LeaseKind::None;
            self.core.reaper.take(self.core.driver.clone(), claim, at_once);
        }
    }
}

/// Gives a held lock back and waits for the backend's word; without it the ward goes on in the background.
pub(crate) async fn release(mut ward: Ward) -> Result<(), Error> {
    let (core, claim) = (ward.core.clone(), ward.claim().clone());
    let before = claim.release();
    core.schedule.remove(&claim);
    let held = before.is_held_at(core.now());
    let left = leave(&core.driver, &claim).await;
    let unsure = claim.unsure.load(Ordering::Relaxed);
    let lock = claim.lock();
    match left {
        Ok(left) => {
            if !unsure || core.about.leave_is_final {
                ward.claim = None;
            }
            // Nobody has asked for its removal before: if it was not there, it was lost.
            if held && left == Left::Removed {
                return Ok(());
            }
            let why = match before.state {
                State::Lost(loss) => loss.to_string(),
                _ => "it ran out or was taken away".into(),
            };
            Err(Error::new(ErrorKind::Lost, format!("lock={lock} was lost before its release: {why}")))
        }
        Err(fail) if fail.is_passing() => Err(Error::new(
            ErrorKind::Unknown,
            format!("the release of lock={lock} is not confirmed: {fail}"),
        )),
        Err(fail) => Err(fail.into()),
    }
}

async fn leave(driver: &Arc<dyn Driver>, claim: &Arc<Claim>) -> Result<Left, Fail> {
    let (driver, leaving) = (driver.clone(), claim.clone());
    verb(claim, Box::pin(async move { driver.leave(&leaving).await })).await
}
