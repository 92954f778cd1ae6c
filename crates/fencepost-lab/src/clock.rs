//! Real time, for the parts of the lab that drive real processes and sockets.
//!
//! One clock serves every process of a run, so that their events can be compared: `CLOCK_BOOTTIME`, which counts
//! suspend and never steps.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine booted, suspend included.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux since 2.6.39 has CLOCK_BOOTTIME");
    Duration::from(now).as_nanos() as u64
}

/// Sleeps until [`now_ns`] has reached `at_ns`.
///
/// Cancel safe: dropping the future has no effect.
#[allow(
    clippy::disallowed_methods,
    reason = "the proxy delays real sockets, and no simulation runs through it"
)]
pub async fn sleep_until(at_ns: u64) {
    tokio::time::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns()))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_ends_at_its_moment_and_not_before() {
        let at = now_ns() + 20_000_000;
        sleep_until(at).await;
        assert!(now_ns() >= at);
        sleep_until(0).await;
    }
}
