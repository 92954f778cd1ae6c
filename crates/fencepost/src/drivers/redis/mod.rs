//! Redis: one primary decides.
//!
//! The lock is a plain string key set with a time to live, as other clients do it, so that they exclude each other on one
//! key. Those who wait stand in a queue beside it, and the script that frees the lock tells the first of them. The
//! token is minted by the script that sets the key: above the last one, above the caller's floor, and not below the
//! server's microseconds, so that it goes on rising when the server has lost the last one.
//!
//! Sources: "Distributed Locks with Redis" in the Redis documentation (SET NX PX, release by comparison); the rest is
//! worked out in docs/redis.md.

mod enter;
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
use record::is_of;
use routes::Routes;
use scripts::{LEAVE, PROCLAIM, RENEW, WAKE};

use crate::{
    claim::Claim,
    connect::Url,
    driver::{About, Driver, Entered, Fail, Intent, LeaseKind, Left, Level, Proclaimed, Renewed, Report},
    error::Error,
    host::{Fut, Host},
    lease::Lease,
    owner::Owner,
    redis::{Client, Command, Options, Reply, Transport, one},
    token::Lineage,
};

/// The shortest time for which a claim that was given up is remembered.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// How many renewals go into one batch of commands.
const BATCH: usize = 256;

/// How many scripts that each wake up to sixteen may follow one release.
const WAKES: usize = 10_000;

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
    /// Over how many connections before nothing can be told to us, if that is so: over the next one it may be otherwise.
    deaf_at: AtomicU64,
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
            deaf_at: AtomicU64::new(u64::MAX),
            lineage_key: options.lineage.is_none().then_some(key),
            restored: AtomicU64::new(0),
        })
    }

    fn keys(&self, claim: &Claim) -> Result<Keys, Fail> {
        Keys::new(&self.prefix, claim.lock())
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

    async fn tell(&self, claim: &Claim, owner: &Owner) -> Result<Proclaimed, Fail> {
        let keys = self.keys(claim)?;
        let owner = serde_json::to_string(owner).map_err(|e| Fail::Internal(e.to_string()))?;
        let command = PROCLAIM.command(&[keys.lock()], &["proclaim", &claim.id().to_hex(), &owner]);
        let caching = Command::new("CLIENT").arg("CACHING").arg("YES");
        let before = Some(&caching).filter(|_| self.transport.tracks());
        match one(PROCLAIM.run_all(&*self.transport, vec![command], before).await?)? {
            Reply::Int(1) => Ok(Proclaimed::Written),
            Reply::Int(0) => Ok(Proclaimed::Lost),
            reply if reply.is_error("WRONGTYPE") => Ok(Proclaimed::Lost),
            reply => Err(unexpected(&reply.ok()?)),
        }
    }

    async fn ask_to_leave(&self, claim: &Claim) -> Result<Left, Fail> {
        let keys = self.keys(claim)?;
        let id = claim.id().to_hex();
        let args = ["leave", &id, &self.locker];
        let leave = if claim.unsure.load(Ordering::Relaxed) {
            let (left, stands) = (keys.left(claim.id()), millis(max(TOMBSTONE, term(claim.lease()))));
            LEAVE.command(&keys.with(&left), &[&args[..], &[&stands]].concat())
        } else {
            LEAVE.command(&keys.common(), &args)
        };
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
            .filter_map(|claim| Some((self.keys(claim).ok()?.lock().to_owned(), claim.clone())))
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
                    if !is_of(&found, claim.id()) {
                        claim.poke();
                    }
                }
            }
        }));
    }

    fn proclaim<'a>(&'a self, claim: &'a Arc<Claim>, owner: &'a Owner) -> Fut<'a, Result<Proclaimed, Fail>> {
        Box::pin(self.tell(claim, owner))
    }

    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>> {
        Box::pin(self.ask_to_leave(claim))
    }

    fn close<'a>(&'a self, _lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>> {
        Box::pin(async { Ok(()) })
    }
}
