//! From a lock name to the name of its directory.
//!
//! Everything but `[a-z0-9_-]` is escaped: capitals because some file systems fold case, dots because the root keeps
//! its own files behind one, bytes rather than characters so that no file system normalises them. A name that grows
//! too long for a directory is cut and ends in its hash; the `~` before the hash occurs in no other name. The full
//! name stands in the directory's lock file.

use sha2::{Digest, Sha256};

use crate::name::LockName;

/// The longest escaped name. File systems take 255 bytes.
const MAX_ESCAPED: usize = 200;

/// How much of a longer name is kept, for people who look at the directory.
const KEPT: usize = 120;

pub(super) fn directory(lock: &LockName) -> String {
    let mut escaped = String::with_capacity(lock.as_str().len());
    for byte in lock.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => escaped.push(byte.into()),
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    if escaped.len() > MAX_ESCAPED {
        escaped.truncate(KEPT);
        escaped.push('~');
        for byte in Sha256::digest(lock.as_str()) {
            escaped += &format!("{byte:02x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn dir(name: &str) -> String {
        directory(&name.parse().unwrap())
    }

    #[test]
    fn the_table_of_escapes() {
        for (name, expected) in [
            ("a", "a"),
            ("ab", "ab"),
            ("a/b", "a%2Fb"),
            ("A", "%41"),
            (".a", "%2Ea"),
            ("a.b", "a%2Eb"),
            ("a%2Fb", "a%252%46b"),
            ("~", "%7E"),
            ("x_1-2", "x_1-2"),
            ("\u{e9}", "%C3%A9"),
            ("e\u{301}", "e%CC%81"),
        ] {
            assert_eq!(dir(name), expected);
        }
    }

    #[test]
    fn long_names_keep_a_prefix_and_end_in_their_hash() {
        assert_eq!(dir(&"x".repeat(200)), "x".repeat(200));
        let (one, two) = (format!("{}1", "x".repeat(254)), format!("{}2", "x".repeat(254)));
        assert_ne!(dir(&one), dir(&two));
        let hash = dir(&one);
        let (prefix, digest) = hash.split_once('~').unwrap();
        assert_eq!((prefix, digest.len()), ("x".repeat(120).as_str(), 64));
    }

    fn name() -> impl Strategy<Value = String> {
        let segment = prop_oneof!["[aA%2F~.x]{1,8}", "\\PC{1,6}", "[a-zé/]{60,110}"];
        segment.prop_filter("a legal name", |name| name.parse::<LockName>().is_ok())
    }

    proptest! {
        #[test]
        fn no_two_names_share_a_directory(names in prop::collection::vec(name(), 2..40)) {
            let mut seen = BTreeMap::new();
            for name in names {
                let directory = dir(&name);
                prop_assert!(directory.len() <= MAX_ESCAPED);
                prop_assert!(directory.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b'.'));
                let other = seen.insert(directory, name.clone());
                prop_assert!(other.is_none_or(|other| other == name));
            }
        }
    }
}
