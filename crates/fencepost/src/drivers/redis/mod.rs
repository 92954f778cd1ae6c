//! Redis: one primary decides.
//!
//! The lock is a plain string key set with a time to live, as other clients do it, so that they exclude each other on one
//! key. Those who wait stand in a queue beside it, and the script that frees the lock tells the first of them. The
//! token is minted by the script that sets the key: above the last one, above the caller's floor, and not below the
//! server's microseconds, so that it goes on rising when the server has lost the last one.
//!
//! Sources: "Distributed Locks with Redis" in the Redis documentation (SET NX PX, release by comparison); the rest is
//! worked out in docs/redis.md.

mod keys;
mod operate;
mod record;
mod routes;
mod scripts;

use std::{
    cmp::{max, min},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use keys::Keys;
use record::{Held, flag_of};
use routes::{HEARTBEAT, OFFER, Routes, Seat, first_looks_again};
use scripts::{ENTER, LEAVE, RENEW, WAKE};

use crate::{
    claim::Claim,
    connect::Url,
    driver::{About, Driver, Entered, Fail, Intent, LeaseKind, Left, Level, Renewed, Report},
    error::Error,
    host::{Fut, Host},
    lease::Lease,
    redis::{Client, Command, Options, Reply, Transport, one},
    token::{Lineage, Token},
};

/// How often those ask who cannot be told.
const POLL: Duration = Duration::from_millis(50);

/// As [`HEARTBEAT`], where a dead one cannot be found out by telling it something.
const POLLERS_HEARTBEAT: Duration = Duration::from_secs(1);

/// The shortest time for which a claim that was given up is remembered.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// How many renewals go into one batch of commands.
const BATCH: usize = 256;

/// How many scripts that each wake up to sixteen may follow one release.
const WAKES: usize = 10_000;

/// Lua's numbers are exact up to here.
const MAX_FLOOR: u64 = 1 << 52;

/// A driver for the server that `url` names.
pub(crate) async fn connect(url: Url, host: Arc<dyn Host>) -> Result<Arc<dyn Driver>, Error> {
    let options = Options::from_url(url)?;
    let transport = Arc::new(Client::new(options.clone(), host.clone()));
    Ok(Arc::new(Redis::connect(transport, options, host).await?))
}

pub(crate) struct Redis {
    transport: Arc<dyn Transport>,
    host: Arc<dyn Host>,
    about: About,
    prefix: String,
    /// The random name of this locker: where it is told, and in whose name it waits.
    locker: String,
    channel: String,
    routes: Arc<Routes>,
    /// We may not publish: whoever waits for a lock that we hold has to ask.
    is_mute: AtomicBool,
    /// Nothing can be told to us.
    is_deaf: AtomicBool,
    /// The key that holds the lineage, unless the URL names one.
    lineage_key: Option<String>,
    /// When the lineage was last written again, in nanoseconds.
    restored: AtomicU64,
}

impl Redis {
    pub(crate) async fn connect(
        transport: Arc<dyn Transport>,
        options: Options,
        host: Arc<dyn Host>,
    ) -> Result<Self, Fail> {
        let locker = format!("{:016x}", host.random());
        let channel = keys::channel(&locker);
        let key = keys::lineage(&options.prefix);
        let fresh = format!("redis-{:016x}{:016x}", host.random(), host.random());
        let hello = vec![
            Command::new("INFO").arg("cluster"),
            Command::new("PUBLISH").arg(&channel).arg(""),
            Command::new("SET").arg(&key).arg(options.lineage.as_ref().unwrap_or(&fresh)).arg("NX"),
            Command::new("GET").arg(&key),
        ];
        let replies = transport.send(hello).await?;
        let [info, published, set, found] = replies.as_slice() else {
            return Err(Fail::Internal("redis answered the first commands with too few replies".into()));
        };
        if info.text().is_some_and(|info| info.contains("cluster_enabled:1")) || set.is_error("MOVED") {
            return Err(Fail::Invalid(format!(
                "{} is a node of a Redis Cluster, which redis:// does not speak; give a server that is none",
                transport.name()
            )));
        }
        if set.is_error("READONLY") {
            return Err(Fail::Invalid(format!(
                "{} is a read-only replica; give the primary's address",
                transport.name()
            )));
        }
        let found = found.clone().ok()?;
        if found == Reply::Nil {
            // Else it matters to nobody: a server whose memory is full can still be looked at, and freed of a lock.
            set.clone().ok()?;
        }
        let lineage = match (&options.lineage, found.text()) {
            (Some(named), _) => named.clone(),
            (None, Some(found)) => found.to_owned(),
            (None, None) => fresh,
        };
        let is_mute = matches!(published, Reply::Error { .. });
        if is_mute {
            tracing::warn!(server = %transport.name(), "no right to publish on fencepost:wake:*: waiting for a lock falls back to polling");
        }
        // A server that has lost the key gets it again from whoever knows it.
        transport.greet(vec![Command::new("SET").arg(&key).arg(&lineage).arg("NX")]);
        let routes = Arc::new(Routes::default());
        transport.listen(routes.clone());
        Ok(Self {
            about: about(&*transport, Lineage::new(lineage), is_mute),
            transport,
            host,
            prefix: options.prefix,
            locker,
            channel,
            routes,
            is_mute: AtomicBool::new(is_mute),
            is_deaf: AtomicBool::new(false),
            lineage_key: options.lineage.is_none().then_some(key),
            restored: AtomicU64::new(0),
        })
    }

    fn keys(&self, claim: &Claim) -> Result<Keys, Fail> {
        Keys::new(&self.prefix, claim.lock())
    }

    async fn ask_to_enter(&self, claim: &Arc<Claim>, intent: Intent) -> Result<Entered, Fail> {
        let keys = self.keys(claim)?;
        if intent == Intent::Wait {
            if let Some(recheck) = self.routes.quiet(keys.lock(), claim, self.heartbeat() / 2) {
                return Ok(Entered::Queued { recheck, holder: None });
            }
            // Before the request: what is pushed may be here before the reply is looked at.
            self.routes.add(keys.lock(), claim);
        }
        let enter = self.enter_command(&keys, claim, intent)?;
        let news = news_of(claim);
        let reply = ENTER.run(&*self.transport, enter.clone()).await?;
        if reply.list().first().and_then(Reply::text) != Some("queued") {
            return self.read(&reply);
        }
        self.stand(&keys, claim, enter, reply, news).await
    }

    fn enter_command(&self, keys: &Keys, claim: &Claim, intent: Intent) -> Result<Command, Fail> {
        let floor = claim.floor().map_or(0, Token::get);
        if floor > MAX_FLOOR {
            let text =
                format!("redis cannot mint a token above floor={floor}; the highest floor is {MAX_FLOOR}");
            return Err(Fail::Invalid(text));
        }
        let owner = serde_json::to_string(claim.owner()).map_err(|e| Fail::Internal(e.to_string()))?;
        let (id, left) = (claim.id().to_hex(), keys.left(claim.id()));
        let intent = match intent {
            Intent::Try => "try",
            Intent::Wait => "wait",
        };
        let flag = flag_of(!self.is_mute.load(Ordering::Relaxed));
        let (ttl, beat) = (millis(term(claim.lease())), millis(self.heartbeat() * 3));
        let ear = if self.is_deaf.load(Ordering::Relaxed) { "polls" } else { "hears" };
        let args = ["enter", &id, &self.locker, &ttl, intent, &floor.to_string(), flag, &owner, &beat, ear];
        Ok(ENTER.command(&keys.with(&left), &args))
    }

    /// Reads an answer other than `queued`.
    fn read(&self, reply: &Reply) -> Result<Entered, Fail> {
        match reply.list() {
            [word, token, rest @ ..] if word.text() == Some("granted") => {
                if let [is_blank, is_mute] = rest {
                    self.heed(is_mute);
                    if is_blank.int() == Some(1) {
                        self.restore_lineage();
                    }
                }
                let token = token.text().and_then(|text| text.parse().ok());
                token.map(|token| Entered::Granted { token }).ok_or_else(|| unexpected(reply))
            }
            [word, left, held, is_mute] if word.text() == Some("busy") => {
                self.heed(is_mute);
                let holder = Held::read(held, left).map(|held| held.holder);
                Ok(Entered::Busy { retry: POLL, holder })
            }
            [word] if word.text() == Some("gone") => Ok(Entered::Gone),
            _ => Err(unexpected(reply)),
        }
    }

    /// Settles a claim in line: lets it be told, and finds when it must ask again.
    async fn stand(
        &self,
        keys: &Keys,
        claim: &Arc<Claim>,
        enter: Command,
        mut reply: Reply,
        mut news: u64,
    ) -> Result<Entered, Fail> {
        if self.listens().await? {
            news = news_of(claim);
            // What was published before may be missed.
            reply = ENTER.run(&*self.transport, enter.clone()).await?;
        }
        let tells = |reply: &Reply| match reply.list() {
            [_, left, held, ..] => {
                Held::read(held, left).is_none_or(|held| held.tells && held.holder.expires_in.is_some())
            }
            _ => true,
        };
        let mut is_tracked = false;
        if self.is_first(claim, &reply) && !tells(&reply) && self.transport.tracks() {
            // Nobody will say when this lock is given back; but the server can tell of the key itself.
            news = news_of(claim);
            let caching = Command::new("CLIENT").arg("CACHING").arg("YES");
            reply = one(ENTER.run_all(&*self.transport, vec![enter], Some(&caching)).await?)?.ok()?;
            is_tracked = true;
        }
        let [word, left, held, is_mute, first, is_new, is_late] = reply.list() else {
            return self.read(&reply);
        };
        if word.text() != Some("queued") {
            return Err(unexpected(&reply));
        }
        self.heed(is_mute);
        let now = claim.now();
        let held = Held::read(held, left);
        let is_first = self.is_first(claim, &reply);
        let was_queued = claim.seat(|seat: &mut Seat| std::mem::replace(&mut seat.is_queued, true));
        self.routes.beat(keys.lock(), now);
        if (is_new.int() == Some(1) && was_queued) || is_late.int() == Some(1) {
            self.routes.stir_line(keys.lock(), now);
        } else if !is_first
            && let Some(other) = first.text().and_then(|first| first.strip_prefix(&self.locker))
        {
            self.routes.is_first(other);
        }
        let deaf = self.is_deaf.load(Ordering::Relaxed);
        let recheck = match &held {
            // Free, and offered to another, or the scripts had too many dead to look at.
            None if left.int() == Some(1) => Duration::from_millis(1),
            None if deaf => self.jitter(POLL),
            None => OFFER,
            Some(_) if !is_first && deaf => self.jitter(POLLERS_HEARTBEAT / 2),
            Some(_) if !is_first => self.jitter(HEARTBEAT / 2),
            Some(_) if !deaf && (is_tracked || tells(&reply)) => {
                first_looks_again(held.as_ref().and_then(|held| held.holder.expires_in).unwrap_or(HEARTBEAT))
            }
            Some(_) => self.jitter(POLL),
        };
        claim.seat(|seat: &mut Seat| {
            // What was pushed since the request was sent may be later than this answer, and has poked the claim.
            if seat.news == news {
                seat.is_first = is_first;
                seat.leans = !is_first && held.is_some();
                seat.quiet_until = Some(now + recheck);
            }
        });
        Ok(Entered::Queued { recheck, holder: held.map(|held| held.holder) })
    }

    fn is_first(&self, claim: &Claim, reply: &Reply) -> bool {
        let first = reply.list().get(4).and_then(Reply::text).unwrap_or_default();
        first.strip_prefix(&self.locker).is_some_and(|id| id == claim.id().to_hex())
    }

    /// Makes sure that this locker is told; true if it was not until now.
    async fn listens(&self) -> Result<bool, Fail> {
        if self.is_deaf.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.transport.subscribe(&self.channel).await {
            Err(Fail::Unsupported(why) | Fail::Denied(why)) => {
                if !self.is_deaf.swap(true, Ordering::Relaxed) {
                    tracing::warn!(server = %self.transport.name(), %why, "nothing can be told to this locker: waiting for a lock falls back to polling");
                }
                Ok(true)
            }
            subscribed => subscribed,
        }
    }

    fn heartbeat(&self) -> Duration {
        if self.is_deaf.load(Ordering::Relaxed) { POLLERS_HEARTBEAT } else { HEARTBEAT }
    }

    /// Between `base` and twice that.
    fn jitter(&self, base: Duration) -> Duration {
        base + base * (self.host.random() % 1000) as u32 / 1000
    }

    /// Notes that a script was not allowed to publish.
    fn heed(&self, is_mute: &Reply) {
        if is_mute.int() == Some(1) && !self.is_mute.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = %self.transport.name(), "no right to publish on fencepost:wake:*: waiting for a lock falls back to polling");
        }
    }

    /// The server knew no token of this lock: it may have lost everything, the lineage included. Those who know it write
    /// it again, so that a cache that was flushed does not become a stranger.
    fn restore_lineage(&self) {
        let Some(key) = &self.lineage_key else { return };
        // A locker that takes many new names in a row finds no token each time.
        let (now, last) = (self.host.now().as_nanos(), self.restored.load(Ordering::Relaxed));
        if last != 0 && now.saturating_sub(last) < 1_000_000_000 {
            return;
        }
        self.restored.store(now, Ordering::Relaxed);
        let set = Command::new("SET").arg(key).arg(self.about.lineage.as_str()).arg("NX");
        let transport = Arc::downgrade(&self.transport);
        self.host.spawn(Box::pin(async move {
            if let Some(transport) = transport.upgrade() {
                let _ = transport.send(vec![set]).await;
            }
        }));
    }

    async fn renew_all(&self, lease: &Lease, claims: &[Arc<Claim>], report: Report<'_>) -> Result<(), Fail> {
        let ttl = term(lease);
        let caching = Command::new("CLIENT").arg("CACHING").arg("YES");
        for (batch, claims) in claims.chunks(BATCH).enumerate() {
            let commands = claims.iter().map(|claim| {
                let keys = self.keys(claim)?;
                Ok(RENEW.command(&[keys.lock()], &["renew", &claim.id().to_hex(), &millis(ttl)]))
            });
            let commands = commands.collect::<Result<Vec<_>, Fail>>()?;
            let before = Some(&caching).filter(|_| self.transport.tracks());
            for (index, reply) in
                RENEW.run_all(&*self.transport, commands, before).await?.into_iter().enumerate()
            {
                report(batch * BATCH + index, fate(reply, ttl));
            }
        }
        Ok(())
    }

    async fn ask_to_leave(&self, claim: &Claim) -> Result<Left, Fail> {
        let keys = self.keys(claim)?;
        let (id, left) = (claim.id().to_hex(), keys.left(claim.id()));
        let is_unsure = if claim.unsure.load(Ordering::Relaxed) { "1" } else { "0" };
        let tombstone = millis(max(TOMBSTONE, term(claim.lease())));
        let leave = LEAVE.command(&keys.with(&left), &["leave", &id, &self.locker, &tombstone, is_unsure]);
        let reply = LEAVE.run(&*self.transport, leave).await?;
        self.routes.remove(keys.lock(), claim.id());
        let [found, more, is_mute] = reply.list() else { return Err(unexpected(&reply)) };
        self.heed(is_mute);
        self.wake_on(&keys, more);
        Ok(if found.int() == Some(1) { Left::Removed } else { Left::WasGone })
    }

    /// Goes on waking where a script has met only dead ones; a failure leaves it to those who wait.
    /// Apart from the request that has freed the lock, which is done.
    fn wake_on(&self, keys: &Keys, more: &Reply) {
        if more.int() != Some(1) {
            return;
        }
        let wake = WAKE.command(&keys.common(), &["wake"]);
        let transport = self.transport.clone();
        self.host.spawn(Box::pin(async move {
            for _ in 0..WAKES {
                let reply = WAKE.run(&*transport, wake.clone()).await;
                if !matches!(reply, Ok(Reply::List(items)) if items.get(1).and_then(Reply::int) == Some(1)) {
                    return;
                }
            }
        }));
    }
}

