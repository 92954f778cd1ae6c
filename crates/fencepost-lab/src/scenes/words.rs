//! What happened, in sentences.

use super::act::{Act, Late, Store};
use super::outcome::{LateWrite, Outcome};
use super::shelf::Stock;
use crate::checker::{Finding, Rule};
use crate::history::{Event, Kind, Outcome as Answer, Phase};

/// The note of a fault that stops a worker.
pub(super) const STOPPED: &str = "SIGSTOP";

/// The note of a fault that lets it go on.
pub(super) const CONTINUED: &str = "SIGCONT";

/// One event for people who watch, if it means something to them.
pub(super) fn moment(event: &Event) -> Option<String> {
    let (who, note) = (&event.lane, event.note.as_deref().unwrap_or("?"));
    let token = event.token.map(|token| format!(" with token {token}")).unwrap_or_default();
    Some(match (event.kind, event.phase, event.outcome) {
        (Kind::Acquire, Some(Phase::Invoke), _) => format!("{who} asks for the lock"),
        (Kind::Acquire, Some(Phase::Return), Some(Answer::Ok)) => format!("{who} has the lock{token}"),
        (Kind::Read, Some(Phase::Return), _) => format!("{who} reads {note}"),
        (Kind::Write, Some(Phase::Return), Some(Answer::Ok)) => format!("{who} writes {note}: accepted"),
        (Kind::Write, Some(Phase::Return), Some(Answer::Stale)) => format!("{who} writes {note}: rejected"),
        (Kind::Release, Some(Phase::Return), Some(Answer::Ok)) => format!("{who} gives the lock back"),
        (Kind::Fault, ..) if note == STOPPED => format!("{who} is stopped in the middle of its work"),
        (Kind::Fault, ..) if note == CONTINUED => format!("{who} goes on"),
        _ => return None,
    })
}

/// What came out of an act, in a few sentences.
pub(super) fn came_out(act: &Act, outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.late.iter().map(|write| of_late(act, write)).collect();
    let (confirmed, left) = (outcome.verdict.acknowledged, &outcome.left);
    let sales = if confirmed == 1 {
        "1 sale was confirmed".to_owned()
    } else {
        format!("{confirmed} sales were confirmed")
    };
    lines.push(match outcome.verdict.lost {
        0 => format!("{sales}, and {left} are left: nothing is lost."),
        lost => {
            let right = Stock::full().left - i32::try_from(confirmed).unwrap_or(i32::MAX);
            let names = missing(outcome);
            let of = if lost == 1 {
                format!("the sale of {names} is")
            } else {
                format!("the sales of {names} are")
            };
            format!("{sales}, so {right} should be left, but the stock says {left}: {of} LOST.")
        }
    });
    lines
}

fn of_late(act: &Act, write: &LateWrite) -> String {
    let (who, next, late) = (&write.lane, &write.next, seconds(write.by_ns));
    let place = match act.store {
        Store::File => "file",
        Store::Postgres => "database",
    };
    let number = |token: Option<u64>| token.map_or("no token".to_owned(), |token| format!("token {token}"));
    match (write.what, write.token) {
        (Late::Accepted, None) => {
            format!("{who} wrote {late} after its lock had gone to {next}, and the {place} ACCEPTED it.")
        }
        (Late::Accepted, token) => format!(
            "{who} wrote {late} after its lock had gone to {next}, with {}, the highest that the {place} had seen: ACCEPTED.",
            number(token)
        ),
        (Late::Rejected, token) => format!(
            "{who} wrote {late} after its lock had gone to {next}, with {}. The {place} had seen {}, and REJECTED it: {who} \
             knows that its sale was not made.",
            number(token),
            number(write.highest)
        ),
    }
}

fn missing(outcome: &Outcome) -> String {
    let of_updates = |finding: &&Finding| finding.rule == Rule::Updates;
    let names =
        outcome.verdict.findings.iter().filter(of_updates).flat_map(|finding| finding.parties.clone());
    names.collect::<Vec<_>>().join(" and ")
}

fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}
