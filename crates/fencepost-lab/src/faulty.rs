//! Transports that lose, delay and repeat single requests, which no proxy can do to a stream of many: here Redis's.

pub mod etcd;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fencepost::{
    driver::{Fail, Fut, Host},
    redis::{Command, Listener, Reply, Transport},
};
use tokio::sync::oneshot;

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never arrives, and is never answered.
    LoseRequest,
    /// It is carried out, and never answered.
    LoseReply,
    /// It is carried out this much later; those that follow overtake it.
    HoldBack(Duration),
    /// It is carried out, and once more this much later.
    Repeat(Duration),
}

/// The faults that are to come, for any number of transports. Each hits one request.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<(String, Fault)>>);

impl Faults {
    /// The next request of this verb, such as `enter`, meets this fault; faults of one verb come in the order of arming.
    pub fn arm(&self, verb: &str, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((verb.to_owned(), fault));
    }

    /// The fault that a request meets, if it is of a verb for which one is to come.
    fn take(&self, is_of: impl Fn(&str) -> bool) -> Option<Fault> {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = armed.iter().position(|(verb, _)| is_of(verb))?;
        Some(armed.remove(hit).1)
    }
}

/// A transport with faults.
pub struct Faulty {
    inner: Arc<dyn Transport>,
    host: Arc<dyn Host>,
    faults: Arc<Faults>,
}

impl Faulty {
    /// A transport that passes everything on to `inner` but what meets one of `faults`.
    #[must_use]
    pub fn new(inner: Arc<dyn Transport>, host: Arc<dyn Host>, faults: Arc<Faults>) -> Self {
        Self { inner, host, faults }
    }
}

/// Whether a command runs the script of this verb: the first argument after its keys says so.
fn is_of(command: &Command, verb: &str) -> bool {
    let words: Vec<_> = command.words().collect();
    let keys = words.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
    words[0].starts_with(b"EVAL")
        && keys.is_some_and(|keys| words.get(3 + keys).is_some_and(|word| *word == verb.as_bytes()))
}

impl Transport for Faulty {
    fn send(&self, commands: Vec<Command>) -> Fut<'_, Result<Vec<Reply>, Fail>> {
        match self.faults.take(|verb| commands.iter().any(|command| is_of(command, verb))) {
            None => self.inner.send(commands),
            Some(Fault::LoseRequest) => Box::pin(std::future::pending()),
            Some(Fault::LoseReply) => Box::pin(async move {
                let _ = self.inner.send(commands).await;
                std::future::pending().await
            }),
            // In a task: the caller's patience may end before the request is sent.
            Some(Fault::HoldBack(by)) => {
                let (answer, answered) = oneshot::channel();
                self.later(by, commands, Some(answer));
                Box::pin(async { answered.await.unwrap_or_else(|_| Err(Fail::Unknown("held back".into()))) })
            }
            Some(Fault::Repeat(after)) => {
                self.later(after, commands.clone(), None);
                self.inner.send(commands)
            }
        }
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> Fut<'a, Result<bool, Fail>> {
        self.inner.subscribe(channel)
    }

    fn tracks(&self) -> bool {
        self.inner.tracks()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.inner.listen(listener);
    }

    fn greet(&self, commands: Vec<Command>) {
        self.inner.greet(commands);
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

impl Faulty {
    fn later(
        &self,
        by: Duration,
        commands: Vec<Command>,
        answer: Option<oneshot::Sender<Result<Vec<Reply>, Fail>>>,
    ) {
        let (inner, host) = (self.inner.clone(), self.host.clone());
        self.host.spawn(Box::pin(async move {
            host.sleep_until(host.now() + by).await;
            let result = inner.send(commands).await;
            if let Some(answer) = answer {
                let _ = answer.send(result);
            }
        }));
    }
}
