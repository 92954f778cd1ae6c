//! Writing a holder's record again.

use std::sync::Arc;

use super::{
    Etcd,
    enter::{Seat, revision, rows},
    keys::lease_id,
    record::owner_bytes,
};
use crate::{
    claim::Claim,
    driver::{Fail, Proclaimed},
    etcd::{TxnRequest, compare, first_by_creation, put, range, unchanged},
    owner::Owner,
};

impl Etcd {
    /// Writes over the record that was known, and over no other: a proclamation whose reply was lost, and which arrives after the
    /// next one, must not bring the old value back.
    pub(super) async fn tell(&self, claim: &Arc<Claim>, owner: &Owner) -> Result<Proclaimed, Fail> {
        let key = self.keys.of(claim);
        // Once more if one was carried out whose reply was lost; a third has nobody to come from.
        for _ in 0..2 {
            let (created, changed) = claim.seat(|seat: &mut Seat| (seat.created, seat.changed));
            let Some(created) = created else { return Ok(Proclaimed::Lost) };
            let ask = TxnRequest {
                compare: vec![compare(&key, &[], created), unchanged(&key, changed.unwrap_or(created))],
                success: vec![put(&key, owner_bytes(owner), lease_id(claim.lease()))],
                failure: vec![range(first_by_creation(&key, &[]))],
            };
            let reply = match self.api.txn("proclaim", ask).await {
                Err(Fail::NoLease) => return Ok(Proclaimed::Lost),
                reply => reply?,
            };
            let now = match rows(&reply, 0).first() {
                _ if reply.succeeded => revision(&reply),
                Some(found) if found.create_revision == created => found.mod_revision,
                _ => return Ok(Proclaimed::Lost),
            };
            claim.seat(|seat: &mut Seat| seat.changed = Some(now));
            if reply.succeeded {
                return Ok(Proclaimed::Written);
            }
        }
        Err(Fail::Unavailable("the record is being written by somebody else".into()))
    }
}
