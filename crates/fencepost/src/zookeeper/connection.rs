//! One connection, which serves one session: requests go out in the order of the calls, several of one call in one piece,
//! and are answered in that order.
//!
//! A task of the host reads and writes. Whoever sends while nothing else is under way does that task's work once on the
//! spot, with the task's waker: the bytes are then written on the thread that sends, and do not wait until the host's
//! thread is awake.
//!
//! Invariants:
//! 1. A request is written once, on this connection or on none.
//! 2. What was sent and is unanswered when the connection ends is answered "unknown".
//! 3. Watches are told of before the replies that were sent after them.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use super::{
    code::Code,
    request::{Reply, Request},
    wire::{MAX_FRAME, Reader, Writer},
};
use crate::{driver::Fail, host::Moment, net::Stream};

/// The number of what the server says unasked.
const EVENT_XID: i32 = -1;

/// Who is told what the server says unasked. None of these may block.
pub(crate) trait Listener: Send + Sync {
    /// A watched node was deleted, or changed in another way.
    fn changed(&self, path: &str, is_deleted: bool);

    /// The connection ended: what happens from now on is not told.
    fn cut(&self);
}

pub(super) struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    line: Mutex<Line>,
    io: Mutex<Option<Io>>,
    /// The task's.
    waker: Mutex<Option<Waker>>,
    /// The task came while another thread was at it.
    is_missed: AtomicBool,
    is_over: AtomicBool,
    /// The latest change of the ensemble that the session has heard of.
    seen: Arc<AtomicI64>,
    listener: Arc<dyn Listener>,
}

/// What is to be written, and who waits for replies.
#[derive(Default)]
struct Line {
    out: Vec<u8>,
    xid: i32,
    batches: VecDeque<Batch>,
}

/// The requests of one call.
struct Batch {
    sent: Moment,
    wanted: usize,
    replies: Vec<Reply>,
    answer: oneshot::Sender<Vec<Reply>>,
}

struct Io {
    stream: Box<dyn Stream>,
    out: Vec<u8>,
    written: usize,
    is_flushed: bool,
    input: Vec<u8>,
    /// The number of the next reply.
    expected: i32,
}

impl Connection {
    /// A connection whose first words are said; answers also what a task of the host must run.
    pub(super) fn new(
        stream: Box<dyn Stream>,
        seen: Arc<AtomicI64>,
        listener: Arc<dyn Listener>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let shared = Arc::new(Shared {
            line: Mutex::default(),
            io: Mutex::new(Some(Io {
                stream,
                out: Vec::new(),
                written: 0,
                is_flushed: true,
                input: Vec::new(),
                expected: 1,
            })),
            waker: Mutex::default(),
            is_missed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            seen,
            listener,
        });
        let running = shared.clone();
        let run = async move {
            poll_fn(|cx| running.run(cx)).await;
            running.end();
            running.listener.cut();
        };
        (Self { shared }, run)
    }

