//! The driver of the simulated service, behind a network that loses, delays and repeats.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use fencepost::{
    About, ForcedOut, Holder, LeaseKind, Level, Lineage, LockName, Owner, Status, Token,
    driver::{Claim, Driver, Entered, Fail, Fut, Intent, Lease, Left, Operator, Proclaimed, Renewed, Report},
};
use tokio::sync::{Notify, oneshot};

use super::{
    host::{Clock, Dice, spawn},
    service::{self, Enter, Service, Taken},
};

/// How badly the network behaves: chances in per cent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    /// A request never arrives.
    pub(super) lose_request: u64,
    /// A reply never arrives.
    pub(super) lose_reply: u64,
    /// A request arrives again, later.
    pub(super) repeat: u64,
    /// A request is refused without being carried out.
    pub(super) refuse: u64,
    /// A request takes up to this long.
    pub(super) slow: u64,
    /// A renewal fails if the one before it did not.
    pub(super) single_renewal: u64,
    /// A lock is taken away in the moment in which it is granted, and its holder told: perhaps before it hears of its grant.
    pub(super) ambush: u64,
    /// A push from the server never arrives.
    pub(super) lose_push: u64,
}

/// The server's side, and the network before it.
pub(super) struct Net {
    /// The true time.
    pub(super) clock: Clock,
    dice: Arc<Dice>,
    state: Mutex<State>,
    claims: Mutex<HashMap<String, Weak<Claim>>>,
    /// Until when the holder of a token cannot know that its lock was taken away.
    excuses: Mutex<HashMap<u64, Duration>>,
}

struct State {
    service: Service,
    weather: Weather,
    frozen_until: Duration,
    /// Added to the server's clock by steps.
    step: Duration,
}

/// The server's clock runs this much fast, in thousandths: within the one per cent that the engine's margin allows.
const SERVER_RUNS_FAST: u32 = 8;

/// Longer than a request may take: the engine has then given up waiting for it.
const SLOW: Duration = Duration::from_millis(2500);

/// On a session, longer than the session would live if nobody renewed it.
const SLOW_ON_SESSIONS: Duration = Duration::from_secs(6);

impl Net {
    /// A network before this service.
    pub(super) fn new(service: Service, clock: Clock, dice: Arc<Dice>) -> Arc<Self> {
        let state = State {
            service,
            weather: Weather::default(),
            frozen_until: Duration::ZERO,
            step: Duration::ZERO,
        };
        Arc::new(Self {
            clock,
            dice,
            state: Mutex::new(state),
            claims: Mutex::default(),
            excuses: Mutex::default(),
        })
    }

    /// Sets the weather.
    pub(super) fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// The server answers nothing for a while; what was sent is carried out afterwards.
    pub(super) fn freeze(&self, by: Duration) {
        self.state().frozen_until = self.clock.now() + by;
    }

    /// The server's clock steps forward.
    pub(super) fn step_clock(&self, by: Duration) {
        self.state().step += by;
    }

    /// Does something at the server at once, and wakes whom it concerns.
    pub(super) fn at_server<R>(self: &Arc<Self>, f: impl FnOnce(&mut Service, Duration) -> R) -> R {
        let mut state = self.state();
        let now = self.clock.now();
        let server_now = now + now * SERVER_RUNS_FAST / 1000 + state.step;
        let result = f(&mut state.service, server_now);
        let heads = state.service.heads(server_now);
        drop(state);
        heads.into_iter().for_each(|head| self.poke(head));
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<String, Weak<Claim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poke(self: &Arc<Self>, id: String) {
        if self.dice.chance(self.state().weather.lose_push) {
            return;
        }
        let (net, latency) = (self.clone(), self.latency());
        spawn(async move {
            net.clock.sleep(latency).await;
            let claim = net.claims().get(&id).and_then(Weak::upgrade);
            if let Some(claim) = claim {
                claim.poke();
            }
        });
    }

    fn latency(&self) -> Duration {
        Duration::from_micros(200) + self.dice.up_to(Duration::from_millis(5))
    }

    /// Sends a request that `op` carries out at the server, perhaps late, perhaps twice, perhaps never.
    async fn request<R: Send + 'static>(
        self: &Arc<Self>,
        op: impl Fn(&mut Service, Duration) -> R + Send + Sync + 'static,
    ) -> Result<R, Fail> {
        let weather = self.state().weather;
        if self.dice.chance(weather.refuse) {
            self.clock.sleep(self.latency()).await;
            return Err(Fail::Unavailable("refused".into()));
        }
        let (mut answer, answered) = oneshot::channel();
        let net = self.clone();
        spawn(async move {
            let most = if net.has_sessions() { SLOW_ON_SESSIONS } else { SLOW };
            let slow = if net.dice.chance(weather.slow) { net.dice.up_to(most) } else { Duration::ZERO };
            net.clock.sleep(net.latency() + slow).await;
            let arrives = !net.dice.chance(weather.lose_request);
            let result = if arrives { Some(net.carry_out(&op).await) } else { None };
            let (repeat, lost) =
                (arrives && net.dice.chance(weather.repeat), net.dice.chance(weather.lose_reply));
            let result = result.filter(|_| !lost);
            let slow = if net.dice.chance(weather.slow) { net.dice.up_to(SLOW) } else { Duration::ZERO };
            net.clock.sleep(net.latency() + slow).await;
            net.thawed().await;
            match result {
                Some(result) => drop(answer.send(result)),
                // A lost message shows as an error at once, or not at all.
                None if net.dice.chance(50) => drop(answer),
                None => answer.closed().await,
            }
            if repeat {
                net.clock.sleep(net.dice.up_to(SLOW)).await;
                net.carry_out(&op).await;
            }
        });
        answered.await.map_err(|_| Fail::Unknown("the connection was cut".into()))
    }

