//! ZooKeeper: the ensemble decides, by Zab.
//!
//! A claim is an ephemeral sequential node below the lock's container node, the lowest one holds the lock, and the token
//! is the number of the change that made the holder's node (`czxid`), which the ensemble never gives twice. The number
//! behind the node's name orders the line, and is no token: it begins again when the container was collected.
//!
//! Rules, each with a test (docs/zookeeper.md names them):
//! 1. To enter costs one round trip: what makes the node, and its parents where they may be missing, goes out with what
//!    looks at the line.
//! 2. Whoever waits watches the one before it, and itself. Before it is granted it has seen its own node again: the same
//!    session's, with the same number.
//! 3. A reply that was lost is looked for by the claim's id, and only on the same session.
//! 4. A session that is over is over: nothing of it is adopted.
//! 5. A session is renewed by a request that a quorum must answer, see [`Zk::keep`].
//!
//! Sources: "ZooKeeper Recipes and Solutions", Locks; the faults that Curator found out in it (CURATOR-45 and later).

mod enter;
mod names;
mod operate;
mod routes;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use names::stem;
use routes::{Routes, What};

use crate::{
    claim::Claim,
    connect::Url,
    driver::{About, Driver, Entered, Fail, Intent, LeaseKind, Left, Level, Proclaimed, Renewed, Report},
    error::Error,
    host::{Fut, Host},
    lease::Lease,
    owner::Owner,
    token::Lineage,
    zookeeper::{ANY_VERSION, Code, Options, PATHS, Request, Session, Visitor},
};

/// How many locks are remembered to have a container. One that was forgotten costs a request more, no round trip.
const CONTAINERS: usize = 10_000;

/// The longest session, as the protocol counts it.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// A driver for the ensemble that `url` names.
pub(crate) async fn connect(url: Url, host: Arc<dyn Host>) -> Result<Arc<dyn Driver>, Error> {
    let options = Arc::new(Options::from_url(url)?);
    Ok(Arc::new(Zk::connect(options, host).await?))
}

struct Zk {
    options: Arc<Options>,
    host: Arc<dyn Host>,
    about: About,
    /// The session of those who ask without a lease: it comes and goes as it is needed.
    operator: Visitor,
    /// Locks that have their container, as far as we know.
    containers: Mutex<HashSet<String>>,
    /// The latest change of the ensemble that a grant or a new session has shown.
    highest: AtomicI64,
}

/// A lease's place here.
#[derive(Default)]
struct Room {
    parts: Option<(Arc<Session>, Arc<Routes>)>,
    /// Whose node the next renewal looks at.
    turn: usize,
}

/// A claim's place here.
#[derive(Default)]
struct Seat {
    /// A node was asked for, and whether it was made is not known.
    is_unsure: bool,
    node: Option<Node>,
    /// The node before ours, which is watched.
    ahead: Option<Ahead>,
}

/// A claim's node.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    czxid: i64,
}

#[derive(Clone, Debug)]
struct Ahead {
    name: String,
    /// Nobody stands before that one.
    is_holder: bool,
}

impl Zk {
    async fn connect(options: Arc<Options>, host: Arc<dyn Host>) -> Result<Self, Fail> {
        let operator = Visitor::new(options.clone(), host.clone());
        let lineage = operator.prepare().await?;
        Ok(Self {
            about: about(&options, lineage),
            options,
            host,
            operator,
            containers: Mutex::default(),
            highest: AtomicI64::new(0),
        })
    }

    async fn open_session(&self, lease: &Arc<Lease>) -> Result<Duration, Fail> {
        let routes = Routes::new(lease, self.watch_again(lease));
        let user: Weak<Routes> = Arc::downgrade(&routes);
        let session =
            Session::open(self.options.clone(), self.host.clone(), session_of(lease.ttl()), user).await?;
        let highest = self.highest.load(Ordering::Relaxed);
        let seen = operate::same_ensemble(&session, &self.options, &self.about.lineage, highest).await?;
        self.highest.fetch_max(seen, Ordering::Relaxed);
        let granted = session.identity().1;
        lease.seat(|room: &mut Room| room.parts = Some((Arc::new(session), routes)));
        Ok(term_of(granted))
    }

    /// Sets the watch of a holder's node again, apart from whoever tells that it was used up.
    fn watch_again(&self, lease: &Arc<Lease>) -> Box<dyn Fn(String) + Send + Sync> {
        let (lease, host) = (Arc::downgrade(lease), self.host.clone());
        Box::new(move |path| {
            let Some((session, _)) = lease.upgrade().and_then(|lease| room(&lease).ok()) else { return };
            host.spawn(Box::pin(async move { watch(&session, vec![path]).await }));
        })
    }

