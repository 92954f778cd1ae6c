//! What a claim's key holds: its owner, for people to read.

use crate::{driver::Holder, etcd::KeyValue, owner::Owner, token::Token};

pub(super) fn owner_bytes(owner: &Owner) -> Vec<u8> {
    // An owner is plain data: it can always be written.
    serde_json::to_vec(owner).unwrap_or_default()
}

/// The owner of a key; nothing of another client's, such as `etcdctl lock`.
pub(super) fn owner_of(found: &KeyValue) -> Option<Owner> {
    serde_json::from_slice(&found.value).ok()
}

/// Whoever made the first key of a line. How long its lease goes on is another question, which costs a request.
pub(super) fn holder_of(first: &KeyValue) -> Holder {
    let token = u64::try_from(first.create_revision).ok().and_then(Token::new);
    Holder { token, owner: owner_of(first), expires_in: None }
}
