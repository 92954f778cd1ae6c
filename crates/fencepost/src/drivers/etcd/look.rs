//! Looking for the keys of holders whom no watch tells, when their lease is renewed.
//!
//! A watch tells of what happens after the revision from which it begins, in the history that the server has then. So whoever holds is
//! looked for once after each stream that was opened anew, and each time while none has proved itself. Otherwise it costs
//! no request, however many locks are held.

use std::sync::Arc;

use super::{
    Etcd,
    enter::{Seat, revision, rows},
    term,
    watch::Ear,
};
use crate::{
    claim::Claim,
    driver::{Fail, Renewed, Report},
    etcd::{TxnRequest, first_by_creation, range},
    lease::Lease,
};

/// How many keys are looked up in one transaction; etcd takes 128 operations by default.
const BATCH: usize = 100;

/// A holder that is looked for.
#[derive(Clone, Copy)]
struct Sought<'a> {
    /// Its place among the claims that are renewed.
    index: usize,
    claim: &'a Arc<Claim>,
    created: i64,
}

impl Etcd {
    /// Looks for the keys of holders whom nobody may tell of their end, and watches them again.
    pub(super) async fn look_after(
        &self,
        lease: &Lease,
        claims: &[Arc<Claim>],
        report: Report<'_>,
    ) -> Result<(), Fail> {
        let (proved, latest) = (self.watches.proved(), self.watches.latest());
        let sought = |(index, claim): (usize, &'_ Arc<Claim>)| {
            let seat = |seat: &mut Seat| (seat.is_unwatched || Some(seat.line) != proved, seat.created);
            match claim.seat(seat) {
                (true, Some(created)) => Some((index, created)),
                _ => None,
            }
        };
        let sought: Vec<_> = claims
            .iter()
            .enumerate()
            .filter_map(sought)
            .map(|(index, created)| Sought { index, claim: &claims[index], created })
            .collect();
        let mut batches: Vec<_> = sought.chunks(BATCH).collect();
        while let Some(batch) = batches.pop() {
            match self.look_for(batch, latest, lease, report).await {
                Ok(()) => {}
                // It is asked again long before the lease ends, and nobody is believed to hold meanwhile for longer.
                Err(fail) if fail.is_passing() || self.api.has_fallen() => return Err(fail),
                // One key that may not be read any more refuses all: found by halves.
                Err(_) if batch.len() > 1 => {
                    let (left, right) = batch.split_at(batch.len() / 2);
                    batches.extend([left, right]);
                }
                // The lease goes on, which is proved already: the others must not fall for this one.
                Err(why) => {
                    tracing::debug!(lock = %batch[0].claim.lock(), %why, "a holder cannot be looked for");
                    report(batch[0].index, Renewed::Unknown);
                }
            }
        }
        Ok(())
    }

    /// Looks for as many as one transaction takes.
    async fn look_for(
        &self,
        batch: &[Sought<'_>],
        line: u64,
        lease: &Lease,
        report: Report<'_>,
    ) -> Result<(), Fail> {
        let keys: Vec<_> = batch.iter().map(|sought| self.keys.of(sought.claim)).collect();
        let looks = keys.iter().map(|key| range(first_by_creation(key, &[]))).collect();
        let reply = self.api.txn("look", TxnRequest { success: looks, ..TxnRequest::default() }).await?;
        for (place, (sought, key)) in batch.iter().zip(&keys).enumerate() {
            if rows(&reply, place).first().is_none_or(|found| found.create_revision != sought.created) {
                report(sought.index, Renewed::Lost);
                continue;
            }
            report(sought.index, Renewed::Extended(term(lease)));
            sought.claim.seat(|seat: &mut Seat| {
                seat.is_unwatched = false;
                seat.line = line;
                seat.seen = revision(&reply);
            });
            self.watches.add(key, revision(&reply), Ear::own(sought.claim));
        }
        Ok(())
    }
}
