//! ZooKeeper's error codes, and what they mean for a request.
//!
//! Source: `KeeperException.Code` of Apache ZooKeeper.

use std::fmt;

use crate::driver::Fail;

/// An error code of the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const RUNTIME_INCONSISTENCY: Self = Self(-2);
    pub(crate) const MARSHALLING: Self = Self(-5);
    pub(crate) const UNIMPLEMENTED: Self = Self(-6);
    pub(crate) const NO_NODE: Self = Self(-101);
    pub(crate) const NO_AUTH: Self = Self(-102);
    pub(crate) const BAD_VERSION: Self = Self(-103);
    pub(crate) const NODE_EXISTS: Self = Self(-110);
    pub(crate) const SESSION_EXPIRED: Self = Self(-112);
    pub(crate) const INVALID_ACL: Self = Self(-114);
    pub(crate) const AUTH_FAILED: Self = Self(-115);
    pub(crate) const SESSION_MOVED: Self = Self(-118);
    pub(crate) const NEEDS_SASL: Self = Self(-124);

    /// Whether it surely says that nothing was done. The others may come of a reply that was broken on its way.
    pub(crate) fn is_a_refusal(self) -> bool {
        const LEAST: i32 = -125;
        // From -100 on the codes are answers about nodes, rights and sessions.
        self == Self::UNIMPLEMENTED || (LEAST..=-100).contains(&self.0)
    }

    /// What the code means for a request about `path`.
    pub(crate) fn fail(self, path: &str) -> Fail {
        match self {
            Self::SESSION_EXPIRED => Fail::NoLease,
            Self::NO_AUTH => Fail::Denied(format!(
                "zookeeper gives no permission; grant create, delete, read and write to the user of the url: path={path}"
            )),
            Self::AUTH_FAILED | Self::NEEDS_SASL => {
                Fail::Denied("zookeeper refuses the user or password".into())
            }
            Self::INVALID_ACL => Fail::Invalid(
                "the url's acl needs a user to be the creator; give user:password@, or leave acl out".into(),
            ),
            Self::UNIMPLEMENTED => Fail::Unsupported(
                "this zookeeper is older than 3.5, which has no container nodes; use 3.5 or later".into(),
            ),
            Self::NO_NODE => Fail::Invalid(format!("zookeeper has no such node: path={path}")),
            // The session is at another server: a new connection finds out.
            Self::SESSION_MOVED | Self(-4 | -7 | -127) => {
                Fail::Unavailable(format!("zookeeper could not serve the request: {self:?}"))
            }
            Self(-125) => Fail::Denied(format!("a quota of zookeeper is used up: path={path}")),
            Self(-119) => Fail::Unavailable("the server is read-only, it has lost its ensemble".into()),
            _ => Fail::Internal(format!("zookeeper says {self:?}: path={path}")),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::RUNTIME_INCONSISTENCY => "runtime inconsistency",
            Self::MARSHALLING => "marshalling error",
            Self::UNIMPLEMENTED => "unimplemented",
            Self::NO_NODE => "no node",
            Self::NO_AUTH => "no auth",
            Self::BAD_VERSION => "bad version",
            Self::NODE_EXISTS => "node exists",
            Self::SESSION_EXPIRED => "session expired",
            Self::INVALID_ACL => "invalid acl",
            Self::AUTH_FAILED => "auth failed",
            Self::SESSION_MOVED => "session moved",
            Self::NEEDS_SASL => "session closed, sasl is required",
            _ => "an error",
        };
        write!(f, "{name} ({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_the_next_move() {
        // What ZooKeeper 3.4 answers to a request for a container.
        assert!(
            matches!(Code::UNIMPLEMENTED.fail("/a"), Fail::Unsupported(text) if text.contains("older than 3.5"))
        );
        assert!(matches!(Code::NO_AUTH.fail("/a"), Fail::Denied(text) if text.ends_with("path=/a")));
        assert!(matches!(Code::SESSION_EXPIRED.fail("/a"), Fail::NoLease));
        assert!(
            matches!(Code::INVALID_ACL.fail("/a"), Fail::Invalid(text) if text.contains("user:password@"))
        );
        assert!(Code::SESSION_MOVED.fail("/a").is_passing() && Code(-127).fail("/a").is_passing());
    }
}
