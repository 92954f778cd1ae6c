//! Where a lock lies, and what the nodes in it are called.
//!
//! A lock is a container node; whoever stands in line is a child of it, with the number behind its name that the server
//! gave. Names follow Curator's `InterProcessMutex`, so that its users and ours stand in one line.
//!
//! Source: `LockInternals`, `StandardLockInternalsDriver` and `ProtectedUtils` of Apache Curator 5; kazoo's
//! `recipe/lock.py` for its names.

use percent_encoding::percent_decode_str;

use crate::{
    claim::ClaimId,
    driver::Fail,
    name::LockName,
    zookeeper::{Names, Options, escape, is_forbidden},
};

/// What stands before the number in Curator's names, and at the end of what stands before it in kazoo's.
const MARKS: [&str; 2] = ["lock-", "lock__"];

/// The path of a lock's node, as the servers see it.
pub(super) fn path(options: &Options, lock: &LockName) -> Result<String, Fail> {
    let name = match options.names {
        Names::Escaped => escape(lock.as_str()),
        Names::Raw => raw(options, lock.as_str())?.to_owned(),
    };
    Ok(format!("{}/{name}", options.top()))
}

fn raw<'a>(options: &Options, name: &'a str) -> Result<&'a str, Fail> {
    if let Some(c) = name.chars().find(|c| is_forbidden(*c)) {
        let text = format!(
            "the lock name {name:?} has a character that zookeeper forbids, U+{:04X}; take another name, or leave names=raw out of the url",
            c as u32
        );
        return Err(Fail::Invalid(text));
    }
    if name.split('/').any(|part| Contender::parse(part).is_some()) {
        let text = format!("the lock name {name:?} looks like somebody's place in a line; take another name");
        return Err(Fail::Invalid(text));
    }
    if options.top().is_empty() && name.split('/').next() == Some("zookeeper") {
        return Err(Fail::Invalid(
            "the node /zookeeper is the server's own; take another lock name or root".into(),
        ));
    }
    Ok(name)
}

/// The nodes that must be there before a claim can stand in line: those below the root, the lock's own last.
pub(super) fn parents(options: &Options, path: &str) -> Vec<String> {
    let top = options.top().len();
    let ends = path[top + 1..].match_indices('/').map(|(at, _)| top + 1 + at).chain([path.len()]);
    ends.map(|end| path[..end].to_owned()).collect()
}

/// The name of the lock whose node has this path below the root.
pub(super) fn lock(options: &Options, below: &str) -> Option<LockName> {
    let name = match options.names {
        Names::Escaped => percent_decode_str(below).decode_utf8().ok()?.into_owned(),
        Names::Raw => below.to_owned(),
    };
    // What reads back as another name was made by somebody else.
    name.parse().ok().filter(|lock: &LockName| options.names == Names::Raw || escape(lock.as_str()) == below)
}

/// What a claim's node is called, but for its number.
pub(super) fn stem(claim: ClaimId) -> String {
    let hex = claim.to_hex();
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("_c_{a}-{b}-{c}-{d}-{e}-lock-")
}

/// Somebody in line, holding or waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    pub(super) name: String,
    number: i32,
}

impl Contender {
    /// A child of a lock that stands in line; `None` for any other child.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(Self { name: name.to_owned(), number: number(name)? })
    }
}

/// The number that Java's `%010d` wrote behind a name of ours: ten digits, or a minus and nine or ten.
fn number(name: &str) -> Option<i32> {
    let is_of_lock = |stem: &str| MARKS.iter().any(|mark| stem.ends_with(mark));
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, text) = name.split_at(name.len() - digits.min(10));
    let number: i64 = text.parse().ok()?;
    match (text.len(), stem.strip_suffix('-')) {
        (10, _) if is_of_lock(stem) => i32::try_from(number).ok(),
        (9 | 10, Some(stem)) if is_of_lock(stem) => i32::try_from(-number).ok(),
        _ => None,
    }
}

