//! Running an operation apart from the caller's runtime.

use std::{
    future::Future,
    mem::replace,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use tokio::sync::oneshot;

use super::reaper::{Pending, Reaper};
use crate::host::{Fut, Host};

/// Runs `work` so that the caller's runtime cannot hold it up: its first poll happens on the caller's thread, since
/// an operation that needs no waiting then costs no thread change; one that is pending goes on as a task of the
/// host, as soon as there is something to go on with. Needs no runtime around it. Dropping the returned future drops
/// `work` at its next await.
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
    Away(oneshot::Receiver<T>, LastWord, Arc<Later>),
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
            let mut work = replace(work, Box::pin(std::future::pending()));
            let later = Arc::new(Later { host: self.host.clone(), task: Mutex::new(Task::Missing) });
            let waker = Waker::from(later.clone());
            let mut first = Poll::Pending;
            self.host.within(&mut || first = work.as_mut().poll(&mut Context::from_waker(&waker)));
            if first.is_ready() {
                return first;
            }
            let (mut answer, answered) = oneshot::channel();
            let last_word = LastWord::default();
            let held = last_word.clone();
            later.hand_over(Box::pin(async move {
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
            self.stage = Stage::Away(answered, last_word, later);
        }
        match &mut self.stage {
            Stage::New(_) => Poll::Pending,
            Stage::Away(answered, ..) => {
                Pin::new(answered).poll(cx).map(|r| r.expect("the host runs tasks to their end"))
            }
        }
    }
}

impl<T> Drop for Offload<T> {
    fn drop(&mut self) {
        if let Stage::Away(_, last_word, later) = &self.stage {
            if let Some(reaper) = &self.reaper {
                *last_word.lock().unwrap_or_else(PoisonError::into_inner) = Some(reaper.expect());
            }
            // Only a task that runs sees that its answer is of no use any more.
            later.wake_by_ref();
        }
    }
}

/// A task that the host gets when something wakes it. Handed over at once it would wake the host's thread only to wait
/// there, and again for what it waits for; so the answer to a request is what brings both.
struct Later {
    host: Arc<dyn Host>,
    task: Mutex<Task>,
}

enum Task {
    /// Not handed over yet: its first poll goes on.
    Missing,
    /// As before, and there is something to go on with already.
    Awaited,
    Waiting(Fut<'static, ()>),
    Started,
}

impl Later {
    fn hand_over(&self, task: Fut<'static, ()>) {
        self.next(|before| match before {
            Task::Awaited => (Task::Started, Some(task)),
            _ => (Task::Waiting(task), None),
        });
    }

    /// Moves on, and starts what is to be started.
    fn next(&self, step: impl FnOnce(Task) -> (Task, Option<Fut<'static, ()>>)) {
        let mut present = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let (after, start) = step(replace(&mut *present, Task::Started));
        *present = after;
        drop(present);
        if let Some(task) = start {
            self.host.spawn(task);
        }
    }
}

impl Wake for Later {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.next(|before| match before {
            Task::Missing | Task::Awaited => (Task::Awaited, None),
            Task::Waiting(task) => (Task::Started, Some(task)),
            Task::Started => (Task::Started, None),
        });
    }
}
