//! Owner records: who made a claim, as `status` and error messages show it.

use std::{
    fmt,
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// The longest label, in bytes; a longer one is refused.
pub const MAX_LABEL_BYTES: usize = 255;

/// The longest value, in bytes; a longer one is refused.
pub const MAX_VALUE_BYTES: usize = 1024;

/// Who made a claim: for people to read, never compared to decide ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The machine's host name.
    pub host: String,
    /// The process id on that machine.
    pub pid: u32,
    /// What the user called the work, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What a candidate or a leader tells those who observe its election, such as its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// When the claim was made, in milliseconds of wall time since 1970.
    pub since_ms: u64,
}

impl Owner {
    /// This process, now.
    pub fn here(label: Option<String>) -> Self {
        Self {
            host: host_name().to_owned(),
            pid: std::process::id(),
            label,
            value: None,
            since_ms: wall_ms(),
        }
    }

    /// When the claim was made.
    pub fn since(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.since_ms)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} on {}", self.pid, self.host)?;
        match &self.label {
            Some(label) => write!(f, " ({label})"),
            None => Ok(()),
        }
    }
}

/// Milliseconds of wall time since 1970. For people: nothing is ever decided by it.
#[allow(clippy::disallowed_methods, reason = "the one place that reads wall time")]
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match name.trim() {
            "" => "localhost".to_owned(),
            name => name.to_owned(),
        }
    })
}