    /// Renews a lease: asks for something that a quorum has to agree on, and that needs no change.
    ///
    /// A read would be answered by the one server that we are connected to. That one may be cut off from its leader and
    /// not know it yet, for as many ticks as `syncLimit` says, while the leader hears nothing of our session and ends
    /// it: two holders, and both would be sure. A `check` within a `multi` is agreed on like a write. It also finds out
    /// whether the node of one of the claims is still there; the others are watched.
    async fn keep(&self, lease: &Lease, claims: &[Arc<Claim>], report: Report<'_>) -> Result<(), Fail> {
        let (session, _) = room(lease)?;
        let turn = lease.seat(|room: &mut Room| {
            room.turn = room.turn.wrapping_add(1);
            room.turn % claims.len().max(1)
        });
        let (granted, sent) = (session.identity().1, self.host.now());
        // The last quarter of the session covers one renewal that the leader has not heard of, if it came in time.
        session.renew_connection_after(granted - term_of(granted) + term_of(granted) / 100);
        let node = claims.get(turn).and_then(|claim| self.node_path(claim));
        let path = node.clone().unwrap_or_else(|| self.options.top_or_slash());
        let check = Request::Check { path, version: ANY_VERSION };
        let reply = one(session.send(&[Request::Multi(vec![check])]).await?)?;
        match reply.steps(1) {
            Err((_, Code::NO_NODE)) if node.is_some() => report(turn, Renewed::Lost),
            // The session was alive, whatever has become of the node.
            Ok(()) | Err((_, Code::NO_NODE | Code::NO_AUTH)) => {}
            Err((_, code)) => return Err(code.fail(&self.options.top_or_slash())),
        }
        session.proved(sent);
        Ok(())
    }

    /// Writes the holder's record anew. Its node is its own, and whoever lost the lock has none.
    async fn tell(&self, claim: &Claim, owner: &Owner) -> Result<Proclaimed, Fail> {
        let Ok((session, _)) = room(claim.lease()) else { return Ok(Proclaimed::Lost) };
        let Some(path) = self.node_path(claim) else { return Ok(Proclaimed::Lost) };
        let data = serde_json::to_vec(owner).map_err(|e| Fail::Internal(e.to_string()))?;
        let write = Request::SetData { path: path.clone(), data, version: ANY_VERSION };
        match one(session.send(&[write]).await?)?.done() {
            Ok(()) => Ok(Proclaimed::Written),
            Err(Code::NO_NODE) => Ok(Proclaimed::Lost),
            // Without the node's name: it has the claim's id in it.
            Err(code) => Err(code.fail(&names::path(&self.options, claim.lock())?)),
        }
    }

    /// The path of a claim's node, if it has one.
    fn node_path(&self, claim: &Claim) -> Option<String> {
        let node = claim.seat(|seat: &mut Seat| seat.node.clone())?;
        Some(format!("{}/{}", names::path(&self.options, claim.lock()).ok()?, node.name))
    }

    async fn ask_to_leave(&self, claim: &Arc<Claim>) -> Result<Left, Fail> {
        // A session that is over has taken its nodes along, or is about to.
        let Ok((session, routes)) = room(claim.lease()) else { return Ok(Left::WasGone) };
        let lock = names::path(&self.options, claim.lock())?;
        let (node, ahead, is_unsure) =
            claim.seat(|seat: &mut Seat| (seat.node.clone(), seat.ahead.take(), seat.is_unsure));
        for name in node.iter().map(|node| &node.name).chain(ahead.iter().map(|ahead| &ahead.name)) {
            routes.remove(&format!("{lock}/{name}"), claim);
        }
        let left = match (node, is_unsure) {
            (Some(node), false) => remove(&session, &lock, &[node.name]).await,
            (_, true) => remove_all(&session, &lock, &stem(claim.id())).await,
            (None, false) => return Ok(Left::WasGone),
        };
        match left {
            Ok(left) => {
                claim.seat(|seat: &mut Seat| *seat = Seat::default());
                Ok(left)
            }
            Err(Fail::NoLease) => Ok(Left::WasGone),
            Err(fail) => Err(fail),
        }
    }

    fn has_container(&self, lock: &str) -> bool {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).contains(lock)
    }

    fn note_container(&self, lock: &str, is_there: bool) {
        let mut containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_there {
            containers.remove(lock);
        } else if !containers.contains(lock) {
            if containers.len() >= CONTAINERS {
                containers.clear();
            }
            containers.insert(lock.to_owned());
        }
    }
}

