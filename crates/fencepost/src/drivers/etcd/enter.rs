//! Entering: one transaction that makes the claim known and says where it stands, and one that asks again.

use std::sync::Arc;

use super::{
    Etcd,
    keys::{end_of, lease_id},
    record::{holder_of, owner_bytes},
    watch::Ear,
};
use crate::{
    claim::Claim,
    driver::{Entered, Fail, Intent},
    etcd::{
        Compare, KeyValue, RangeRequest, Response, TxnRequest, TxnResponse, compare, first_by_creation,
        last_by_creation, put, range,
    },
    token::Token,
};

/// A claim's state of the protocol.
#[derive(Default)]
pub(super) struct Seat {
    /// The revision at which the claim's key was made: its token, once it is the first.
    pub(super) created: Option<i64>,
    /// The revision at which the key was last known to be there.
    pub(super) seen: i64,
    /// The revision at which the record was last written, if it was written again.
    pub(super) changed: Option<i64>,
    /// The key before it, which is watched.
    pub(super) ahead: Option<Vec<u8>>,
    /// Its own watch has fallen behind what the server remembers: it must be looked at.
    pub(super) is_unwatched: bool,
    /// The stream of watches that was the latest before the key was last found. A later one may be of a cluster that went back to its
    /// past and caught up: what happened to the key meanwhile it does not tell.
    pub(super) line: u64,
}

impl Etcd {
    pub(super) async fn ask_to_enter(&self, claim: &Arc<Claim>, intent: Intent) -> Result<Entered, Fail> {
        let line = self.watches.latest();
        claim.seat(|seat: &mut Seat| seat.line = line);
        match claim.seat(|seat: &mut Seat| seat.created) {
            Some(created) => self.stands(claim, created).await,
            None if intent == Intent::Try => self.enter_if_free(claim).await,
            None => self.enter_line(claim).await,
        }
    }

    /// Takes the lock if nobody holds it or waits for it. Otherwise nothing is written.
    async fn enter_if_free(&self, claim: &Arc<Claim>) -> Result<Entered, Fail> {
        let (key, line) = (self.keys.of(claim), self.keys.line(claim.lock()));
        let end = end_of(&line);
        let ask = TxnRequest {
            compare: self.unless_left(claim, compare(&line, &end, 0)),
            success: vec![put(&key, owner_bytes(claim.owner()), lease_id(claim.lease()))],
            failure: vec![range(first_by_creation(&line, &end))],
        };
        let reply = self.api.txn("enter", ask).await?;
        let now = revision(&reply);
        if reply.succeeded {
            return self.granted(claim, now, now);
        }
        match rows(&reply, 0).first() {
            // The first request was carried out, and its reply lost.
            Some(first) if first.key == key => self.granted(claim, first.create_revision, now),
            Some(first) => {
                Ok(Entered::Busy { retry: self.watches.recheck(), holder: Some(holder_of(first)) })
            }
            // It was given up before.
            None => Ok(Entered::Gone),
        }
    }

    /// Stands in line, or takes the lock if nobody stands there: one request tells which.
    async fn enter_line(&self, claim: &Arc<Claim>) -> Result<Entered, Fail> {
        let (key, line) = (self.keys.of(claim), self.keys.line(claim.lock()));
        let end = end_of(&line);
        let ask = TxnRequest {
            compare: self.unless_left(claim, compare(&key, &[], 0)),
            success: vec![
                put(&key, owner_bytes(claim.owner()), lease_id(claim.lease())),
                range(last_by_creation(&line, &end, 2)),
                range(first_by_creation(&line, &end)),
            ],
            failure: vec![range(first_by_creation(&key, &[]))],
        };
        let reply = self.api.txn("enter", ask).await?;
        let now = revision(&reply);
        if !reply.succeeded {
            // A request whose reply was lost, or the same one carried out twice.
            let own = rows(&reply, 0).first().map(|own| own.create_revision);
            let created =
                own.ok_or_else(|| Fail::Internal("etcd knows a key and does not show it".into()))?;
            self.is_there(claim, created, now);
            return self.stands(claim, created).await;
        }
        self.is_there(claim, now, now);
        match rows(&reply, 1).iter().find(|other| other.key != key) {
            Some(ahead) => Ok(self.queued(claim, Some(ahead), rows(&reply, 2).first(), now)),
            None => self.granted(claim, now, now),
        }
    }

    /// Asks where a claim stands that is in line, or holds the lock. Nobody is granted without it after a wait: a lease can have
    /// died meanwhile, and a grant on it would be a second holder (etcd#11456).
    async fn stands(&self, claim: &Arc<Claim>, created: i64) -> Result<Entered, Fail> {
        let (key, line) = (self.keys.of(claim), self.keys.line(claim.lock()));
        let first = first_by_creation(&line, &end_of(&line));
        let Some(reply) = self.while_there(claim, &key, created, first).await? else {
            return Ok(Entered::Gone);
        };
        let now = revision(&reply);
        match rows(&reply, 0).first().filter(|first| first.key != key) {
            None => self.granted(claim, created, now),
            Some(first) => {
                let ahead = claim.seat(|seat: &mut Seat| seat.ahead.clone());
                if ahead.is_some_and(|ahead| self.watches.tells(claim, &ahead)) {
                    // Whoever is ahead is there: it would have been told otherwise.
                    return Ok(self.queued(claim, None, Some(first), now));
                }
                self.behind_whom(claim, created, Some(first)).await
            }
        }
    }

