//! Getting a lock: the one wait loop.
//!
//! Invariants:
//! 1. On any way out but a guard (time-out, error, dropped future, panic) the claim goes to the reaper.
//! 2. A guard is never made from a grant whose deadline has passed or that is not above the caller's floor.
//! 3. The caller's time limit holds also while a verb hangs.
//! 4. A claim that is found gone is replaced by a new one within the same wait; it is never revived.

use std::{
    cmp::min,
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    claim::{Claim, State},
    driver::{Entered, Fail, Holder, Intent, LeaseKind},
    engine::{Core, Ward, verb},
    error::{Error, ErrorKind},
    guard::Guard,
    host::Moment,
    lease::{Lease, deadline},
    name::LockName,
    owner::{Owner, wall_ms},
    token::Token,
};

/// What the caller wants, validated.
#[derive(Clone)]
pub(crate) struct Want {
    pub(crate) lock: LockName,
    pub(crate) intent: Intent,
    pub(crate) ttl: Duration,
    /// How long to wait for the lock; `None` for ever.
    pub(crate) wait: Option<Duration>,
    /// How long the backend may fail to answer before that is an error.
    pub(crate) patience: Duration,
    pub(crate) label: Option<String>,
    /// What a candidate tells those who observe.
    pub(crate) value: Option<String>,
    pub(crate) floor: Option<Token>,
}

pub(crate) async fn acquire(core: Arc<Core>, want: Want) -> Result<Guard, Error> {
    let mut line = Line {
        limit: want.wait.map(|wait| core.now() + wait),
        silent_since: core.now(),
        failures: 0,
        trouble: None,
        is_answered: false,
        holder: None,
        core,
        want,
    };
    loop {
        let lease = match line.lease().await? {
            Ok(lease) => lease,
            Err(fail) => {
                let pause = line.bear(fail, false)?;
                line.sleep(pause).await?;
                continue;
            }
        };
        let owner = Owner { value: line.want.value.clone(), ..Owner::here(line.want.label.clone()) };
        let claim = line.core.claim(line.want.lock.clone(), owner, line.want.floor, lease);
        let ward = Ward::new(line.core.clone(), claim.clone());
        if let Some(token) = line.stand(&claim).await? {
            line.core.schedule.add(&claim);
            return Ok(Guard::new(ward, token));
        }
        drop(ward);
        // The next life starts a moment later: a backend that keeps removing claims must not be stormed.
        line.sleep(Duration::from_millis(5)).await?;
    }
}

/// One caller's wait, over all the claims that it takes.
struct Line {
    core: Arc<Core>,
    want: Want,
    limit: Option<Moment>,
    /// When the first request was sent that the backend has not answered.
    silent_since: Moment,
    failures: u32,
    /// The last of them.
    trouble: Option<Fail>,
    /// Whether the backend has ever said where the claim stands.
    is_answered: bool,
    holder: Option<Holder>,
}

impl Line {
    /// Keeps `claim` in line until it is granted (its token), of no use any more (`None`), or an error ends the wait.
    async fn stand(&mut self, claim: &Arc<Claim>) -> Result<Option<Token>, Error> {
        loop {
            let sent = self.core.now();
            if claim.is_over() || !claim.lease().is_usable(sent) {
                return Ok(None);
            }
            let pause = match self.enter(claim, sent).await? {
                Ok(Entered::Granted { token }) => return self.accept(claim, token, sent),
                Ok(Entered::Queued { recheck, holder }) => self.heard(recheck, holder),
                Ok(Entered::Busy { holder, .. }) if self.want.intent == Intent::Try => {
                    self.heard(Duration::ZERO, holder);
                    return Err(self.timeout());
                }
                Ok(Entered::Busy { retry, holder }) => self.heard(retry, holder),
                Ok(Entered::Contended { retry }) => {
                    let fail = Fail::Unavailable("the lock's own bookkeeping is busy".into());
                    min(self.bear(fail, false)?, retry)
                }
                Ok(Entered::Gone) => return Ok(None),
                Err(Fail::NoLease) => {
                    claim.lease().dead();
                    return Ok(None);
                }
                Err(fail) => {
                    let pause = self.bear(fail, claim.unsure.load(Ordering::Relaxed))?;
                    // Whatever pokes meanwhile: a backend that fails must not be asked without a pause.
                    self.sleep(pause).await?;
                    continue;
                }
            };
            self.wait(claim, pause).await?;
        }
    }

    async fn lease(&mut self) -> Result<Result<Arc<Lease>, Fail>, Error> {
        let core = self.core.clone();
        self.answer(core.lease(self.want.ttl)).await
    }

    async fn enter(&mut self, claim: &Arc<Claim>, sent: Moment) -> Result<Result<Entered, Fail>, Error> {
        claim.entered.store(sent.as_nanos(), Ordering::Relaxed);
        let (driver, entering, intent) = (self.core.driver.clone(), claim.clone(), self.want.intent);
        self.answer(verb(claim, Box::pin(async move { driver.enter(&entering, intent).await }))).await
    }

