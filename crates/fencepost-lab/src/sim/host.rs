//! Simulated time, tasks and randomness: one seed, one run.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use fencepost::driver::{Fut, Host, Moment};
use tokio::time::Instant;

/// A small seeded generator (splitmix64, Steele et al. 2014): a run draws from one, so its seed replays it.
#[derive(Debug)]
pub(crate) struct Dice(Mutex<u64>);

impl Dice {
    /// Dice that fall as `seed` says.
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(seed)))
    }

    /// The next 64 bits.
    pub(crate) fn roll(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&self, n: u64) -> u64 {
        self.roll() % n.max(1)
    }

    /// True in `percent` of a hundred cases.
    pub(super) fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A duration up to `most`.
    pub(super) fn up_to(&self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as u64 + 1))
    }
}

/// The world's clock: zero when the simulation starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    /// A clock that starts now. Needs a runtime with paused time.
    #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// The true time since the start.
    #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
    pub(super) fn now(self) -> Duration {
        Instant::now().duration_since(self.0)
    }

    /// Sleeps for `by`.
    #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
    pub(super) async fn sleep(self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

/// Spawns a task of the world itself: the network, the server, the weather. It is never paused.
#[allow(clippy::disallowed_methods, reason = "the simulation's own tasks")]
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// One simulated process: its tasks stand still while it is paused, and its clock goes on.
#[derive(Debug)]
pub(super) struct SimHost {
    clock: Clock,
    dice: Arc<Dice>,
    paused: AtomicBool,
    stopped: Mutex<Vec<Waker>>,
}

impl SimHost {
    /// A running process.
    pub(super) fn new(clock: Clock, dice: Arc<Dice>) -> Arc<Self> {
        Arc::new(Self { clock, dice, paused: AtomicBool::new(false), stopped: Mutex::default() })
    }

    /// Stops the process as SIGSTOP does.
    pub(super) fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
    }

    /// Continues it.
    pub(super) fn resume(&self) {
        self.paused.store(false, Ordering::Relaxed);
        for waker in self.stopped.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            waker.wake();
        }
    }

    /// Whether the process stands still.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// `task` as this process runs it.
    pub(super) fn process<T>(self: &Arc<Self>, task: Fut<'static, T>) -> Process<T> {
        Process { host: self.clone(), task }
    }
}

/// A task that stands still while its process is paused.
pub(super) struct Process<T> {
    host: Arc<SimHost>,
    task: Fut<'static, T>,
}

impl<T> Future for Process<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if self.host.is_paused() {
            self.host.stopped.lock().unwrap_or_else(PoisonError::into_inner).push(cx.waker().clone());
            return Poll::Pending;
        }
        self.task.as_mut().poll(cx)
    }
}

/// The host that a locker gets: `SimHost` behind the library's trait.
#[derive(Clone, Debug)]
pub(super) struct Running(pub(super) Arc<SimHost>);

impl Host for Running {
    fn now(&self) -> Moment {
        // Away from zero, where every subtraction would saturate and hide a fault.
        Moment::from_nanos((Duration::from_secs(1000) + self.0.clock.now()).as_nanos() as u64)
    }

    fn sleep_until(&self, at: Moment) -> Fut<'static, ()> {
        let (clock, left) = (self.0.clock, at.since(self.now()));
        Box::pin(async move { clock.sleep(left).await })
    }

    fn spawn(&self, task: Fut<'static, ()>) {
        spawn(self.0.process(task));
    }

    fn spawn_later(&self, _at: Moment, task: Fut<'static, ()>) {
        self.spawn(task);
    }

    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }

    fn random(&self) -> u64 {
        self.0.dice.roll()
    }
}
