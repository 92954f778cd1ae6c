//! etcd: Raft decides.
//!
//! A claim is a key below the lock's name, on a lease that all claims of one TTL share. The key that was made first holds the lock, and
//! the revision at which it was made is its token. Those who wait watch the key before theirs, and their own.
//!
//! Invariants:
//! 1. Nobody is granted after a wait without a transaction that finds its key, made when it was made, and none before it.
//! 2. A key is the claim's alone, so a delete that comes late, or twice, hits nobody else's.
//! 3. A renewal is believed only from a leader that was the leader (`etcd/api.rs`).
//! 4. Being told saves time; that somebody was not told costs nothing else.
//!
//! Sources: the lock of etcd's `clientv3/concurrency` and of `etcdctl lock`, with which keys are shared; Jepsen's report on etcd 3.4.3. What is
//! done differently, and why, is in docs/etcd.md.

mod enter;
mod keys;
mod look;
mod operate;
mod proclaim;
mod record;
mod watch;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use enter::{Seat, deleted, rows};
use keys::{Keys, lease_id};
use watch::{Ear, Watches};

use crate::{
    claim::Claim,
    connect::Url,
    driver::{About, Driver, Entered, Fail, Intent, LeaseKind, Left, Level, Proclaimed, Report},
    error::Error,
    etcd::{
        Alive, Api, Client, Header, Options, RequestOp, Transport, TxnRequest, compare, delete,
        first_by_creation, put, range,
    },
    host::{Fut, Host},
    lease::Lease,
    owner::Owner,
    token::Lineage,
};

/// How many keys are tried to find one that may be read.
const WITNESSES: usize = 100;

/// A driver for the cluster that `url` names.
pub(crate) async fn connect(url: Url, host: Arc<dyn Host>) -> Result<Arc<dyn Driver>, Error> {
    let options = Options::from_url(url)?;
    let transport = Arc::new(Client::new(options.clone(), host.clone()));
    Ok(Arc::new(Etcd::connect(transport, options, host).await?))
}

pub(crate) struct Etcd {
    api: Api,
    keys: Keys,
    watches: Arc<Watches>,
    about: About,
    /// We may write keys of our own beside those of locks.
    marks_the_left: bool,
}

/// A lease's state of the protocol.
#[derive(Default)]
struct LeaseSeat {
    /// A key that could be read.
    witness: Option<Vec<u8>>,
}

impl Etcd {
    pub(crate) async fn connect(
        transport: Arc<dyn Transport>,
        options: Options,
        host: Arc<dyn Host>,
    ) -> Result<Self, Fail> {
        let (api, keys) = (Api::new(transport.clone()), Keys::new(&options));
        let fresh = format!("{:016x}{:016x}", host.random(), host.random());
        let source = match source(&api, &keys, fresh).await {
            Ok(source) => Some(source),
            // Then less can be promised, as the notice says; unless it is the login that was refused, or missing.
            Err(Fail::Denied(_)) if options.shows_who() => {
                api.greet().await?;
                None
            }
            Err(fail) => return Err(fail),
        };
        let marks_the_left = source.is_some();
        let about = about(&*transport, api.cluster(), source);
        Ok(Self { api, keys, watches: Watches::new(transport, host), about, marks_the_left })
    }

    /// Notes a key that was read, for the renewals of its lease.
    fn witness(&self, lease: &Lease, key: impl FnOnce() -> Vec<u8>) {
        lease.seat(|seat: &mut LeaseSeat| {
            if seat.witness.is_none() {
                seat.witness = Some(key());
            }
        });
    }

    /// Proves a reply with a key that may be read: rights change while locks are held, and those to one lock's key must
    /// not cost the others.
    async fn confirm(&self, lease: &Lease, claims: &[Arc<Claim>], kept: Header) -> Result<(), Fail> {
        let noted = lease.seat(|seat: &mut LeaseSeat| seat.witness.take());
        let others = [self.keys.lineage()].into_iter().chain(claims.iter().map(|claim| self.keys.of(claim)));
        let mut outcome = Err(Fail::Denied("the user may read no key".into()));
        for key in noted.into_iter().chain(others).take(WITNESSES) {
            outcome = self.api.confirm(key.clone(), kept).await;
            if !matches!(outcome, Err(Fail::Denied(_))) {
                self.witness(lease, || key);
                break;
            }
        }
        outcome
    }

    async fn open_lease(&self, lease: &Lease) -> Result<Duration, Fail> {
        // Up: a lease that is shorter than was asked for would surprise.
        let seconds = lease.ttl().as_secs() + u64::from(lease.ttl().subsec_nanos() > 0);
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let granted = self.api.grant(lease_id(lease), seconds).await?;
        u64::try_from(granted)
            .map(Duration::from_secs)
            .map_err(|_| Fail::Internal(format!("etcd granted a lease of {granted} seconds")))
    }

    async fn renew_all(&self, lease: &Lease, claims: &[Arc<Claim>], report: Report<'_>) -> Result<(), Fail> {
        match self.prolong(lease, claims, report).await {
            // It does not come back, also when the cluster looks sound again.
            Err(_) if self.api.has_fallen() => Err(Fail::NoLease),
            outcome => outcome,
        }
    }