    async fn carry_out<R>(self: &Arc<Self>, op: &(impl Fn(&mut Service, Duration) -> R + Send + Sync)) -> R {
        self.thawed().await;
        self.at_server(|service, now| op(service, now))
    }

    async fn thawed(&self) {
        loop {
            let left = self.state().frozen_until.saturating_sub(self.clock.now());
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left).await;
        }
    }

    /// A claim was taken away behind its owner's back; the server tells it or not.
    pub(super) fn taken(self: &Arc<Self>, taken: Taken, tells: bool, excuse: Duration) {
        if let Some(token) = taken.token {
            self.excuses
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(token, self.clock.now() + excuse);
        }
        let (net, latency) = (self.clone(), self.latency());
        if tells {
            spawn(async move {
                net.clock.sleep(latency).await;
                let claim = net.claims().get(&taken.id).and_then(Weak::upgrade);
                if let Some(claim) = claim {
                    claim.gone();
                }
            });
        }
    }

    /// Whether the holder of a token cannot know yet that its lock was taken away.
    pub(super) fn is_excused(&self, token: u64) -> bool {
        let excuses = self.excuses.lock().unwrap_or_else(PoisonError::into_inner);
        excuses.get(&token).is_some_and(|end| self.clock.now() < *end)
    }

    /// Whether claims hang on sessions.
    pub(super) fn has_sessions(&self) -> bool {
        self.state().service.sessions_only
    }

    /// The claims at the server whose owners have forgotten them.
    pub(super) fn orphans(self: &Arc<Self>) -> Vec<String> {
        let ids = self.at_server(|service, now| service.ids(now));
        let known = self.claims();
        ids.into_iter().filter(|id| known.get(id).is_none_or(|claim| claim.strong_count() == 0)).collect()
    }
}

/// One process's driver.
pub(super) struct SimDriver {
    net: Arc<Net>,
}

impl SimDriver {
    /// A driver over this network.
    pub(super) fn new(net: Arc<Net>) -> Arc<Self> {
        Arc::new(Self { net })
    }

    fn sessions_only(&self) -> bool {
        self.net.state().service.sessions_only
    }
}

/// What the driver remembers of a claim.
#[derive(Default)]
struct Seat {
    in_line: bool,
    renewal_failed: bool,
}

impl Driver for SimDriver {
    fn about(&self) -> About {
        About {
            scheme: "sim",
            backend: "sim:".into(),
            lineage: Lineage::new("sim"),
            lease: if self.sessions_only() { LeaseKind::Shared } else { LeaseKind::PerClaim },
            ttl: Duration::from_millis(100)..=Duration::from_secs(3600),
            decides: "a simulated server",
            fifo: true,
            level: Some(Level::Tokens),
            caveat: "it is simulated",
            leave_is_final: false,
            notice: None,
        }
    }

    fn open<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<Duration, Fail>> {
        Box::pin(async move {
            let (session, ttl) = (lease.id().to_hex(), lease.ttl());
            if self.sessions_only() {
                self.net.request(move |service, now| service.open(&session, ttl, now)).await?;
            }
            Ok(ttl)
        })
    }