    /// What `request` answers, unless the caller's limit or the end of its patience comes first; the request then goes on
    /// without us.
    async fn answer<T>(
        &mut self,
        request: impl Future<Output = Result<T, Fail>>,
    ) -> Result<Result<T, Fail>, Error> {
        if self.failures == 0 {
            self.silent_since = self.core.now();
        }
        let patience = async { self.core.host.sleep_until(self.silent_since + self.want.patience).await };
        tokio::select! {
            biased;
            answer = request => Ok(answer),
            () = self.over() => Err(self.timeout()),
            () = patience => {
                // What was said before this request tells more than its silence, which may be a moment's.
                let silence = || Fail::Unknown("the last request is still unanswered".into());
                Ok(Err(self.trouble.clone().unwrap_or_else(silence)))
            }
        }
    }

    /// Turns a grant into a hold, unless it came too late or too low.
    fn accept(&self, claim: &Claim, token: Token, sent: Moment) -> Result<Option<Token>, Error> {
        if let Some(floor) = claim.floor().filter(|floor| token <= *floor) {
            let text = format!(
                "the backend's token={token} is not above floor={floor}: it was rebuilt; rebind the gate to its new lineage"
            );
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let now = self.core.now();
        let until = match self.core.about.lease {
            LeaseKind::None => None,
            LeaseKind::PerClaim => claim.lease().term().map(|term| deadline(sent, term)),
            LeaseKind::Shared => match claim.lease().deadline().filter(|end| now < *end) {
                Some(end) => Some(end),
                // The lease ended while the claim stood in line.
                None => return Ok(None),
            },
        };
        if until.is_some_and(|until| now >= until) {
            let text = format!("the grant of lock={} came too late to be used", claim.lock());
            return Err(Error::new(ErrorKind::Timeout, text));
        }
        let granted = claim.grant(until);
        debug_assert!(granted || matches!(claim.hold().state, State::Lost(_)));
        tracing::debug!(%token, granted, deadline = ?until, "granted");
        Ok(granted.then_some(token))
    }

    /// The one wait: for a poke, for the time to ask again, or for the caller's limit, which is an error.
    async fn wait(&self, claim: &Claim, pause: Duration) -> Result<(), Error> {
        tokio::select! {
            biased;
            () = claim.poked() => Ok(()),
            slept = self.sleep(pause) => slept,
        }
    }

    async fn sleep(&self, pause: Duration) -> Result<(), Error> {
        let again = self.core.now() + pause;
        match self.limit.filter(|limit| *limit < again) {
            None => self.core.host.sleep_until(again).await,
            Some(_) => {
                self.over().await;
                return Err(self.timeout());
            }
        }
        Ok(())
    }

    /// Completes at the caller's limit.
    async fn over(&self) {
        match self.limit {
            Some(limit) => self.core.host.sleep_until(limit).await,
            None => pending().await,
        }
    }

    /// The backend answered: its silence is over.
    fn heard(&mut self, pause: Duration, holder: Option<Holder>) -> Duration {
        (self.failures, self.trouble) = (0, None);
        self.is_answered = true;
        self.holder = holder.or(self.holder.take());
        pause
    }

    /// Bears a failure that may pass, and says how long to pause; an error once patience has run out.
    fn bear(&mut self, fail: Fail, unsure: bool) -> Result<Duration, Error> {
        if !fail.is_passing() {
            return Err(fail.into());
        }
        let silent = self.core.now().since(self.silent_since);
        let left = self.want.patience.saturating_sub(silent);
        if left.is_zero() {
            let kind = if unsure { ErrorKind::Unknown } else { ErrorKind::Unavailable };
            let backend = &self.core.about.backend;
            let text = match &fail {
                Fail::Unknown(_) => format!("no answer from {backend} for {silent:.1?}: {fail}"),
                _ => format!("{fail}; tried for {silent:.1?} at {backend}"),
            };
            return Err(Error::new(kind, text));
        }
        (self.failures, self.trouble) = (self.failures + 1, Some(fail));
        let step = Duration::from_millis(10) * 2u32.pow(min(self.failures, 6));
        // Half of the step is random, so that many waiters do not return to a healed backend as one.
        let jitter = (self.core.host.random() % 1000) as u32;
        Ok(min(step / 2 + step / 2 * jitter / 1000, left))
    }

    fn timeout(&self) -> Error {
        let (lock, backend) = (&self.want.lock, &self.core.about.backend);
        let mut text = match self.holder.as_ref().and_then(|holder| holder.owner.as_ref()) {
            Some(owner) => {
                let held = Duration::from_secs(wall_ms().saturating_sub(owner.since_ms) / 1000);
                format!("lock={lock} is held by {owner} for {held:?}, at {backend}")
            }
            None if self.is_answered => format!("lock={lock} is held, at {backend}"),
            None => format!("lock={lock} was not taken in time: no answer yet from {backend}"),
        };
        if let (Intent::Wait, Some(wait)) = (self.want.intent, self.want.wait) {
            text += &format!("; gave up after {wait:?}");
        }
        Error::new(ErrorKind::Timeout, text).held_by(self.holder.clone())
    }
}
