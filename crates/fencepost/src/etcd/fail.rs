//! What a refusal of etcd's means for the request that it answers.
//!
//! Source: `etcdserver/api/v3rpc/rpctypes/error.go`, whose sentences are a part of the protocol: several mean different things under one
//! code.

use std::error::Error;

use tonic::{Code, Status};

use crate::driver::Fail;

/// The server does not know the login that the request came with: it was restarted, the login was idle for too long, or
/// somebody has changed users. Nothing was carried out.
pub(super) fn wants_login(status: &Status) -> bool {
    let said = status.message();
    said.contains("invalid auth token") || said.contains("revision of auth store is old")
}

/// The endpoint is of no use at present; another one may be.
pub(super) fn is_of_the_endpoint(status: &Status) -> bool {
    let said = status.message();
    ["no leader", "server stopped", "not capable", "not supported for learner", "raft: stopped"]
        .iter()
        .any(|word| said.contains(word))
}

/// The failure that a refused request is.
pub(super) fn fail(status: &Status) -> Fail {
    let heard = status.message().lines().next().unwrap_or_default();
    let said = format!("etcd says: {}", heard.trim_start_matches("etcdserver: "));
    let has = |words: &[&str]| words.iter().any(|word| heard.contains(word));
    match status.code() {
        Code::NotFound if has(&["lease not found"]) => Fail::NoLease,
        _ if wants_login(status) => Fail::Unavailable(said),
        _ if has(&["user name is empty"]) => {
            Fail::Denied("etcd wants a user and a password; write user:password@ in the url".into())
        }
        _ if has(&["authentication failed", "password"]) => {
            Fail::Denied(format!("the user or the password is wrong: {said}"))
        }
        _ if has(&["authentication is not enabled"]) => Fail::Invalid(
            "etcd's authentication is off, and the url has a user; leave user and password out, or switch it on".into(),
        ),
        Code::PermissionDenied => Fail::Denied(format!(
            "the user lacks a right; grant readwrite on the lock's prefix, as docs/etcd.md shows: {said}"
        )),
        Code::Unauthenticated => Fail::Denied(said),
        // It ends, and what it had proposed may be carried out by the others.
        _ if has(&["server stopped", "raft: stopped"]) => Fail::Unknown(said),
        _ if is_of_the_endpoint(status) => Fail::Unavailable(said),
        _ if has(&["database space exceeded"]) => {
            Fail::Unavailable(format!("the cluster takes no writes until its space is freed and the alarm is off: {said}"))
        }
        _ if has(&["too many requests", "corrupt cluster", "is compacted", "has been compacted"]) => {
            Fail::Unavailable(said)
        }
        Code::Unimplemented => {
            Fail::Unsupported(format!("it does not speak the API of etcd 3.4 or later: {said}"))
        }
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => Fail::Internal(said),
        // Also etcd's own time limit, and a leader that changed: the request may have been carried out.
        _ if heard.starts_with("etcdserver: ") => Fail::Unknown(said),
        _ => Fail::Unknown(format!("the connection to etcd broke: {}", cause(status))),
    }
}

/// What the connection died of: each layer above calls it only an error of the one below.
pub(super) fn cause(status: &Status) -> String {
    let mut cause: &dyn Error = status;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text = if status.source().is_some() { cause.to_string() } else { status.message().to_owned() };
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_ends_leaves_the_outcome_open_and_is_left() {
        for said in ["etcdserver: server stopped", "raft: stopped"] {
            for code in [Code::Unavailable, Code::Unknown] {
                let status = Status::new(code, said);
                assert!(matches!(fail(&status), Fail::Unknown(_)) && is_of_the_endpoint(&status), "{said}");
            }
        }
        let status = Status::new(Code::Unavailable, "etcdserver: no leader");
        assert!(matches!(fail(&status), Fail::Unavailable(_)) && is_of_the_endpoint(&status));
    }
}
