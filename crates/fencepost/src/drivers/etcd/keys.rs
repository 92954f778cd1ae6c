//! How a lock's name becomes keys, and keys become names again.
//!
//! A claim's key is `<prefix><name>/<lease>-<nonce>`, the lease in hexadecimal as `etcdctl lock` and Go's `concurrency.Mutex` write it, so
//! that all of them stand in one line. The range of a lock ends with the slash: without it, `a` would also wait for `ab`. The
//! nonce makes each claim's key its own: clients without one delete a newer lock of the same session (etcd#22082).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::{
    claim::Claim,
    etcd::{KeyValue, Names, Options},
    lease::Lease,
    name::LockName,
};

/// What the driver's own keys begin with, after the prefix.
const OWN: &str = ".fencepost-";

/// How this driver names keys.
pub(super) struct Keys {
    prefix: String,
    names: Names,
}

impl Keys {
    pub(super) fn new(options: &Options) -> Self {
        Self { prefix: options.prefix.clone(), names: options.names }
    }

    /// What all keys of one lock begin with.
    pub(super) fn line(&self, lock: &LockName) -> Vec<u8> {
        format!("{}{}/", self.prefix, self.escape(lock.as_str())).into_bytes()
    }

    /// The key of a claim.
    pub(super) fn of(&self, claim: &Claim) -> Vec<u8> {
        [self.line(claim.lock()), claim_part(claim).into_bytes()].concat()
    }

    /// What the keys of all locks begin with whose names begin like this.
    pub(super) fn begins(&self, name: &str) -> Vec<u8> {
        format!("{}{}", self.prefix, self.escape(name)).into_bytes()
    }

    /// The key that says which token source this is. It has no slash after the prefix, so it is in no lock's line.
    pub(super) fn lineage(&self) -> Vec<u8> {
        format!("{}{OWN}lineage", self.prefix).into_bytes()
    }

    /// What the marks of claims begin with that were given up.
    pub(super) fn marks(&self) -> Vec<u8> {
        format!("{}{OWN}left-", self.prefix).into_bytes()
    }

    /// The mark of a claim that was given up: a late enter finds it.
    pub(super) fn mark(&self, claim: &Claim) -> Vec<u8> {
        [self.marks(), claim_part(claim).into_bytes()].concat()
    }

    /// The lock in whose line a key stands, if it is a claim's: other keys may lie beside those of locks.
    pub(super) fn lock(&self, found: &KeyValue) -> Option<LockName> {
        let key = std::str::from_utf8(&found.key).ok()?.strip_prefix(self.prefix.as_str())?;
        let (name, claim) = key.rsplit_once('/')?;
        let lease = claim.split_once('-').map_or(claim, |(lease, _)| lease);
        if found.lease == 0 || i64::from_str_radix(lease, 16) != Ok(found.lease) {
            return None;
        }
        let name = match self.names {
            Names::Raw => Cow::Borrowed(name),
            // In a foreign client's line there may be slashes: not one that we could name.
            Names::Escaped if name.contains('/') => return None,
            Names::Escaped => percent_decode_str(name).decode_utf8().ok()?,
        };
        name.parse().ok()
    }

    fn escape<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match self.names {
            Names::Escaped if name.contains(['/', '%']) => {
                name.replace('%', "%25").replace('/', "%2F").into()
            }
            _ => name.into(),
        }
    }
}

/// The lease's half and the claim's own of a key.
fn claim_part(claim: &Claim) -> String {
    format!("{:x}-{}", lease_id(claim.lease()), &claim.id().to_hex()[..16])
}

/// The end of the range of all keys that begin like this.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    // As the protocol writes "to the last key".
    vec![0]
}

/// The first key of such a range; the protocol has no empty one.
pub(super) fn start_of(prefix: &[u8]) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.to_vec() }
}

/// The id under which a lease is opened: chosen by us before the request, so that it can be revoked whatever becomes of the reply.
pub(super) fn lease_id(lease: &Lease) -> i64 {
    let digits = lease.id().to_hex();
    let id = u64::from_str_radix(&digits[..16], 16).unwrap_or_default() >> 1;
    i64::try_from(id.max(1)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(url: &str) -> Keys {
        Keys::new(&Options::from_url(url.parse().unwrap()).unwrap())
    }

    fn claimed(key: &str, lease: i64) -> KeyValue {
        KeyValue { key: key.into(), lease, ..KeyValue::default() }
    }

    #[test]
    fn keys_are_named_as_etcdctl_names_them() {
        let keys = keys("etcd://h");
        assert_eq!(keys.line(&"orders".parse().unwrap()), b"orders/");
        assert_eq!(keys.line(&"orders/48%21".parse().unwrap()), b"orders%2F48%2521/");
        assert_eq!(end_of(b"orders/"), b"orders0");
        assert_eq!(end_of(&[b'a', 0xff]), b"b");
        assert_eq!((end_of(b""), start_of(b"")), (vec![0], vec![0]));
        assert_eq!(keys.lock(&claimed("orders/1f", 0x1f)).unwrap().as_str(), "orders");
        assert_eq!(keys.lock(&claimed("a%2Fb/1f-00", 0x1f)).unwrap().as_str(), "a/b");
    }

    #[test]
    fn what_is_no_claim_is_no_lock() {
        let keys = keys("etcd://h?prefix=locks/");
        for (key, lease) in [
            ("orders/1f", 0x1f),
            ("locks/orders/1f", 0),
            ("locks/orders/1f", 0x2f),
            ("locks/a/b/1f", 0x1f),
            ("locks/.fencepost-lineage", 1),
            ("locks/.fencepost-left-1f-00", 0x1f),
        ] {
            assert_eq!(keys.lock(&claimed(key, lease)), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back_and_no_two_share_a_line(name in "[a-z%/2F]{1,12}", other in "[a-z%/2F]{1,12}") {
            let keys = keys("etcd://h?prefix=p/");
            let (Ok(name), Ok(other)) = (name.parse::<LockName>(), other.parse::<LockName>()) else { return Ok(()) };
            let line = keys.line(&name);
            let key = [line.as_slice(), b"1f-00"].concat();
            let found = KeyValue { key, lease: 0x1f, ..KeyValue::default() };
            prop_assert_eq!(keys.lock(&found), Some(name.clone()));
            prop_assert_eq!(name == other, keys.line(&other) == line);
            prop_assert!(name == other || !keys.line(&other).starts_with(&line));
            prop_assert!(line.starts_with(&keys.begins(&name.as_str()[..1])));
        }
    }
}
