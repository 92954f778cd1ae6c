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
        for batch in sought.chunks(BATCH) {
            self.look_for(batch, latest, lease, report).await?;
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