/// The session that a lease is, and who is told there.
fn room(lease: &Lease) -> Result<(Arc<Session>, Arc<Routes>), Fail> {
    let room = lease.seat(|room: &mut Room| room.parts.clone());
    room.filter(|(session, _)| !session.is_over()).ok_or(Fail::NoLease)
}

/// Watches these nodes; those that are gone are told of at once.
async fn watch(session: &Session, paths: Vec<String>) {
    for paths in paths.chunks(PATHS) {
        let watch = Request::SetWatches { zxid: session.seen(), paths: paths.to_vec() };
        // After a broken connection all routes are watched again.
        if session.send(&[watch]).await.is_err() {
            return;
        }
    }
}

/// Deletes these children of a lock's node.
async fn remove(session: &Session, lock: &str, names: &[String]) -> Result<Left, Fail> {
    let delete = |name| Request::Delete { path: format!("{lock}/{name}") };
    let mut left = Left::WasGone;
    for reply in session.send(&names.iter().map(delete).collect::<Vec<_>>()).await? {
        match reply.done() {
            Ok(()) => left = Left::Removed,
            Err(Code::NO_NODE) => {}
            Err(code) => return Err(code.fail(lock)),
        }
    }
    Ok(left)
}

/// Deletes whatever a claim has in a line, known or not. A quorum first answers: what was sent on an earlier
/// connection may have been carried out by another one.
async fn remove_all(session: &Session, lock: &str, stem: &str) -> Result<Left, Fail> {
    let ours: Vec<String> = enter::proven_children(session, lock)
        .await?
        .into_iter()
        .filter(|name| name.starts_with(stem))
        .collect();
    if ours.is_empty() { Ok(Left::WasGone) } else { remove(session, lock, &ours).await }
}

fn one<T>(replies: Vec<T>) -> Result<T, Fail> {
    replies.into_iter().next().ok_or_else(|| Fail::Internal("zookeeper answered nothing".into()))
}

/// The session to ask for, so that the lease has the length that was asked for.
fn session_of(ttl: Duration) -> Duration {
    (ttl + ttl / 3 + Duration::from_millis(1)).min(LONGEST)
}

/// How much of a session may be relied on: three quarters.
///
/// A server expires a session no earlier than its length after the *leader* last heard of it. A follower tells the
/// leader of its clients with the leader's next ping, half a tick later; and no session is shorter than two ticks,
/// unless `minSessionTimeout` says so. So the last quarter is not ours.
fn term_of(session: Duration) -> Duration {
    session / 4 * 3
}

fn about(options: &Options, lineage: Lineage) -> About {
    About {
        scheme: "zk",
        backend: options.name(),
        lineage,
        lease: LeaseKind::Shared,
        ttl: Duration::from_millis(100)..=LONGEST / 4 * 3,
        decides: "a ZooKeeper ensemble, by consensus (Zab)",
        fifo: true,
        level: Some(Level::Consensus),
        caveat: "a holder that is paused believes too long, as with every lock: only a gate rejects what it then does",
        // What was sent before on the same session is carried out before it or not at all.
        leave_is_final: true,
        notice: None,
    }
}

impl Driver for Zk {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn open<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<Duration, Fail>> {
        Box::pin(self.open_session(lease))
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
        Box::pin(self.keep(lease, claims, report))
    }

    fn attend(&self, claims: &[Arc<Claim>]) {
        let mut by_lease: Vec<(Arc<Session>, Vec<String>)> = Vec::new();
        for claim in claims {
            let (Ok((session, routes)), Some(path)) = (room(claim.lease()), self.node_path(claim)) else {
                continue;
            };
            // Also if somebody else is told of it already: perhaps their request has not armed a watch.
            routes.add(&path, claim, What::Own);
            match by_lease.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &session)) {
                Some((_, paths)) => paths.push(path),
                None => by_lease.push((session, vec![path])),
            }
        }
        for (session, paths) in by_lease {
            self.host.spawn(Box::pin(async move { watch(&session, paths).await }));
        }
    }

    fn proclaim<'a>(&'a self, claim: &'a Arc<Claim>, owner: &'a Owner) -> Fut<'a, Result<Proclaimed, Fail>> {
        Box::pin(self.tell(claim, owner))
    }

    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>> {
        Box::pin(self.ask_to_leave(claim))
    }

    fn close<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>> {
        Box::pin(async move {
            match lease.seat(|room: &mut Room| room.parts.take()) {
                Some((session, _)) => session.close().await,
                None => Ok(()),
            }
        })
    }
}
