//! The library's surroundings in the supervisor: its thread starts late, and for a short job never.
//!
//! A thread costs a short job a tenth of its time. The supervisor waits in one place and knows how to wait for a time, so a
//! task that has nothing to do for now is kept until that time has come. Everything else starts the thread at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost::SystemHost;
use fencepost::driver::{Fut, Host, Moment};

/// The host of a supervisor, which calls [`LateHost::start_due`] whenever it has waited.
#[derive(Default)]
pub(crate) struct LateHost(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    tasks: Vec<(Moment, Fut<'static, ()>)>,
    /// From then on nothing is kept: the thread is there.
    started: bool,
    /// When to try again, after the thread could not be started.
    again: Option<Moment>,
}

/// How long after that: whoever had too many processes or files open may have fewer then.
const AGAIN: Duration = Duration::from_secs(1);

impl LateHost {
    /// The time at which a kept task has something to do.
    pub(super) fn wake_at(&self) -> Option<u64> {
        let kept = self.kept();
        let due = kept.tasks.iter().map(|(at, _)| *at).min()?;
        Some(kept.again.map_or(due, |again| again.max(due)).as_nanos())
    }

    /// Starts the thread with what was kept, if the time has come.
    pub(super) fn start_due(&self) {
        if self.wake_at().is_some_and(|at| at <= self.now().as_nanos()) {
            self.start(&mut self.kept());
        }
    }

    /// Starts the thread with what was kept. A thread that cannot be started must not end us, who watch over a job: then
    /// all is kept for another try, and a lock that expires meanwhile is dealt with as one that cannot be renewed.
    fn start(&self, kept: &mut Kept) {
        if SystemHost.start().is_err() {
            kept.again = Some(self.now() + AGAIN);
            return;
        }
        kept.started = true;
        for (_, task) in kept.tasks.drain(..) {
            SystemHost.spawn(task);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for LateHost {
    fn now(&self) -> Moment {
        SystemHost.now()
    }

    fn sleep_until(&self, at: Moment) -> Fut<'static, ()> {
        SystemHost.sleep_until(at)
    }

    fn spawn(&self, task: Fut<'static, ()>) {
        let mut kept = self.kept();
        let now = self.now();
        kept.tasks.push((now, task));
        self.start(&mut kept);
    }

    fn spawn_later(&self, at: Moment, task: Fut<'static, ()>) {
        let mut kept = self.kept();
        if kept.started {
            SystemHost.spawn(task);
        } else {
            kept.tasks.push((at, task));
        }
    }

    fn within(&self, f: &mut dyn FnMut()) {
        SystemHost.within(f);
    }

    fn random(&self) -> u64 {
        SystemHost.random()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver};

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn keep(host: &LateHost, at: Moment) -> Receiver<()> {
        let (done, told) = mpsc::channel();
        host.spawn_later(at, Box::pin(async move { done.send(()).expect("the test waits") }));
        told
    }

    #[test]
    fn a_task_is_kept_until_its_time_has_come() {
        let host = LateHost::default();
        let at = host.now() + SOON;
        let told = keep(&host, at);
        assert_eq!(host.wake_at(), Some(at.as_nanos()));
        while host.now() < at {
            assert!(told.try_recv().is_err());
            host.start_due();
        }
        host.start_due();
        told.recv_timeout(Duration::from_secs(10)).expect("the task runs");
        assert_eq!(host.wake_at(), None);
    }

    #[test]
    fn once_the_thread_is_there_nothing_is_kept() {
        let host = LateHost::default();
        let far = host.now() + Duration::from_secs(3600);
        let early = keep(&host, far);
        host.spawn(Box::pin(async {}));
        let late = keep(&host, far);
        for told in [early, late] {
            told.recv_timeout(Duration::from_secs(10)).expect("the task runs");
        }
    }
}
