//! Running an operation apart from the caller's runtime.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::host::{Fut, Host};

/// Runs `work` so that the caller's runtime cannot hold it up: its first poll happens on the caller's thread, since
/// an operation that needs no waiting then costs no thread change; one that is pending goes on as a task of the
/// host. Needs no runtime around it. Dropping the returned future drops `work` at its next await.
pub(crate) fn offload<T: Send + 'static>(host: Arc<dyn Host>, work: Fut<'static, T>) -> Offload<T> {
    Offload { host, stage: Stage::New(work) }
}

pub(crate) struct Offload<T> {
    host: Arc<dyn Host>,
    stage: Stage<T>,
}

enum Stage<T> {
    New(Fut<'static, T>),
    Away(oneshot::Receiver<T>),
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
            self.host.spawn(Box::pin(async move {
                let result = tokio::select! {
                    biased;
                    result = &mut work => result,
                    () = answer.closed() => return,
                };
                // A result that nobody takes is dropped; a guard among them releases itself.
                let _ = answer.send(result);
            }));
            self.stage = Stage::Away(answered);
        }
        match &mut self.stage {
            Stage::New(_) => Poll::Pending,
            Stage::Away(answered) => {
                Pin::new(answered).poll(cx).map(|r| r.expect("the host runs tasks to their end"))
            }
        }
    }
}
