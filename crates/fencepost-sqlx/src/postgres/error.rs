//! What the database said, as an error of Fencepost.

use std::io;

use fencepost::{
    Error, ErrorKind, Lineage, Token,
    gate::{OtherLineage, Refusal, Stale},
};
use serde_json::Value;
use sqlx::postgres::PgDatabaseError;

/// Says what an error of sqlx means for a caller, also one of your own statements: whether a write to a protected table was
/// not admitted, whether to repeat the transaction (`Unavailable`), and whether it may have been committed without a reply
/// (`Unknown`): then read before you repeat it.
///
/// The error is kept as the source.
pub fn explain(error: sqlx::Error) -> Error {
    let lost = match &error {
        sqlx::Error::Io(why) => !not_reached(why),
        sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(database) => database.code().is_some_and(|code| ends_without_a_word(&code)),
        _ => false,
    };
    if lost {
        let why = "the connection broke: if this was a COMMIT it may or may not have happened, so read before you repeat it";
        return Error::new(ErrorKind::Unknown, format!("{why}: {error}")).caused_by(error);
    }
    explain_repeatable(error)
}

/// Nothing was sent.
fn not_reached(why: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, NotFound};
    let kinds = [AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, NotFound];
    kinds.contains(&why.kind())
}

/// The SQLSTATEs after which a transaction may have been committed: the connection (but for those of connecting), an
/// unknown completion, and a session that was ended from outside.
fn ends_without_a_word(code: &str) -> bool {
    match code {
        "08001" | "08004" => false,
        "40003" | "57P01" | "57P02" | "57P04" | "57P05" => true,
        code => code.starts_with("08"),
    }
}

/// As [`explain`], for what may be repeated without a look: connecting, reading, and the calls of this module. What broke
/// is `Unavailable`.
pub fn explain_repeatable(error: sqlx::Error) -> Error {
    let meaning = match &error {
        sqlx::Error::Database(database) => match database.try_downcast_ref::<PgDatabaseError>() {
            Some(database) => said(database),
            None => Error::new(ErrorKind::Internal, database.message()),
        },
        sqlx::Error::Io(why) => Error::new(
            ErrorKind::Unavailable,
            format!("the database was not reached, or the connection broke: {why}"),
        ),
        sqlx::Error::Tls(why) => Error::new(
            ErrorKind::Unavailable,
            format!("no encrypted connection to the database, check sslmode and the certificates: {why}"),
        ),
        sqlx::Error::PoolTimedOut => Error::new(
            ErrorKind::Unavailable,
            "no connection of the pool was free in time: repeat, or allow more connections",
        ),
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
            Error::new(ErrorKind::Unavailable, "the pool of connections is closed")
        }
        sqlx::Error::Configuration(why) => {
            Error::new(ErrorKind::Invalid, format!("the database's url is not valid: {why}"))
        }
        sqlx::Error::Protocol(why) => Error::new(
            ErrorKind::Unavailable,
            format!("what answers is not PostgreSQL, or breaks its protocol: {why}"),
        ),
        other => Error::new(ErrorKind::Internal, format!("sqlx failed: {other}")),
    };
    meaning.caused_by(error)
}

/// What the gate says of a token that it has not recorded, where it was asked to raise nothing.
const NOT_RECORDED: &str = "FP004";

pub(super) fn is_not_recorded(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|database| database.code()).is_some_and(|code| code == NOT_RECORDED)
}

/// By SQLSTATE: those of our own first, then what a caller meets.
fn said(database: &PgDatabaseError) -> Error {
    let (code, message) = (database.code(), database.message());
    let as_it_is = |kind| Error::new(kind, format!("the database refused: {message}"));
    match code {
        "FP001" | "FP002" | "FP003" => {
            refusal(code, database).unwrap_or_else(|| as_it_is(ErrorKind::Internal))
        }
        // Recorded a moment ago, and set back since.
        NOT_RECORDED => as_it_is(ErrorKind::Unavailable),
        "40001" | "40P01" => Error::new(
            ErrorKind::Unavailable,
            format!("the transaction gave way to another one: repeat the whole of it, code={code}"),
        ),
        "55P03" | "57014" => Error::new(
            ErrorKind::Unavailable,
            format!(
                "the time limit was over: another transaction may hold the gate, repeat or end that one, code={code}"
            ),
        ),
        "25006" => Error::new(
            ErrorKind::Unsupported,
            format!(
                "the gate cannot be raised here, use a transaction on the primary that may write: {message}"
            ),
        ),
        "42883" | "42P01" | "3F000" if message.contains("fencepost") => Error::new(
            ErrorKind::Unsupported,
            "the gate is not installed in this database: run `fencepost gate install`",
        ),
        "42501" if message.contains("fencepost") && message.starts_with("permission denied") => Error::new(
            ErrorKind::Denied,
            format!("{message}: let the gate's owner run `fencepost gate install --grant ROLE`"),
        ),
        "42501" | "28000" | "28P01" => as_it_is(ErrorKind::Denied),
        "2BP01" => Error::new(
            ErrorKind::Invalid,
            "tables are protected by the gate: call fencepost_unprotect for each of them first, or give --yes",
        ),
        "42710" if message.contains("\"fencepost_") => Error::new(
            ErrorKind::Invalid,
            format!("the table is protected by itself: call fencepost_unprotect for it first, {message}"),
        ),
        "0A000" | "55000" => as_it_is(ErrorKind::Unsupported),
        "3D000" | "42704" => as_it_is(ErrorKind::Invalid),
        _ => as_it_is(match code.get(..2) {
            // A connection, resources, an operator, the system.
            Some("08" | "53" | "57" | "58") => ErrorKind::Unavailable,
            // What the caller has given.
            Some("22" | "23" | "42") => ErrorKind::Invalid,
            _ => ErrorKind::Internal,
        }),
    }
}

/// The facts are in DETAIL, as JSON.
fn refusal(code: &str, database: &PgDatabaseError) -> Option<Error> {
    let facts: Value = serde_json::from_str(database.detail()?).ok()?;
    let text = |key: &str| facts.get(key).and_then(Value::as_str);
    let token = |key| text(key)?.parse::<Token>().ok();
    let refusal = match code {
        "FP001" => Stale { presented: token("presented")?, highest: token("highest")? }.into(),
        "FP002" => {
            let lineage = |key| text(key).map(Lineage::new);
            OtherLineage { presented: lineage("presented")?, recorded: lineage("recorded")? }.into()
        }
        _ => Refusal::NotAdmitted,
    };
    Some(refusal.at(text("resource").unwrap_or("unknown")))
}
