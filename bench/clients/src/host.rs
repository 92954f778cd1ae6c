//! A thread with a runtime of its own, as Fencepost has one for its connections.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::mpsc,
    task::Poll,
    thread::{self, JoinHandle},
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
};

use crate::Outcome;

/// Where connections live that are not the caller's. The thread ends when this is dropped.
pub(crate) struct Host {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    pub(crate) fn start() -> Outcome<Self> {
        let runtime = runtime()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || drop(runtime.block_on(stopped));
        let thread = thread::Builder::new().name("host".into()).spawn(run)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs something there and waits for it.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl Future<Output = T> + Send + 'static) -> Outcome<T> {
        let (reply, answer) = mpsc::channel();
        self.handle.spawn(async move { drop(reply.send(job.await)) });
        Ok(answer.recv()?)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic over there was already printed.
            let _ = thread.join();
        }
    }
}

/// A runtime that runs on the thread that blocks on it.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Polls once here; what is pending goes on over there, as in Fencepost's engine.
pub(crate) async fn offload<T: Send + 'static>(
    there: Handle,
    mut job: Pin<Box<dyn Future<Output = Outcome<T>> + Send>>,
) -> Outcome<T> {
    match poll_fn(|cx| Poll::Ready(job.as_mut().poll(cx))).await {
        Poll::Ready(done) => done,
        Poll::Pending => there.spawn(job).await?,
    }
}