/// What the claim was told so far. From here on only the answer to the request that follows says what need not be asked.
fn news_of(claim: &Claim) -> u64 {
    claim.seat(|seat: &mut Seat| {
        seat.leans = false;
        seat.quiet_until = None;
        seat.news
    })
}

/// One claim's fate in a renewal.
fn fate(reply: Reply, ttl: Duration) -> Renewed {
    match reply {
        Reply::Int(1) => Renewed::Extended(ttl),
        Reply::Int(0) => Renewed::Lost,
        // The key is of another kind now: somebody else's.
        reply if reply.is_error("WRONGTYPE") => Renewed::Lost,
        _ => Renewed::Unknown,
    }
}

fn about(transport: &dyn Transport, lineage: Lineage, is_mute: bool) -> About {
    let notice = "no right to publish on fencepost:wake:*, so waiting falls back to polling; grant the channel to the user";
    About {
        scheme: "redis",
        backend: transport.name(),
        lineage,
        lease: LeaseKind::PerClaim,
        ttl: Duration::from_millis(100)..=Duration::from_secs(30 * 24 * 60 * 60),
        decides: "one Redis primary",
        fifo: true,
        level: Some(Level::Tokens),
        caveat: "a failover to a replica that lacks the lock, or a step of the server's clock, can make two holders; tokens go on rising unless the new primary's clock is behind the last token",
        leave_is_final: true,
        notice: is_mute.then_some(notice),
    }
}

