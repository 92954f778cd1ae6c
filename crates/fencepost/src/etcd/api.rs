//! The messages as functions, and what every reply must say.
//!
//! Invariants:
//! 1. A reply of another cluster than the first one's is refused.
//! 2. A reply to a request that went through consensus and whose revision is lower than one that was known when the request was sent is
//!    refused: the cluster was restored from a backup, and its revisions, which are our tokens, would repeat.
//! 3. What has been refused so stays refused: such a cluster catches up with what was known, and looks sound again.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicI64, Ordering},
};

use prost::Message;

use super::{
    Call, Transport,
    proto::{
        Compare, CompareResult, CompareTarget, CompareWith, DeleteRangeRequest, Headed, Header,
        LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, LeaseResponse, PutRequest, RangeRequest,
        RangeResponse, Request, RequestOp, SortOrder, SortTarget, TxnRequest, TxnResponse, path,
    },
};
use crate::driver::Fail;

/// What one driver or gate says to its cluster.
pub(crate) struct Api {
    pub(crate) transport: Arc<dyn Transport>,
    cluster: OnceLock<u64>,
    /// The highest revision seen.
    revision: AtomicI64,
    /// Why no reply is believed any more.
    fallen: OnceLock<&'static str>,
}

const ANOTHER: &str = "another etcd cluster answers than before: it was rebuilt, and its tokens do not compare with those before; connect again, and rebind the gates";
const GONE_BACK: &str = "the etcd cluster has gone back to an earlier state, as after a restored backup: its tokens would repeat; connect again, and rebind the gates";

/// The answer to a renewal.
pub(crate) enum Alive {
    /// For so many seconds, counted from before the request.
    For(i64),
    /// The lease is gone.
    Gone,
}

impl Api {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, cluster: OnceLock::new(), revision: AtomicI64::new(0), fallen: OnceLock::new() }
    }

    /// The cluster's id; 0 before the first reply.
    pub(crate) fn cluster(&self) -> u64 {
        self.cluster.get().copied().unwrap_or_default()
    }

    /// The highest revision that a reply has shown.
    pub(crate) fn known(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Whether the cluster is not the one any more to which our tokens and leases belong.
    pub(crate) fn has_fallen(&self) -> bool {
        self.fallen.get().is_some()
    }

    /// Asks nothing: any user may, and the answer says which cluster this is.
    pub(crate) async fn greet(&self) -> Result<(), Fail> {
        let reply: Headed = self.call("hello", path::STATUS, &Headed::default()).await?;
        self.check(reply.header, None).map(drop)
    }

    pub(crate) async fn txn(&self, verb: &'static str, ask: TxnRequest) -> Result<TxnResponse, Fail> {
        let known = self.known();
        let reply: TxnResponse = self.call(verb, path::TXN, &ask).await?;
        self.check(reply.header, Some(known))?;
        Ok(reply)
    }

    pub(crate) async fn range(&self, verb: &'static str, ask: RangeRequest) -> Result<RangeResponse, Fail> {
        let known = self.known();
        let reply: RangeResponse = self.call(verb, path::RANGE, &ask).await?;
        self.check(reply.header, Some(known))?;
        Ok(reply)
    }

    /// Opens the lease of this id; answers the seconds that were granted.
    pub(crate) async fn grant(&self, id: i64, seconds: i64) -> Result<i64, Fail> {
        let known = self.known();
        let ask = LeaseGrantRequest { ttl: seconds, id };
        let reply: LeaseGrantResponse = self.call("open", path::GRANT, &ask).await?;
        self.check(reply.header, Some(known))?;
        Ok(reply.ttl)
    }

    /// Ends a lease, and deletes with it every key that hangs on it.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Fail> {
        match self.call::<Headed>("close", path::REVOKE, &LeaseRequest { id }).await {
            Ok(reply) => self.check(reply.header, None).map(drop),
            Err(Fail::NoLease) => Ok(()),
            Err(fail) => Err(fail),
        }
    }

    /// Keeps a lease alive; answers also in which term of Raft, in the header. Not to be believed, whatever it says, before it is
    /// [confirmed](Self::confirm).
    ///
    /// One request on a stream of its own, so that no reply can be taken for another request's.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<(Alive, Header), Fail> {
        let reply: LeaseResponse = match self.call("renew", path::KEEP_ALIVE, &LeaseRequest { id }).await {
            // Without a header, and so without a term that could be confirmed.
            Err(Fail::NoLease) => {
                return Err(Fail::Unknown("somebody says, without a proof, that the lease is gone".into()));
            }
            reply => reply?,
        };
        let kept = self.check(reply.header, None)?;
        Ok((if reply.ttl > 0 { Alive::For(reply.ttl) } else { Alive::Gone }, kept))
    }

    /// Proves that the leader who answered a moment ago was the leader: `witness` is a key that may be read.
    ///
    /// A leader that was stopped or cut off for longer than an election takes believes in its office for a moment when it goes on, and
    /// many versions then still answer for leases that the next leader has ended (etcd#15247). A linearizable read it cannot
    /// answer, and terms differ: so a read follows, and a renewal is believed only if no election fell between the two. So is
    /// that a lease is gone: such a leader may not know yet of one that was opened since.
    pub(crate) async fn confirm(&self, witness: Vec<u8>, kept: Header) -> Result<(), Fail> {
        let ask = RangeRequest { key: witness, count_only: true, ..RangeRequest::default() };
        let read = self.range("confirm", ask).await?.header.unwrap_or_default();
        if read.raft_term != kept.raft_term {
            return Err(Fail::Unknown("an election came between the renewal and its proof".into()));
        }
        Ok(())
    }

    /// How many seconds a lease has left; nothing if it is gone.
    pub(crate) async fn time_to_live(&self, id: i64) -> Result<Option<u64>, Fail> {
        let reply: LeaseResponse = self.call("look", path::TIME_TO_LIVE, &LeaseRequest { id }).await?;
        self.check(reply.header, None)?;
        Ok(u64::try_from(reply.ttl).ok())
    }

    async fn call<R: Message + Default>(
        &self,
        verb: &'static str,
        path: &'static str,
        ask: &impl Message,
    ) -> Result<R, Fail> {
        // What takes something back is sent all the same: it hits nothing but our own.
        if !matches!(verb, "leave" | "close") {
            self.stand()?;
        }
        let reply = self.transport.call(Call::new(verb, path, ask.encode_to_vec())).await?;
        R::decode(reply.as_slice())
            .map_err(|error| Fail::Internal(format!("etcd answered with something unreadable: {error}")))
    }

    fn check(&self, header: Option<Header>, known: Option<i64>) -> Result<Header, Fail> {
        let header = header.ok_or_else(|| Fail::Internal("etcd answered without a header".into()))?;
        if *self.cluster.get_or_init(|| header.cluster_id) != header.cluster_id {
            let _ = self.fallen.set(ANOTHER);
        }
        if known.is_some_and(|known| header.revision < known) {
            let _ = self.fallen.set(GONE_BACK);
        }
        self.stand()?;
        self.revision.fetch_max(header.revision, Ordering::Relaxed);
        Ok(header)
    }

    fn stand(&self) -> Result<(), Fail> {
        self.fallen.get().map_or(Ok(()), |why| Err(Fail::Invalid((*why).into())))
    }
}

