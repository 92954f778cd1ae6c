//! `fencepost gate show`: what a gate has recorded.

use std::io::{self, Write, stdout};

use fencepost::gate::Mark;
use serde_json::json;

use super::place::Place;
use crate::{args, exit, report};

pub(super) fn show(place: &Place, args: &args::Show) -> Result<(), u8> {
    let marks = place.marks(args.resource.as_deref())?;
    match print(&marks, args.json, &place.name()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(report::fail(exit::INTERNAL, format_args!("cannot write the answer: {error}")))
        }
        _ => Ok(()),
    }
}

fn print(marks: &[(String, Mark)], as_json: bool, gate: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    for (resource, mark) in marks {
        if as_json {
            let Mark { highest, lineage } = mark;
            // The stable form: documented in docs/cli.md.
            writeln!(
                out,
                "{}",
                json!({ "resource": resource, "gate": gate, "highest": highest, "lineage": lineage })
            )?;
        } else {
            writeln!(out, "{resource}\t{}, at {gate}", words(mark))?;
        }
    }
    out.flush()
}

pub(super) fn words(mark: &Mark) -> String {
    match (mark.highest, &mark.lineage) {
        (None, None) => "no token".into(),
        (None, Some(lineage)) => format!("no token, lineage {lineage}"),
        (Some(highest), None) => format!("highest {highest}"),
        (Some(highest), Some(lineage)) => format!("highest {highest}, lineage {lineage}"),
    }
}