    fn enter<'a>(&'a self, claim: &'a Arc<Claim>, intent: Intent) -> Fut<'a, Result<Entered, Fail>> {
        Box::pin(async move {
            let id = claim.id().to_hex();
            self.net.claims().insert(id.clone(), Arc::downgrade(claim));
            let enter = Enter {
                id,
                lock: claim.lock().to_string(),
                session: claim.lease().id().to_hex(),
                ttl: claim.lease().ttl(),
                floor: claim.floor().map_or(0, Token::get),
                only_try: intent == Intent::Try,
                again: claim.seat(|seat: &mut Seat| seat.in_line),
            };
            let (net, ambush) = (self.net.clone(), self.net.state().weather.ambush);
            let entered = self.net.request(move |service, now| {
                let entered = service.enter(&enter, now);
                if matches!(entered, service::Entered::Granted(_)) && net.dice.chance(ambush) {
                    let taken = service.force_out(&enter.lock, now);
                    taken.into_iter().for_each(|taken| net.taken(taken, true, Duration::from_millis(20)));
                }
                entered
            });
            let entered = entered.await?;
            let wait = Duration::from_millis(500);
            Ok(match entered {
                service::Entered::Granted(token) => {
                    Entered::Granted { token: Token::new(token).expect("the counter starts at one") }
                }
                service::Entered::Queued => {
                    claim.seat(|seat: &mut Seat| seat.in_line = true);
                    Entered::Queued { recheck: wait, holder: None }
                }
                service::Entered::Busy => Entered::Busy { retry: wait, holder: None },
                service::Entered::Gone => Entered::Gone,
                service::Entered::NoSession => return Err(Fail::NoLease),
            })
        })
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Arc<Lease>,
        claims: &'a [Arc<Claim>],
        report: Report<'a>,
    ) -> Fut<'a, Result<(), Fail>> {
        Box::pin(async move {
            let ttl = lease.ttl();
            if self.sessions_only() {
                let session = lease.id().to_hex();
                if self.fails_once(lease.seat(|seat: &mut Seat| std::mem::take(&mut seat.renewal_failed))) {
                    lease.seat(|seat: &mut Seat| seat.renewal_failed = true);
                    return Err(Fail::Unknown("one renewal failed".into()));
                }
                if !self.net.request(move |service, now| service.touch(&session, ttl, now)).await? {
                    return Err(Fail::NoLease);
                }
            }
            let mut results = Vec::new();
            for claim in claims {
                let (net, claim) = (self.net.clone(), claim.clone());
                let (answer, answered) = oneshot::channel();
                let failed = claim.seat(|seat: &mut Seat| std::mem::take(&mut seat.renewal_failed));
                let fails = !self.sessions_only() && self.fails_once(failed);
                claim.seat(|seat: &mut Seat| seat.renewal_failed = fails);
                spawn(async move {
                    let (lock, id) = (claim.lock().to_string(), claim.id().to_hex());
                    let renewed = net.request(move |service, now| service.renew(&lock, &id, ttl, now)).await;
                    // The caller may have given up on the batch.
                    let _ = answer.send(if fails {
                        Err(Fail::Unknown("one renewal failed".into()))
                    } else {
                        renewed
                    });
                });
                results.push(answered);
            }
            // Answers are reported as they come: one that hangs holds nobody up.
            let mut waiting: Vec<_> = results.into_iter().enumerate().collect();
            std::future::poll_fn(|cx| {
                waiting.retain_mut(|(index, answered)| match std::pin::Pin::new(answered).poll(cx) {
                    std::task::Poll::Pending => true,
                    std::task::Poll::Ready(answer) => {
                        report(
                            *index,
                            match answer {
                                Ok(Ok(true)) => Renewed::Extended(ttl),
                                Ok(Ok(false)) if claims[*index].hold().state == fencepost::State::Waiting => {
                                    Renewed::Unknown
                                }
                                Ok(Ok(false)) => Renewed::Lost,
                                Ok(Err(_)) | Err(_) => Renewed::Unknown,
                            },
                        );
                        false
                    }
                });
                if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            Ok(())
        })
    }

    fn attend(&self, _claims: &[Arc<Claim>]) {}

    /// The simulated server keeps no owner records: what it can answer is whether there is one to write.
    fn proclaim<'a>(&'a self, claim: &'a Arc<Claim>, _owner: &'a Owner) -> Fut<'a, Result<Proclaimed, Fail>> {
        Box::pin(async move {
            let (lock, id) = (claim.lock().to_string(), claim.id().to_hex());
            let holds = self.net.request(move |service, now| service.is_holder(&lock, &id, now)).await?;
            Ok(if holds { Proclaimed::Written } else { Proclaimed::Lost })
        })
    }

    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>> {
        Box::pin(async move {
            let id = claim.id().to_hex();
            let was_there = self.net.request(move |service, now| service.leave(&id, now)).await?;
            Ok(if was_there { Left::Removed } else { Left::WasGone })
        })
    }

    fn close<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>> {
        Box::pin(async move {
            let session = lease.id().to_hex();
            self.net.request(move |service, _| service.close(&session)).await
        })
    }
}

impl SimDriver {
    fn fails_once(&self, failed_before: bool) -> bool {
        !failed_before && self.net.dice.chance(self.net.state().weather.single_renewal)
    }
}

impl Operator for SimDriver {
    fn inspect<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<Status, Fail>> {
        Box::pin(async move {
            let name = lock.to_string();
            let token = self.net.request(move |service, now| service.holder(&name, now)).await?;
            let holder = token.and_then(Token::new).map(|token| Holder {
                token: Some(token),
                owner: None,
                expires_in: None,
            });
            Ok(Status { lock: lock.clone(), holder, waiters: Vec::new() })
        })
    }

    fn list<'a>(&'a self, _prefix: &'a str) -> Fut<'a, Result<Vec<Status>, Fail>> {
        Box::pin(async { Err(Fail::Unsupported("the simulation lists nothing".into())) })
    }

    fn force_unlock<'a>(&'a self, _lock: &'a LockName) -> Fut<'a, Result<ForcedOut, Fail>> {
        Box::pin(async { Err(Fail::Unsupported("the simulation forces out at the server".into())) })
    }

    fn observe(&self, _lock: &LockName, _hint: Arc<Notify>) -> Option<Box<dyn Any + Send>> {
        None
    }
}