    async fn prolong(&self, lease: &Lease, claims: &[Arc<Claim>], report: Report<'_>) -> Result<(), Fail> {
        let (alive, kept) = self.api.keep_alive(lease_id(lease)).await?;
        self.confirm(lease, claims, kept).await?;
        match alive {
            Alive::Gone => return Err(Fail::NoLease),
            Alive::For(seconds) if Duration::from_secs(seconds.unsigned_abs()) < term(lease) => {
                return Err(Fail::Unknown(format!(
                    "the lease goes on for {seconds} s only, less than was granted"
                )));
            }
            Alive::For(_) => {}
        }
        self.look_after(lease, claims, report).await?;
        self.watches.open();
        Ok(())
    }

    /// Deletes the claim's key, whenever it was made: a late enter may have made it anew. Only the one that was known counts as
    /// removed. If one may still be on its way, a mark stays behind that stops it, for as long as the lease goes on.
    async fn ask_to_leave(&self, claim: &Arc<Claim>) -> Result<Left, Fail> {
        let key = self.keys.of(claim);
        let (created, ahead) = claim.seat(|seat: &mut Seat| (seat.created, seat.ahead.take()));
        for watched in ahead.iter().chain([&key]) {
            self.watches.forget(watched, claim);
        }
        let ask = |operations: Vec<RequestOp>| TxnRequest {
            compare: created.map(|created| compare(&key, &[], created)).into_iter().collect(),
            success: operations.clone(),
            failure: operations,
        };
        let is_marked = self.marks_the_left && claim.unsure.load(Ordering::Relaxed);
        let mark = || put(&self.keys.mark(claim), Vec::new(), lease_id(claim.lease()));
        let operations = [delete(&key)].into_iter().chain(is_marked.then(mark)).collect();
        let reply = match self.api.txn("leave", ask(operations)).await {
            // A cluster that is full, or a right that was taken away: what is there must not hold up the lock for that. The mark is
            // still owed, so it has failed.
            Err(fail @ (Fail::Unavailable(_) | Fail::Denied(_))) if is_marked => {
                self.api.txn("leave", ask(vec![delete(&key)])).await?;
                return Err(fail);
            }
            // It took all of its keys along, and nothing can be entered on it any more.
            Err(Fail::NoLease) => return Ok(Left::WasGone),
            reply => reply?,
        };
        let is_removed = reply.succeeded && deleted(&reply, 0) > 0;
        Ok(if is_removed { Left::Removed } else { Left::WasGone })
    }
}

/// The name of the cluster's token source, written once: a cluster that is made anew with the same flags in the same place has the
/// same id as before, and counts from 1 again.
async fn source(api: &Api, keys: &Keys, fresh: String) -> Result<String, Fail> {
    let key = keys.lineage();
    let ask = TxnRequest {
        compare: vec![compare(&key, &[], 0)],
        success: vec![put(&key, fresh.clone().into_bytes(), 0)],
        // There is no such key: it is asked whether we may.
        failure: vec![range(first_by_creation(&key, &[])), delete(&keys.marks())],
    };
    let reply = api.txn("connect", ask).await?;
    let found = rows(&reply, 0).first().map(|found| String::from_utf8_lossy(&found.value).into_owned());
    Ok(found.filter(|_| !reply.succeeded).unwrap_or(fresh))
}

fn about(transport: &dyn Transport, cluster: u64, source: Option<String>) -> About {
    let notice = "no right to write keys that begin with .fencepost- after the prefix, so a cluster that is rebuilt in the same place cannot be told from the one before, and a request that comes late can hold up a lock for some seconds; grant readwrite on them";
    let is_known = source.is_some();
    let lineage = match source {
        Some(source) => format!("etcd-{cluster:x}-{source}"),
        None => format!("etcd-{cluster:x}"),
    };
    About {
        scheme: "etcd",
        backend: transport.name(),
        lineage: Lineage::new(lineage),
        lease: LeaseKind::Shared,
        // Shorter than any that etcd grants: then what it grants is used, and shown.
        ttl: Duration::from_millis(100)..=Duration::from_secs(30 * 24 * 60 * 60),
        decides: "an etcd cluster, by Raft",
        fifo: true,
        level: Some(Level::Consensus),
        caveat: "a holder that is paused past its lease believes in it until it goes on",
        leave_is_final: is_known,
        notice: (!is_known).then_some(notice),
    }
}

/// The lease's length; known, since claims are made on open leases only.
fn term(lease: &Lease) -> Duration {
    lease.term().unwrap_or(lease.ttl())
}

impl Driver for Etcd {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn open<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<Duration, Fail>> {
        Box::pin(self.open_lease(lease))
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
        for claim in claims {
            self.watches.add(&self.keys.of(claim), claim.seat(|seat: &mut Seat| seat.seen), Ear::own(claim));
        }
        self.watches.open();
    }

    fn proclaim<'a>(&'a self, claim: &'a Arc<Claim>, owner: &'a Owner) -> Fut<'a, Result<Proclaimed, Fail>> {
        Box::pin(self.tell(claim, owner))
    }

    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>> {
        Box::pin(self.ask_to_leave(claim))
    }

    fn close<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>> {
        Box::pin(self.api.revoke(lease_id(lease)))
    }
}