/// The lease's length; known, since claims are made on open leases only.
fn term(lease: &Lease) -> Duration {
    lease.term().unwrap_or(lease.ttl())
}

fn millis(time: Duration) -> String {
    min(time.as_millis(), u128::from(u32::MAX) * 1000).to_string()
}

fn unexpected(reply: &Reply) -> Fail {
    Fail::Internal(format!("redis answered a script with something unexpected: {reply:?}"))
}

impl Driver for Redis {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn open<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<Duration, Fail>> {
        // Whole milliseconds, as the server counts them.
        Box::pin(async { Ok(Duration::from_millis(lease.ttl().as_millis() as u64)) })
    }

    fn enter<'a>(&'a self, claim: &'a Arc<Claim>, intent: Intent) -> Fut<'a, Result<Entered, Fail>> {
        Box::pin(self.ask_to_enter(claim, intent))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Arc<Lease>,
        claims: &'a [Arc<Claim>],
        report: Report<'a>,
    ) -> Fut<'a, Result<(), Fail>> {
        Box::pin(self.renew_all(lease, claims, report))
    }

    fn attend(&self, claims: &[Arc<Claim>]) {
        if !self.transport.tracks() {
            return;
        }
        let attended: Vec<_> = claims
            .iter()
            .filter_map(|claim| Some((self.keys(claim).ok()?.all[0].clone(), claim.clone())))
            .collect();
        for (key, claim) in &attended {
            self.routes.add(key, claim);
        }
        let transport = self.transport.clone();
        self.host.spawn(Box::pin(async move {
            for batch in attended.chunks(BATCH) {
                let commands = batch.iter().flat_map(|(key, _)| {
                    [Command::new("CLIENT").arg("CACHING").arg("YES"), Command::new("GET").arg(key)]
                });
                let Ok(replies) = transport.send(commands.collect()).await else { return };
                for ((_, claim), found) in batch.iter().zip(replies.into_iter().skip(1).step_by(2)) {
                    let ours = format!("fp1 {} ", claim.id().to_hex());
                    if !found.text().is_some_and(|found| found.starts_with(&ours)) {
                        claim.poke();
                    }
                }
            }
        }));
    }

    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>> {
        Box::pin(self.ask_to_leave(claim))
    }

    fn close<'a>(&'a self, _lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>> {
        Box::pin(async { Ok(()) })
    }
}
