//! The keys of a lock. All have the lock key's hash tag, so that they live in one slot of a Cluster.

use std::borrow::Cow;

use crate::{claim::ClaimId, driver::Fail, name::LockName};

/// What the companions of a lock key end with, in the order in which the scripts expect them.
const COMPANIONS: [&str; 6] = [":token", ":queue", ":aside", ":beat", ":who", ":offer"];

/// What a tombstone's key ends with, before the claim's id.
const LEFT: &str = ":left:";

/// The keys of one lock.
pub(super) struct Keys {
    /// The lock key and its companions, in one piece: they are made for each request.
    text: String,
    ends: [usize; 7],
    /// Where the first companion's own end begins.
    base: usize,
}

impl Keys {
    /// The keys of `lock` under `prefix`. With an empty prefix the name is the key as it is, to share it with
    /// another client; otherwise `%`, `{` and `}` are escaped, so that no name changes the hash tag.
    pub(super) fn new(prefix: &str, lock: &LockName) -> Result<Self, Fail> {
        let name = lock.as_str();
        if !prefix.is_empty() {
            let key = [prefix, &escape(name)].concat();
            return Ok(Self::of(["{", &key, "}"], &key));
        }
        if COMPANIONS.iter().any(|end| name.ends_with(end)) || name.contains(LEFT) {
            let text = format!(
                "the lock name {name:?} looks like one of Fencepost's own keys; use a prefix or another name"
            );
            return Err(Fail::Invalid(text));
        }
        if !name.contains(['{', '}']) {
            return Ok(Self::of(["{", name, "}"], name));
        }
        // One hash tag and something beside it: the companions of a mere `{a}` would be those of `a`.
        let parts = name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
        match parts {
            Some((before, (tag, after))) if is_tagged(before, tag, after) => {
                Ok(Self::of(["", name, ""], name))
            }
            _ => {
                let text = format!(
                    "the lock name {name:?} has braces that are not one hash tag beside other text, so its companion keys would mix with another lock's; use a prefix or another name"
                );
                Err(Fail::Invalid(text))
            }
        }
    }

    /// `base` is what the companions' keys begin with, in parts.
    fn of(base: [&str; 3], lock: &str) -> Self {
        let length = base.iter().map(|part| part.len()).sum::<usize>();
        let mut text = String::with_capacity(lock.len() + 6 * (length + 6));
        text.push_str(lock);
        let mut ends = [lock.len(); 7];
        for (end, companion) in ends[1..].iter_mut().zip(COMPANIONS) {
            text.extend(base.into_iter().chain([companion]));
            *end = text.len();
        }
        Self { text, ends, base: lock.len() + length }
    }

    pub(super) fn lock(&self) -> &str {
        &self.text[..self.ends[0]]
    }

    /// The key that says that a claim was given up.
    pub(super) fn left(&self, claim: ClaimId) -> String {
        [&self.text[self.ends[0]..self.base], LEFT, &claim.to_hex()].concat()
    }

    /// The keys that `look.lua` reads.
    pub(super) fn seen(&self) -> [&str; 4] {
        let [lock, _, queue, aside, _, who, _] = self.common();
        [lock, queue, aside, who]
    }

    /// The keys of every script that frees or takes the lock.
    pub(super) fn common(&self) -> [&str; 7] {
        let mut start = 0;
        self.ends.map(|end| &self.text[std::mem::replace(&mut start, end)..end])
    }

    /// The common keys and one more.
    pub(super) fn with<'a>(&'a self, last: &'a str) -> [&'a str; 8] {
        let [lock, token, queue, aside, beat, who, offer] = self.common();
        [lock, token, queue, aside, beat, who, offer, last]
    }
}

/// Whether these are the parts of a name with one hash tag beside other text.
fn is_tagged(before: &str, tag: &str, after: &str) -> bool {
    let has_more = [before, tag, after].iter().any(|part| part.contains(['{', '}']));
    let is_mere_tag = before.is_empty() && after.is_empty();
    !(tag.is_empty() || has_more || is_mere_tag)
}

/// The key of the tokens' lineage: no lock has it, since no name begins with a slash.
pub(super) fn lineage(prefix: &str) -> String {
    if prefix.is_empty() { "/fencepost/lineage".into() } else { format!("{prefix}/lineage") }
}

/// The channel on which one locker is told.
pub(super) fn channel(locker: &str) -> String {
    format!("fencepost:wake:{locker}")
}

/// Glob patterns for `SCAN` that find the keys of held locks and of locks that are waited for.
pub(super) fn patterns(prefix: &str, name: &str) -> [String; 2] {
    let start = if prefix.is_empty() { glob(name) } else { glob(&format!("{prefix}{}", escape(name))) };
    [format!("{start}*"), format!("{{{start}*}}:queue")]
}

/// The name of the lock with this key, if it is a lock's key.
pub(super) fn name(prefix: &str, key: &str) -> Option<LockName> {
    let base = key.strip_suffix(":queue").unwrap_or(key);
    let whole_tag = base.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let key = whole_tag.filter(|tag| !tag.contains(['{', '}'])).unwrap_or(base);
    let name = key.strip_prefix(prefix)?;
    let name = if prefix.is_empty() { name.to_owned() } else { unescape(name)? };
    name.parse().ok()
}

fn escape(name: &str) -> Cow<'_, str> {
    if !name.contains(['%', '{', '}']) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D"))
}

fn unescape(name: &str) -> Option<String> {
    Some(percent_encoding::percent_decode_str(name).decode_utf8().ok()?.into_owned())
}

fn glob(text: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '\\' | '^');
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(prefix: &str, name: &str) -> Result<Keys, Fail> {
        Keys::new(prefix, &name.parse().unwrap())
    }

    /// The slot's hash tag by the rule of the Redis Cluster specification.
    fn tag(key: &str) -> &str {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
    }

    #[test]
    fn plain_names_are_keys_as_other_clients_write_them() {
        assert_eq!(keys("lock:", "orders/4821").unwrap().lock(), "lock:orders/4821");
        assert_eq!(keys("", "orders/4821").unwrap().lock(), "orders/4821");
        assert_eq!(keys("", "{orders}/4821").unwrap().common()[1], "{orders}/4821:token");
    }

    #[test]
    fn without_a_prefix_names_that_cannot_be_shared_are_refused() {
        for name in ["a:token", "{a}:queue", "a:left:0", "lock}:x", "{}a", "}{", "{a}", "{", "{{}", "x{a}{b}"]
        {
            assert!(matches!(keys("", name), Err(Fail::Invalid(_))), "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_name_has_its_keys_in_one_slot_and_reads_back(name in "[ab{}%:/\\[*^é]{1,6}", other in "[ab{}%:]{1,5}") {
            let (Ok(name), Ok(other)) = (name.parse::<LockName>(), other.parse::<LockName>()) else { return Ok(()) };
            for prefix in ["lock:", "x/", ""] {
                let Ok(keys) = Keys::new(prefix, &name) else { continue };
                for key in keys.common() {
                    prop_assert_eq!(tag(key), tag(keys.lock()), "{}", key);
                }
                prop_assert_eq!(super::name(prefix, keys.lock()), Some(name.clone()));
                prop_assert_eq!(super::name(prefix, keys.common()[2]), Some(name.clone()));
                if let Ok(others) = Keys::new(prefix, &other) && other != name {
                    prop_assert!(keys.common().iter().all(|key| !others.common().contains(key)));
                }
            }
        }
    }
}