pub(crate) fn put(key: &[u8], value: Vec<u8>, lease: i64) -> RequestOp {
    RequestOp { request: Some(Request::Put(PutRequest { key: key.to_vec(), value, lease })) }
}

pub(crate) fn delete(key: &[u8]) -> RequestOp {
    RequestOp { request: Some(Request::DeleteRange(DeleteRangeRequest { key: key.to_vec() })) }
}

pub(crate) fn range(ask: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::Range(ask)) }
}

/// The key of a range that was made first.
pub(crate) fn first_by_creation(key: &[u8], range_end: &[u8]) -> RangeRequest {
    by_creation(key, range_end, SortOrder::Ascend, 1)
}

/// The keys of a range that were made last, the latest first.
pub(crate) fn last_by_creation(key: &[u8], range_end: &[u8], limit: i64) -> RangeRequest {
    by_creation(key, range_end, SortOrder::Descend, limit)
}

fn by_creation(key: &[u8], range_end: &[u8], order: SortOrder, limit: i64) -> RangeRequest {
    RangeRequest {
        key: key.to_vec(),
        range_end: range_end.to_vec(),
        limit,
        sort_order: order.into(),
        sort_target: SortTarget::Create.into(),
        ..RangeRequest::default()
    }
}

/// Whether the key, or every key of the range, was made at this revision; 0 says that there is none.
pub(crate) fn compare(key: &[u8], range_end: &[u8], created: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.to_vec(),
        with: Some(CompareWith::CreateRevision(created)),
        range_end: range_end.to_vec(),
    }
}

/// Whether the key was last written at this revision.
pub(crate) fn unchanged(key: &[u8], changed: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        with: Some(CompareWith::ModRevision(changed)),
        ..compare(key, &[], 0)
    }
}

/// How the value of a key compares; never true for one that is missing.
pub(crate) fn value_is(result: CompareResult, key: &[u8], value: impl Into<Vec<u8>>) -> Compare {
    Compare {
        result: result.into(),
        target: CompareTarget::Value.into(),
        with: Some(CompareWith::Value(value.into())),
        ..compare(key, &[], 0)
    }
}

/// A transaction within a transaction.
pub(crate) fn nested(txn: TxnRequest) -> RequestOp {
    RequestOp { request: Some(Request::Txn(txn)) }
}
