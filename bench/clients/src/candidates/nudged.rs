//! The crate `redis`, with its driver polled once on the caller's thread after a command was queued, so that the bytes
//! leave at once instead of waking the thread that owns the connection.

use std::{
    cell::Cell,
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use super::{Answer, Candidate, redis as plain};
use crate::{Outcome, host::offload};

thread_local! {
    /// Set while this thread queues a command. It polls the driver next, so nobody else must be woken for that.
    static QUEUEING: Cell<bool> = const { Cell::new(false) };
}

/// The driver's only waker. It wakes the task that owns the driver, whoever polled last.
#[derive(Default)]
struct Bell(Mutex<Option<Waker>>);

impl Bell {
    fn ring(&self) {
        if let Some(owner) = &*self.0.lock().expect("no waker panics") {
            owner.wake_by_ref();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !QUEUEING.get() {
            self.ring();
        }
    }
}

/// Which commands are followed by a nudge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// Not those that find others in flight: in a crowd, many commands go into one write.
    Alone,
}

struct Driver {
    when: When,
    in_flight: AtomicUsize,
    /// Taken when it has ended.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl Driver {
    fn new(future: impl Future<Output = ()> + Send + 'static, when: When) -> Arc<Self> {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        Arc::new(Self {
            when,
            in_flight: AtomicUsize::new(0),
            future: Mutex::new(Some(Box::pin(future))),
            bell,
            waker,
        })
    }

    /// What the owning task does until the connection ends.
    async fn own(self: Arc<Self>) {
        poll_fn(|cx| {
            *self.bell.0.lock().expect("no waker panics") = Some(cx.waker().clone());
            self.poll(&mut self.future.lock().expect("no poll panics"))
        })
        .await;
    }

    /// What a caller does after it has queued a command: polls, or sees to it that somebody does.
    fn nudge(&self) {
        let polled = self.future.try_lock().map(|mut future| self.poll(&mut future));
        // Whoever has the driver may have looked before the command was there; and the end is for its owner to see.
        if !matches!(polled, Ok(Poll::Pending)) {
            self.bell.ring();
        }
    }

    fn poll(&self, future: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) -> Poll<()> {
        let Some(running) = future else { return Poll::Ready(()) };
        let polled = running.as_mut().poll(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            *future = None;
        }
        polled
    }
}

pub(super) struct Nudged {
    connection: MultiplexedConnection,
    driver: Arc<Driver>,
}

impl Nudged {
    pub(super) async fn connect(addr: SocketAddr, owner: &Handle, when: When) -> Outcome<Self> {
        let stream = owner.spawn(plain::stream(addr)).await??;
        let (info, config) = (plain::info(), plain::config());
        let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config).await?;
        let driver = Driver::new(driver, when);
        owner.spawn(Arc::clone(&driver).own());
        Ok(Self { connection, driver })
    }

    pub(super) fn candidate(self, name: &'static str) -> Candidate {
        let inner = plain::candidate(name, self.connection);
        let (driver, again) = (Arc::clone(&self.driver), self.driver);
        let (call, batch) = (inner.call, inner.batch.expect("the crate has pipelines"));
        Candidate {
            name,
            call: Box::new(move |key| Box::pin(nudge(Arc::clone(&driver), call(key)))),
            batch: Some(Box::new(move |key, size| Box::pin(nudge(Arc::clone(&again), batch(key, size))))),
        }
    }

    pub(super) fn offloaded(self, name: &'static str, there: Handle) -> Candidate {
        let inner = self.candidate(name);
        Candidate { call: Box::new(move |key| Box::pin(offload(there.clone(), (inner.call)(key)))), ..inner }
    }
}

/// One command in flight.
struct Flight<'a>(&'a Driver);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Queues a command by its first poll, and then has its bytes written.
async fn nudge<T>(driver: Arc<Driver>, mut command: Answer<T>) -> Outcome<T> {
    let others = driver.in_flight.fetch_add(1, Ordering::Relaxed);
    let _flight = Flight(&driver);
    if driver.when == When::Alone && others > 0 {
        return command.await;
    }
    QUEUEING.set(true);
    let queued = poll_fn(|cx| Poll::Ready(command.as_mut().poll(cx))).await;
    QUEUEING.set(false);
    driver.nudge();
    match queued {
        Poll::Ready(done) => done,
        Poll::Pending => command.await,
    }
}