    /// Whether a request can still be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.shared.is_over.load(Ordering::Acquire)
    }

    /// When the oldest request was sent that is still unanswered.
    pub(super) fn waits_since(&self) -> Option<Moment> {
        lock(&self.shared.line).batches.front().map(|batch| batch.sent)
    }

    /// Ends the connection, whatever is under way.
    pub(super) fn hang_up(&self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Ok(mut io) = self.shared.io.try_lock() {
            *io = None;
        }
        self.shared.wake();
    }

    /// Sends the requests in one piece and answers their replies. They are on their way when this returns.
    ///
    /// The future fails with [`Fail::Unavailable`] if surely nothing was sent, and with [`Fail::Unknown`] if it may have
    /// been.
    pub(super) fn send(
        &self,
        requests: &[Request],
        now: Moment,
    ) -> impl Future<Output = Result<Vec<Reply>, Fail>> + Send + use<> {
        let answered = self.shared.put(requests, now);
        async move {
            match answered {
                None => Err(Fail::Unavailable("the connection to zookeeper is closed".into())),
                Some(answered) => {
                    answered.await.map_err(|_| Fail::Unknown("the connection to zookeeper broke".into()))
                }
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.hang_up();
    }
}

impl Shared {
    fn put(&self, requests: &[Request], now: Moment) -> Option<oneshot::Receiver<Vec<Reply>>> {
        let (answer, answered) = oneshot::channel();
        let mut line = lock(&self.line);
        // Under the lock: whoever ends the connection empties the line after it has said so.
        if self.is_over.load(Ordering::Acquire) {
            return None;
        }
        let is_alone = line.batches.is_empty();
        let mut writer = Writer(std::mem::take(&mut line.out));
        for request in requests {
            line.xid = line.xid.checked_add(1).unwrap_or(1);
            request.write(&mut writer, line.xid);
        }
        line.out = writer.0;
        line.batches.push_back(Batch { sent: now, wanted: requests.len(), replies: Vec::new(), answer });
        drop(line);
        if is_alone {
            self.nudge()
        } else {
            self.wake()
        }
        Some(answered)
    }

    /// The host's task.
    fn run(&self, cx: &mut Context<'_>) -> Poll<()> {
        *lock(&self.waker) = Some(cx.waker().clone());
        // The thread that nudges may be one that seldom runs: it is not waited for, and wakes us when it is done.
        if let Some(mut io) = self.try_io() {
            return self.step(&mut io, cx);
        }
        self.is_missed.store(true, Ordering::SeqCst);
        // Once more: whoever was done before the line above has not seen what it says.
        match self.try_io() {
            Some(mut io) => self.step(&mut io, cx),
            None => Poll::Pending,
        }
    }

    fn step(&self, slot: &mut Option<Io>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over.load(Ordering::Acquire) {
            *slot = None;
        }
        let Some(io) = slot else { return Poll::Ready(()) };
        match self.exchange(io, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(why) => {
                tracing::debug!(%why, "a connection to zookeeper ended");
                self.is_over.store(true, Ordering::Release);
                *slot = None;
                Poll::Ready(())
            }
        }
    }

    /// Writes and reads until both would have to wait; ready when the connection is over.
    fn exchange(&self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            if io.written == io.out.len() {
                io.out.clear();
                io.written = 0;
                std::mem::swap(&mut io.out, &mut lock(&self.line).out);
            }
            if let Poll::Ready(Err(error)) = io.write(cx) {
                return Poll::Ready(error);
            }
            match io.read(cx) {
                Poll::Pending if io.written == io.out.len() && !lock(&self.line).out.is_empty() => {}
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Ready(Ok(())) => {
                    if let Err(why) = self.digest(io) {
                        return Poll::Ready(io::Error::other(why));
                    }
                }
            }
        }
    }

    /// Hands on every frame that is complete.
    fn digest(&self, io: &mut Io) -> Result<(), &'static str> {
        let mut read = 0;
        while let Some(length) = io.input[read..].first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > MAX_FRAME {
                return Err("a frame is longer than any that a server sends");
            }
            let Some(frame) = io.input[read + 4..].get(..length) else { break };
            let mut reader = Reader(frame);
            let (Some(xid), Some(zxid), Some(code)) = (reader.int(), reader.long(), reader.int()) else {
                return Err("a reply is too short");
            };
            if xid == EVENT_XID {
                self.tell(&mut reader);
            } else {
                if xid != io.expected {
                    return Err("a reply is not the one whose turn it is");
                }
                io.expected = io.expected.checked_add(1).unwrap_or(1);
                self.seen.fetch_max(zxid, Ordering::Relaxed);
                let reply = if code == 0 { Ok(reader.0.to_vec()) } else { Err(Code(code)) };
                self.answer(Reply(reply))?;
            }
            read += 4 + length;
        }
        io.input.drain(..read);
        Ok(())
    }

    fn answer(&self, reply: Reply) -> Result<(), &'static str> {
        let is_moved = matches!(reply.0, Err(Code::SESSION_MOVED | Code::SESSION_EXPIRED));
        let mut line = lock(&self.line);
        let batch = line.batches.front_mut().ok_or("a reply that nobody waits for")?;
        batch.replies.push(reply);
        let done = if batch.replies.len() == batch.wanted { line.batches.pop_front() } else { None };
        drop(line);
        if let Some(batch) = done {
            // Whoever asked may have given up.
            let _ = batch.answer.send(batch.replies);
        }
        // Nothing more will be served here.
        if is_moved { Err("the session is served elsewhere, or is over") } else { Ok(()) }
    }

    fn tell(&self, reader: &mut Reader<'_>) {
        const DELETED: i32 = 2;
        const NO_NODE_AT_ALL: i32 = -1;
        let (Some(kind), Some(_state), Some(path)) = (reader.int(), reader.int(), reader.string()) else {
            return;
        };
        if kind != NO_NODE_AT_ALL {
            self.listener.changed(&path, kind == DELETED);
        }
    }

    /// Nobody gets a reply any more.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let batches = std::mem::take(&mut lock(&self.line).batches);
        drop(batches);
    }

    fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn try_io(&self) -> Option<MutexGuard<'_, Option<Io>>> {
        match self.io.try_lock() {
            Ok(io) => Some(io),
            Err(TryLockError::Poisoned(io)) => Some(io.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Does the task's work once, on this thread.
    fn nudge(&self) {
        let Some(mut io) = self.try_io() else { return self.wake() };
        // Only now: the waker must be that of the task that polls next.
        let waker = lock(&self.waker).clone();
        let over = match &waker {
            Some(waker) => self.step(&mut io, &mut Context::from_waker(waker)).is_ready(),
            None => false,
        };
        drop(io);
        if self.is_missed.swap(false, Ordering::SeqCst) || over {
            self.wake();
        }
    }
}

impl Io {
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            self.is_flushed = false;
            match Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if !self.is_flushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.is_flushed = true,
                other => return other,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut space = [0; 8192];
        let mut buffer = ReadBuf::new(&mut space);
        match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            Poll::Ready(Ok(())) => {
                self.input.extend_from_slice(buffer.filled());
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
