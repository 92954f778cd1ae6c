//! Every exit status of the command, in one place.
//!
//! A command that runs under a lock keeps its own status; the numbers here are ours. They follow `sysexits.h` where
//! it has a fitting one, and stay clear of 125 to 165, which shells use.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// It went well.
pub(crate) const OK: u8 = 0;
/// A scene of the lab did not come out as expected.
#[cfg(feature = "scenes")]
pub(crate) const UNEXPECTED: u8 = 1;
/// Usage: the message names the flag and the fix.
pub(crate) const USAGE: u8 = 64;
/// The backend was not reached in time.
pub(crate) const UNREACHABLE: u8 = 69;
/// Internal error.
pub(crate) const INTERNAL: u8 = 70;
/// Not acquired in time, or held by somebody else and told not to wait.
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran, or its time was over: the command was stopped.
pub(crate) const LOST: u8 = 76;
/// Permission denied by the backend.
pub(crate) const DENIED: u8 = 77;
/// The URL or the deployment cannot give what was required.
pub(crate) const CONFIG: u8 = 78;
/// The gate has seen a higher token.
pub(crate) const STALE: u8 = 79;
/// It may or may not have happened: the message says what to do.
pub(crate) const UNKNOWN: u8 = 80;
/// The command was found and could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// The status for something that signal `number` ended.
pub(crate) fn of_signal(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// A finished command's own status, as a shell would tell it.
pub(crate) fn of_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => of_signal(signal),
        (None, None) => INTERNAL,
    }
}

/// The status for a command that could not be started.
pub(crate) fn of_spawn_error(error: &std::io::Error) -> u8 {
    if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}