    /// Looks for the one ahead. The server reads the whole line for it, so it is asked for only where it is not known.
    async fn behind_whom(
        &self,
        claim: &Arc<Claim>,
        created: i64,
        first: Option<&KeyValue>,
    ) -> Result<Entered, Fail> {
        let (key, line) = (self.keys.of(claim), self.keys.line(claim.lock()));
        let mut before = last_by_creation(&line, &end_of(&line), 1);
        before.max_create_revision = created.saturating_sub(1);
        let Some(reply) = self.while_there(claim, &key, created, before).await? else {
            return Ok(Entered::Gone);
        };
        let now = revision(&reply);
        // The protocol takes 0 for "any": the first key of a cluster has nothing before it.
        match rows(&reply, 0).first().filter(|other| other.create_revision < created) {
            Some(ahead) => Ok(self.queued(claim, Some(ahead), first, now)),
            None => self.granted(claim, created, now),
        }
    }

    /// What `look` finds, if the claim's key is there as it was made; otherwise nothing.
    async fn while_there(
        &self,
        claim: &Arc<Claim>,
        key: &[u8],
        created: i64,
        look: RangeRequest,
    ) -> Result<Option<TxnResponse>, Fail> {
        let ask = TxnRequest {
            compare: vec![compare(key, &[], created)],
            success: vec![range(look)],
            failure: Vec::new(),
        };
        let reply = self.api.txn("enter", ask).await?;
        if !reply.succeeded {
            self.watches.forget(key, claim);
            return Ok(None);
        }
        self.is_there(claim, created, revision(&reply));
        Ok(Some(reply))
    }

    /// Refuses a claim that was given up: its enter may come late, and its lease may go on with other locks.
    fn unless_left(&self, claim: &Claim, condition: Compare) -> Vec<Compare> {
        let mark = self.marks_the_left.then(|| compare(&self.keys.mark(claim), &[], 0));
        [condition].into_iter().chain(mark).collect()
    }

    fn is_there(&self, claim: &Claim, created: i64, now: i64) {
        claim.seat(|seat: &mut Seat| {
            seat.created = Some(created);
            seat.seen = seat.seen.max(now);
        });
        self.witness(claim.lease(), || self.keys.of(claim));
    }

    fn granted(&self, claim: &Arc<Claim>, created: i64, now: i64) -> Result<Entered, Fail> {
        self.is_there(claim, created, now);
        if let Some(ahead) = claim.seat(|seat: &mut Seat| seat.ahead.take()) {
            self.watches.forget(&ahead, claim);
        }
        Ok(Entered::Granted { token: token(created)? })
    }

    /// Watches the key ahead, which tells of the claim's turn, and its own, which tells of its end. Both from the revision of the answer
    /// on, so that nothing falls between the answer and the watch (python-etcd3#1107).
    fn queued(
        &self,
        claim: &Arc<Claim>,
        ahead: Option<&KeyValue>,
        first: Option<&KeyValue>,
        now: i64,
    ) -> Entered {
        if let Some(ahead) = ahead {
            let before = claim.seat(|seat: &mut Seat| seat.ahead.replace(ahead.key.clone()));
            if let Some(before) = before.filter(|before| *before != ahead.key) {
                self.watches.forget(&before, claim);
            }
            self.watches.add(&ahead.key, now, Ear::ahead(claim));
        }
        self.watches.add(&self.keys.of(claim), now, Ear::own(claim));
        self.watches.open();
        Entered::Queued { recheck: self.watches.recheck(), holder: first.map(holder_of) }
    }
}

/// The token of a key that was made at this revision.
pub(super) fn token(created: i64) -> Result<Token, Fail> {
    let token = u64::try_from(created).ok().and_then(Token::new);
    token.ok_or_else(|| Fail::Internal("etcd shows a key without a revision".into()))
}

pub(super) fn revision(reply: &TxnResponse) -> i64 {
    reply.header.map_or(0, |header| header.revision)
}

/// The rows that an operation of a transaction answered.
pub(super) fn rows(reply: &TxnResponse, operation: usize) -> &[KeyValue] {
    match reply.responses.get(operation).and_then(|answer| answer.response.as_ref()) {
        Some(Response::Range(found)) => &found.kvs,
        _ => &[],
    }
}

/// How many keys an operation of a transaction deleted.
pub(super) fn deleted(reply: &TxnResponse, operation: usize) -> i64 {
    match reply.responses.get(operation).and_then(|answer| answer.response.as_ref()) {
        Some(Response::DeleteRange(done)) => done.deleted,
        _ => 0,
    }
}
