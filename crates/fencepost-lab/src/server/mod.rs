//! Real servers for a test: find the program, reserve a port, start, pause, stop.
//!
//! Nothing but loopback, nothing that outlives the test, nothing stopped except by the process id recorded at its start.

#[cfg(feature = "certificates")]
pub mod certificates;
mod clock;
pub mod etcd;
mod family;
mod nobody;
pub mod peers;
pub mod pgbouncer;
mod port;
pub mod postgres;
mod process;
mod program;
pub mod redis;
pub mod zookeeper;

pub use clock::Clock;
pub use nobody::{as_nobody, give_to_nobody};
pub use port::Port;
pub use process::Process;
pub use program::{Missing, ignored, require};

use std::io;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// A directory of its own for one server, which goes when the value is dropped. Keep it longer than the server.
///
/// # Errors
///
/// Whatever creating it reports.
pub fn home(label: &str) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(&format!("fencepost-{label}-")).tempdir()
}

/// A word as a part of a URL.
fn escape(word: &str) -> String {
    utf8_percent_encode(word, NON_ALPHANUMERIC).to_string()
}
