//! Running an operation apart from the caller's runtime.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use super::reaper::{Pending, Reaper};
use crate::host::{Fut, Host};

/// Runs `work` so that the caller's runtime cannot hold it up: its first poll happens on the caller's thread, since
/// an operation that needs no waiting then costs no thread change; one that is pending goes on as a task of the
/// host. Needs no runtime around it. Dropping the returned future drops `work` at its next await.
pub(crate) fn offload<T: Send + 'static>(host: Arc<dyn Host>, work: Fut<'static, T>) -> Offload<T> {
    Offload { host, stage: Stage::New(work), reaper: None }
}

pub(crate) struct Offload<T> {
    host: Arc<dyn Host>,
    stage: Stage<T>,
    reaper: Option<Arc<Reaper>>,
}

enum Stage<T> {
    New(Fut<'static, T>),
    Away(oneshot::Receiver<T>, LastWord),
}

/// Lives as long as the work and its future both do: whichever goes last drops what the other left in it.
type LastWord = Arc<Mutex<Option<Pending>>>;

impl<T> Offload<T> {
    /// Lets `reaper` know at once when the work is given up: the host drops it, and with it its claim, a moment later.
    pub(crate) fn reaped_by(mut self, reaper: Arc<Reaper>) -> Self {
        self.reaper = Some(reaper);
        self
    }
}

impl<T: Send + 'static> Future for Offload<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Stage::New(work) = &mut self.stage {
            let mut work = std::mem::replace(work, Box::pin(std::future::pending()));
            let mut first = Poll::Pending;
            self.host.within(&mut || first = work.as_mut().poll(cx));
            if first.is_ready() {
                return first;
            }
            let (mut answer, answered) = oneshot::channel();
            let last_word = LastWord::default();
            let held = last_word.clone();
            self.host.spawn(Box::pin(async move {
                // In this order, so that the work goes before the last word.
                let _held = held;
                let mut work = work;
                let result = tokio::select! {
                    biased;
                    result = &mut work => result,
                    () = answer.closed() => return,
                };
                // A result that nobody takes is dropped; a guard among them releases itself.
                let _ = answer.send(result);
            }));
            self.stage = Stage::Away(answered, last_word);
        }
        match &mut self.stage {
            Stage::New(_) => Poll::Pending,
            Stage::Away(answered, _) => {
                Pin::new(answered).poll(cx).map(|r| r.expect("the host runs tasks to their end"))
            }
        }
    }
}

impl<T> Drop for Offload<T> {
    fn drop(&mut self) {
        if let (Stage::Away(_, last_word), Some(reaper)) = (&self.stage, &self.reaper) {
            *last_word.lock().unwrap_or_else(PoisonError::into_inner) = Some(reaper.expect());
        }
    }
}
