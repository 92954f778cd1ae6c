//! What goes to stderr: one line each, `fencepost: …`, and the exit status that belongs to an error.

use std::fmt::Display;

use fencepost::{Error, ErrorKind};

use crate::exit;

/// Tells a person something that is not an error.
pub(crate) fn note(text: impl Display) {
    eprintln!("fencepost: {}", plain(&text.to_string()));
}

/// Tells what went wrong, and answers the exit status to end with.
pub(crate) fn fail(code: u8, text: impl Display) -> u8 {
    note(text);
    code
}

/// Without the number that std puts behind the system's words.
fn plain(text: &str) -> String {
    match text.split_once(" (os error ") {
        Some((before, rest)) => format!("{before}{}", rest.split_once(')').map_or("", |(_, after)| after)),
        None => text.to_owned(),
    }
}

/// Tells an error of the library.
pub(crate) fn error(error: &Error) -> u8 {
    fail(code(error), error)
}

/// The exit status for an error of the library.
pub(crate) fn code(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Timeout => exit::NOT_ACQUIRED,
        ErrorKind::Lost => exit::LOST,
        ErrorKind::Stale => exit::STALE,
        ErrorKind::Unavailable => exit::UNREACHABLE,
        ErrorKind::Unknown => exit::UNKNOWN,
        ErrorKind::Denied => exit::DENIED,
        ErrorKind::Invalid => exit::USAGE,
        ErrorKind::Unsupported | ErrorKind::OtherLineage => exit::CONFIG,
        _ => exit::INTERNAL,
    }
}

/// A usage error of the argument parser in one line, or its help or version as they are.
pub(crate) fn usage(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        // Help that cannot be printed, as into a closed pipe, is nobody's loss.
        let _ = error.print();
        return exit::OK;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return fail(exit::USAGE, "no command was given (fencepost --help lists them)");
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    // The tip to pass something "as a value" would have it taken for the command.
    let noise =
        |line: &str| line.is_empty() || line.starts_with("For more") || line.starts_with("tip: to pass");
    let lines = lines.filter(|line| !noise(line));
    let text = lines
        .map(|line| line.trim_start_matches("error: "))
        .collect::<Vec<_>>()
        .join("; ")
        .replace(":;", ":");
    fail(exit::USAGE, format_args!("{text} (fencepost --help shows how)"))
}
