//! What operators ask.

use std::{any::Any, collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Notify;

use super::{
    Etcd,
    enter::{deleted, revision, rows, token},
    keys::{end_of, start_of},
    record::{holder_of, owner_of},
    watch::Ear,
};
use crate::{
    driver::{Fail, ForcedOut, Operator, Status},
    etcd::{KeyValue, RangeRequest, TxnRequest, compare, delete, first_by_creation, range},
    host::Fut,
    name::LockName,
};

/// How many keys one reply may hold.
const PAGE: i64 = 1000;

/// How many keys are listed at most: a server that always knows of more must not fill our memory.
const MOST: usize = 1_000_000;

impl Etcd {
    async fn look(&self, lock: &LockName) -> Result<Status, Fail> {
        let line = self.keys.line(lock);
        let found = self.all(&line).await?;
        let mut status = status(lock.clone(), found.iter().collect());
        if let (Some(holder), Some(first)) =
            (&mut status.holder, found.iter().min_by_key(|key| key.create_revision))
            && first.lease != 0
        {
            // Not worth an error: the rest is known.
            let left = self.api.time_to_live(first.lease).await.ok().flatten();
            holder.expires_in = left.map(Duration::from_secs);
        }
        self.watches.open();
        Ok(status)
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Status>, Fail> {
        let found = self.all(&self.keys.begins(prefix)).await?;
        let mut lines: BTreeMap<LockName, Vec<&KeyValue>> = BTreeMap::new();
        for key in &found {
            if let Some(lock) = self.keys.lock(key) {
                lines.entry(lock).or_default().push(key);
            }
        }
        Ok(lines.into_iter().map(|(lock, line)| status(lock, line)).collect())
    }

    /// All keys that begin like this, as they were at one revision.
    async fn all(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, Fail> {
        let (mut key, range_end) = (start_of(prefix), end_of(prefix));
        let (mut found, mut revision) = (Vec::new(), 0);
        loop {
            let ask = RangeRequest {
                key,
                range_end: range_end.clone(),
                limit: PAGE,
                revision,
                ..RangeRequest::default()
            };
            let page = self.api.range("look", ask.clone()).await?;
            revision = if revision == 0 { page.header.map_or(0, |header| header.revision) } else { revision };
            let after = page.kvs.last().map(|last| [last.key.as_slice(), &[0]].concat());
            found.extend(page.kvs);
            match after {
                _ if !page.more => return Ok(found),
                Some(after) if after > ask.key && found.len() < MOST => key = after,
                Some(after) if after > ask.key => {
                    return Err(Fail::Unsupported(format!("etcd has too many keys to list, most={MOST}")));
                }
                _ => return Err(Fail::Internal("etcd says that there are more keys, and shows none".into())),
            }
        }
    }

    /// Deletes the holder's key, and nobody else's: one that has passed on meanwhile stays, and so do data without a lease.
    async fn force(&self, lock: &LockName) -> Result<ForcedOut, Fail> {
        let line = self.keys.line(lock);
        let ask = TxnRequest {
            success: vec![range(first_by_creation(&line, &end_of(&line)))],
            ..TxnRequest::default()
        };
        let look = self.api.txn("look", ask).await?;
        let Some(first) = rows(&look, 0).first() else {
            // Whoever comes next is made at a later revision than this one.
            return Ok(ForcedOut { holder: None, token: token(revision(&look).saturating_add(1))? });
        };
        if first.lease == 0 {
            return Err(Fail::Invalid(format!(
                "the first key of lock={lock} hangs on no lease, so it is no lock's claim and is left alone: move it out of the lock's line, key={}",
                first.key.escape_ascii()
            )));
        }
        let ask = TxnRequest {
            compare: vec![compare(&first.key, &[], first.create_revision)],
            success: vec![delete(&first.key)],
            failure: Vec::new(),
        };
        let reply = self.api.txn("force", ask).await?;
        if !reply.succeeded || deleted(&reply, 0) == 0 {
            return Err(Fail::Unavailable(format!(
                "lock={lock} was given back while it was being forced, and may have another holder; look, and decide again"
            )));
        }
        // Above the holder's, and not above the token of whoever waits already.
        Ok(ForcedOut {
            holder: Some(holder_of(first)),
            token: token(first.create_revision.saturating_add(1))?,
        })
    }
}

fn status(lock: LockName, mut line: Vec<&KeyValue>) -> Status {
    line.sort_by_key(|key| key.create_revision);
    let mut line = line.into_iter();
    Status { lock, holder: line.next().map(holder_of), waiters: line.map(owner_of).collect() }
}

impl Operator for Etcd {
    fn inspect<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<Status, Fail>> {
        Box::pin(self.look(lock))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Fut<'a, Result<Vec<Status>, Fail>> {
        Box::pin(self.find(prefix))
    }

    fn force_unlock<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<ForcedOut, Fail>> {
        Box::pin(self.force(lock))
    }

    fn observe(&self, lock: &LockName, hint: Arc<Notify>) -> Option<Box<dyn Any + Send>> {
        // From what is known on: what happened before it is the first look's.
        self.watches.add(&self.keys.line(lock), self.api.known(), Ear::Hint(Arc::downgrade(&hint)));
        self.watches.open();
        // The watch lives as long as the hint, which is the observer's.
        Some(Box::new(hint))
    }
}
