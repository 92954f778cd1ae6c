//! Signals that ask a scene to end: it then stops what it has started, and ends as they say.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
};

use nix::sys::signal::{SigSet, Signal};

use crate::sys;

/// The first such signal that arrived.
pub(super) struct Interrupt(Arc<AtomicI32>);

impl Interrupt {
    /// From here on such signals only count. To be called before there are other threads. A signal that our caller ignores,
    /// as under nohup, stays ignored.
    pub(super) fn watch() -> io::Result<Self> {
        let asks = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
        let set: SigSet = asks.into_iter().filter(|signal| !sys::ignores(*signal as i32)).collect();
        set.thread_block()?;
        let number = Arc::new(AtomicI32::new(0));
        let arrived = Arc::clone(&number);
        thread::Builder::new().name("signals".into()).spawn(move || {
            if let Ok(signal) = set.wait() {
                arrived.store(signal as i32, Ordering::Relaxed);
            }
        })?;
        Ok(Self(number))
    }

    pub(super) fn number(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }
}