/// Everybody in line among the children of a lock's node, the holder first.
pub(super) fn line(children: &[String]) -> Vec<Contender> {
    let mut line: Vec<_> = children.iter().filter_map(|child| Contender::parse(child)).collect();
    // The number wraps around at 2^31 and is then negative, so the distance decides: to any one of them, since sorting needs
    // an order that holds among all.
    if let Some(base) = line.first().map(|first| first.number) {
        line.sort_by(|a, b| {
            let place = |contender: &Contender| contender.number.wrapping_sub(base);
            place(a).cmp(&place(b)).then_with(|| a.name.cmp(&b.name))
        });
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(url: &str) -> Options {
        Options::from_url(url.parse().unwrap()).unwrap()
    }

    fn order(names: &[&str]) -> Vec<String> {
        let children: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        line(&children).into_iter().map(|contender| contender.name).collect()
    }

    #[test]
    fn the_line_is_in_the_order_of_the_numbers_whatever_stands_before_them() {
        let names =
            ["_c_b-lock-0000000010", "9f__lock__0000000009", "_c_a-lock-0000000011", "lock-0000000002"];
        let expected = [names[3], names[1], names[0], names[2]];
        assert_eq!(order(&names), expected);
    }

    #[test]
    fn numbers_that_wrap_around_keep_their_order() {
        let names = ["x-lock-2147483647", "x-lock--2147483648", "x-lock--2147483647"];
        assert_eq!(order(&[names[2], names[1], names[0]]), names);
        assert_eq!(
            order(&["x-lock-0000000000", "x-lock--000000001"]),
            ["x-lock--000000001", "x-lock-0000000000"]
        );
    }

    #[test]
    fn what_stands_in_no_line_is_not_counted() {
        for name in
            ["4821", "orders", "lock-1", "x-lock-", "x-000000001", "0000000001", "lock-9999999999", "é"]
        {
            assert_eq!(Contender::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_lock_and_its_parents_lie_below_the_root() {
        let (plain, raw) = (options("zk://h/a"), options("zk://h?root=/l&names=raw"));
        let name = "orders/4821".parse().unwrap();
        assert_eq!(path(&plain, &name).unwrap(), "/a/fencepost/locks/orders%2F4821");
        let nested = path(&raw, &name).unwrap();
        assert_eq!(nested, "/l/orders/4821");
        assert_eq!(parents(&raw, &nested), ["/l/orders", "/l/orders/4821"]);
        assert_eq!(parents(&plain, "/a/fencepost/locks/x"), ["/a/fencepost/locks/x"]);
        let top = options("zk://h?root=/&names=raw");
        assert_eq!(path(&top, &name).unwrap(), "/orders/4821");
        for bad in ["zookeeper/x", "a/_c_x-lock-0000000001", "a\u{e000}", "a😀"] {
            assert!(matches!(path(&top, &bad.parse().unwrap()), Err(Fail::Invalid(_))), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_one_node_and_reads_back(name in "[ab%/.é😀\u{e000}\u{ffff} ]{1,6}") {
            let Ok(name) = name.parse::<LockName>() else { return Ok(()) };
            let options = options("zk://h?root=/l");
            let path = path(&options, &name).unwrap();
            let below = path.strip_prefix("/l/").unwrap();
            prop_assert!(!below.contains('/') && !below.chars().any(is_forbidden));
            prop_assert_eq!(lock(&options, below), Some(name));
        }

        #[test]
        fn any_two_near_numbers_keep_their_order(first in any::<i32>(), by in 1..i32::MAX) {
            let name = |number: i32| format!("_c_x-lock-{number:010}");
            let (a, b) = (name(first), name(first.wrapping_add(by)));
            prop_assert_eq!(Contender::parse(&a).unwrap().number, first);
            prop_assert_eq!(order(&[&b, &a]), [a.clone(), b.clone()]);
            prop_assert_eq!(order(&[&a, &b]), [a, b]);
        }
    }
}
