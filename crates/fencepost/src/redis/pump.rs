//! Who drives a connection: a task of the host, and whoever sends.
//!
//! The `redis` crate hands its side of a connection over as a future. A task of the host polls it. Whoever sends a request
//! while no other is under way polls it on the spot: the bytes are then written on the thread that sends, and do not wait
//! until the host's thread is awake. Nor is that thread woken only to find nothing left to do: what the future wakes is a
//! [`Bell`], which is hushed while the sender is about to look for itself.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use crate::host::Fut;

/// The crate's side of the connection.
pub(super) struct Pump {
    future: Mutex<Option<Fut<'static, ()>>>,
    bell: Arc<Bell>,
    is_over: AtomicBool,
    /// The task came while another thread was at it.
    is_missed: AtomicBool,
    /// How many requests are under way.
    requests: AtomicUsize,
}

impl Pump {
    pub(super) fn new(future: Fut<'static, ()>) -> Self {
        Self {
            future: Mutex::new(Some(future)),
            bell: Arc::default(),
            is_over: AtomicBool::new(false),
            is_missed: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
        }
    }

    /// Whether the future has not come to its end.
    pub(super) fn is_open(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    /// Gives the future up.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(mut future) = self.try_future() {
            *future = None;
        }
        self.bell.ring();
    }

    /// The host's task.
    pub(super) fn run(&self, cx: &mut Context<'_>) -> Poll<()> {
        *self.bell.task() = Some(cx.waker().clone());
        // The thread that nudges may be one that seldom runs: it is not waited for, and wakes us when it is done.
        if let Some(mut future) = self.try_future() {
            return self.step(&mut future);
        }
        self.is_missed.store(true, Ordering::SeqCst);
        // Once more: whoever was done before the line above has not seen what it says.
        match self.try_future() {
            Some(mut future) => self.step(&mut future),
            None => Poll::Pending,
        }
    }

    fn step(&self, future: &mut Option<Fut<'static, ()>>) -> Poll<()> {
        if self.is_over.load(Ordering::Acquire) {
            *future = None;
        }
        let Some(running) = future else { return Poll::Ready(()) };
        let bell = Waker::from(self.bell.clone());
        let over = Pin::new(running).poll(&mut Context::from_waker(&bell));
        if over.is_ready() {
            self.is_over.store(true, Ordering::Release);
            *future = None;
        }
        over
    }

    /// Awaits a reply; a request that is alone is written on the spot.
    pub(super) async fn drive<T>(&self, mut request: Fut<'_, T>) -> T {
        let alone = self.requests.fetch_add(1, Ordering::Relaxed) == 0;
        let _counted = Counted(&self.requests);
        let mut is_in_line = !alone;
        poll_fn(|cx| {
            if std::mem::replace(&mut is_in_line, true) {
                return request.as_mut().poll(cx);
            }
            let hush = Hush::new(&self.bell);
            let answer = request.as_mut().poll(cx);
            hush.end(answer.is_pending() && self.nudge());
            answer
        })
        .await
    }

    fn try_future(&self) -> Option<MutexGuard<'_, Option<Fut<'static, ()>>>> {
        match self.future.try_lock() {
            Ok(future) => Some(future),
            Err(TryLockError::Poisoned(future)) => Some(future.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Polls the future here; false if another thread is at it now, which may have missed what has just come.
    fn nudge(&self) -> bool {
        let Some(mut future) = self.try_future() else { return false };
        // From here on the bell is for what comes after this look.
        self.bell.is_hushed.store(false, Ordering::SeqCst);
        let over = self.step(&mut future).is_ready();
        drop(future);
        if self.is_missed.swap(false, Ordering::SeqCst) || over {
            self.bell.ring();
        }
        true
    }
}

/// Wakes the host's task, or not if somebody is about to look for himself.
#[derive(Default)]
struct Bell {
    task: Mutex<Option<Waker>>,
    is_hushed: AtomicBool,
}

impl Bell {
    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let task = self.task().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_hushed.load(Ordering::SeqCst) {
            self.ring();
        }
    }
}

/// While it is there the bell is still. At its end the bell rings for what was missed, unless that was looked after; also
/// when the request panics.
struct Hush<'a> {
    bell: &'a Bell,
    is_looked_after: bool,
}

impl<'a> Hush<'a> {
    fn new(bell: &'a Bell) -> Self {
        bell.is_hushed.store(true, Ordering::SeqCst);
        Self { bell, is_looked_after: false }
    }

    fn end(mut self, is_looked_after: bool) {
        self.is_looked_after = is_looked_after;
    }
}

impl Drop for Hush<'_> {
    fn drop(&mut self) {
        self.bell.is_hushed.store(false, Ordering::SeqCst);
        if !self.is_looked_after {
            self.bell.ring();
        }
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A pump with its host's task, the polls of its future, and what that waits for.
    struct Scene {
        pump: Pump,
        task: Arc<Count>,
        polls: Arc<AtomicUsize>,
        waits: Arc<Mutex<Option<Waker>>>,
    }

    impl Scene {
        fn new() -> Self {
            let (polls, waits) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
            let (polled, waiting) = (polls.clone(), waits.clone());
            let future = poll_fn(move |cx| {
                polled.fetch_add(1, Ordering::SeqCst);
                *waiting.lock().unwrap() = Some(cx.waker().clone());
                Poll::Pending
            });
            let scene = Self { pump: Pump::new(Box::pin(future)), task: Arc::default(), polls, waits };
            assert!(scene.pump.run(&mut Context::from_waker(&Waker::from(scene.task.clone()))).is_pending());
            scene
        }

        /// Something comes into the queue of the future.
        fn push(&self) {
            self.waits.lock().unwrap().clone().expect("it was polled").wake();
        }

        /// Sends a request that is not answered at once.
        fn send(&self) {
            let request: Fut<'_, ()> = Box::pin(poll_fn(|_| {
                self.push();
                Poll::Pending
            }));
            let mut sent = Box::pin(self.pump.drive(request));
            assert!(sent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }

        fn seen(&self) -> (usize, usize) {
            (self.polls.load(Ordering::SeqCst), self.task.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn a_request_is_written_where_it_is_sent_and_wakes_nobody() {
        let scene = Scene::new();
        scene.send();
        assert_eq!(scene.seen(), (2, 0));
        scene.push();
        assert_eq!(scene.seen(), (2, 1), "the answer wakes the task");
    }

    #[test]
    fn a_request_that_comes_while_another_thread_drives_wakes_the_task() {
        let scene = Scene::new();
        let driving = scene.pump.future.lock().unwrap();
        scene.send();
        drop(driving);
        assert_eq!(scene.seen(), (1, 1));
    }

    #[test]
    fn a_request_that_panics_leaves_no_silence() {
        let scene = Scene::new();
        let request: Fut<'_, ()> = Box::pin(async {
            scene.push();
            panic!("on purpose")
        });
        let mut sent = Box::pin(scene.pump.drive(request));
        let poll = || sent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll)).is_err());
        assert_eq!(scene.seen(), (1, 1), "what was missed is made up for");
        scene.push();
        assert_eq!(scene.seen(), (1, 2));
    }
}
