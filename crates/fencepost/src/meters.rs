//! Counters and histograms through the `metrics` facade, with the feature `metrics`; without it, everything here is empty.
//!
//! docs/metrics.md lists the names. The only labels are the backend's scheme and an outcome: a label with the lock's name
//! would make a time series of each lock.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "metrics")]
use crate::error::{Error, ErrorKind};
use crate::{
    claim::{Loss, State},
    driver::{Host, Renewed},
};

/// A label's name and its value.
type Label = (&'static str, &'static str);

#[cfg(feature = "metrics")]
fn count(name: &'static str, backend: &'static str, (label, value): Label) {
    metrics::counter!(name, "backend" => backend, label => value).increment(1);
}

#[cfg(not(feature = "metrics"))]
fn count(_: &'static str, _: &'static str, _: Label) {}

#[cfg(feature = "metrics")]
fn measure(
    name: &'static str,
    backend: &'static str,
    (label, value): Label,
    time: impl FnOnce() -> Duration,
) {
    metrics::histogram!(name, "backend" => backend, label => value).record(time());
}

#[cfg(not(feature = "metrics"))]
fn measure(_: &'static str, _: &'static str, _: Label, _: impl FnOnce() -> Duration) {}

/// Counts one acquire and measures how long it took, also one that its caller drops half way.
#[cfg(feature = "metrics")]
pub(crate) async fn attempt<T>(
    backend: &'static str,
    host: &Arc<dyn Host>,
    acquire: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut attempt = Attempt { backend, host: host.clone(), since: host.now(), outcome: "cancelled" };
    let answer = acquire.await;
    attempt.outcome = answer.as_ref().map_or_else(|error| outcome(error.kind()), |_| "ok");
    answer
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn attempt<F>(_: &'static str, _: &Arc<dyn Host>, acquire: F) -> F {
    acquire
}

/// An acquire that is under way.
#[cfg(feature = "metrics")]
struct Attempt {
    backend: &'static str,
    host: Arc<dyn Host>,
    since: crate::host::Moment,
    outcome: &'static str,
}

#[cfg(feature = "metrics")]
impl Drop for Attempt {
    fn drop(&mut self) {
        let outcome = ("outcome", self.outcome);
        count("fencepost_acquire_total", self.backend, outcome);
        measure("fencepost_wait_seconds", self.backend, outcome, || self.host.now().since(self.since));
    }
}

#[cfg(feature = "metrics")]
fn outcome(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Timeout => "timeout",
        ErrorKind::Lost => "lost",
        ErrorKind::Stale => "stale",
        ErrorKind::OtherLineage => "other_lineage",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Unknown => "unknown",
        ErrorKind::Denied => "denied",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Internal => "internal",
    }
}

/// A renewal of one claim had this fate.
pub(crate) fn renewed(backend: &'static str, fate: Renewed) {
    let outcome = match fate {
        Renewed::Extended(_) => "extended",
        Renewed::Lost => "lost",
        Renewed::Unknown => "unknown",
    };
    count("fencepost_renewals_total", backend, ("outcome", outcome));
}

/// A hold of this length has ended in this state.
pub(crate) fn ended(backend: &'static str, state: State, length: impl FnOnce() -> Duration) {
    let end = match state {
        State::Lost(loss) => {
            let reason = match loss {
                Loss::Deadline => "deadline",
                Loss::Gone => "gone",
                Loss::LeaseEnded => "lease_ended",
            };
            count("fencepost_losses_total", backend, ("reason", reason));
            "lost"
        }
        _ => "released",
    };
    measure("fencepost_hold_seconds", backend, ("end", end), length);
}
