//! What the lock key holds.

use std::time::Duration;

use crate::{claim::ClaimId, driver::Holder, owner::Owner, redis::Reply, token::Token};

/// The value of a lock key that somebody holds.
pub(super) struct Held {
    pub(super) holder: Holder,
    /// Whether those who wait will be told when it is given back.
    pub(super) tells: bool,
}

impl Held {
    /// Reads the value and the time to live of a lock key; `None` if there is none.
    ///
    /// Anything that is not ours was set by another client: it has no token, and tells nobody.
    pub(super) fn read(value: &Reply, left: &Reply) -> Option<Self> {
        if *value == Reply::Nil {
            return None;
        }
        let expires_in = left.int().and_then(|left| u64::try_from(left).ok()).map(Duration::from_millis);
        let foreign = Self { holder: Holder { token: None, owner: None, expires_in }, tells: false };
        let Some(mut words) = value.text().map(|text| text.splitn(6, ' ')) else { return Some(foreign) };
        let (Some("fp1"), Some(_), Some(token), Some(_), Some(flag), Some(owner)) =
            (words.next(), words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Some(foreign);
        };
        let holder = Holder { token: token.parse::<Token>().ok(), owner: owner_of(owner), expires_in };
        Some(Self { holder, tells: flag == flag_of(true) })
    }
}

/// Whether a lock key's value says that this claim holds the lock.
pub(super) fn is_of(value: &Reply, claim: ClaimId) -> bool {
    let ours = value.text().and_then(|text| text.strip_prefix("fp1 ")?.strip_prefix(&claim.to_hex()));
    ours.is_some_and(|rest| rest.starts_with(' '))
}

/// The flag of a holder in its record.
pub(super) fn flag_of(tells: bool) -> &'static str {
    if tells { "+" } else { "-" }
}

pub(super) fn owner_of(text: &str) -> Option<Owner> {
    serde_json::from_str(text).ok()
}
