//! The transport that a URL makes: one connection at a time, made anew by whoever needs it next.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Command, Listener, Options, Reply, Transport,
    connection::{Connection, Ear},
};
use crate::{
    driver::Fail,
    host::{Fut, Host, Moment},
};

/// How long connecting may take. A request that waits for it has its own, usually shorter limit.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A connection to one Redis server, made at first use and again after it broke.
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    host: Arc<dyn Host>,
    ear: Ear,
    greeting: Mutex<Vec<Command>>,
    present: Mutex<Option<Arc<Connection>>>,
    /// Held while a connection is made, so that a crowd makes one; with the last failure, which is the crowd's too.
    making: tokio::sync::Mutex<Option<(Moment, Fail)>>,
}

impl Client {
    /// A client that connects at first use.
    pub fn new(options: Options, host: Arc<dyn Host>) -> Self {
        let inner = Inner {
            options,
            host,
            ear: Ear::default(),
            greeting: Mutex::default(),
            present: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    async fn connection(&self) -> Result<Arc<Connection>, Fail> {
        if let Some(connection) = self.inner.at_hand() {
            return Ok(connection);
        }
        // In a task of the host, whose runtime the socket belongs to; it goes on if this caller gives up.
        let (answer, answered) = oneshot::channel();
        let inner = self.inner.clone();
        self.inner.host.spawn(Box::pin(async move {
            let made = inner.make().await;
            let _ = answer.send(made);
        }));
        answered.await.unwrap_or_else(|_| Err(Fail::Unavailable("connecting was given up".into())))
    }
}

impl Inner {
    fn at_hand(&self) -> Option<Arc<Connection>> {
        self.present().clone().filter(|connection| connection.is_open())
    }

    fn present(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        lock(&self.present)
    }

    async fn make(&self) -> Result<Arc<Connection>, Fail> {
        let asked = self.host.now();
        let mut last = self.making.lock().await;
        if let Some(connection) = self.at_hand() {
            return Ok(connection);
        }
        if let Some((_, fail)) = last.as_ref().filter(|(at, _)| *at > asked) {
            return Err(fail.clone());
        }
        let (connection, run) = match self.open().await {
            Ok(opened) => opened,
            Err(fail) => {
                *last = Some((self.host.now(), fail.clone()));
                return Err(fail);
            }
        };
        self.host.spawn(run);
        let connection = Arc::new(connection);
        *self.present() = Some(connection.clone());
        Ok(connection)
    }

    async fn open(&self) -> Result<(Connection, Fut<'static, ()>), Fail> {
        let greeting = lock(&self.greeting).clone();
        tokio::select! {
            biased;
            opened = Connection::open(&self.options, &greeting, self.ear.clone()) => opened,
            () = self.host.sleep_until(self.host.now() + CONNECT_LIMIT) => {
                let name = self.options.name();
                let hint = if self.options.tls.is_some() { "; if it does not speak TLS, write redis://" } else { "" };
                let text = format!("{name} did not answer within {CONNECT_LIMIT:?}{hint}");
                Err(Fail::Unavailable(text))
            }
        }
    }
}

impl Transport for Client {
    fn send(&self, commands: Vec<Command>) -> Fut<'_, Result<Vec<Reply>, Fail>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            let replies = connection.send(commands).await;
            if let Ok(replies) = &replies
                && replies.iter().any(|reply| reply.is_error("READONLY") || reply.is_error("LOADING"))
            {
                // The address may lead elsewhere by now: to the new primary after a failover.
                let mut present = self.inner.present();
                if present.as_ref().is_some_and(|other| Arc::ptr_eq(other, &connection)) {
                    *present = None;
                }
            }
            replies
        })
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> Fut<'a, Result<bool, Fail>> {
        Box::pin(async move { self.connection().await?.subscribe(channel).await })
    }

    fn tracks(&self) -> bool {
        self.inner.at_hand().is_some_and(|connection| connection.tracks)
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        *lock(&self.inner.ear) = Some(listener);
    }

    fn greet(&self, commands: Vec<Command>) {
        *lock(&self.inner.greeting) = commands;
    }

    fn name(&self) -> String {
        self.inner.options.name()
    }
}

impl Drop for Client {
    /// The listener's tasks may hold this client's parts; the connection must end all the same.
    fn drop(&mut self) {
        *lock(&self.inner.ear) = None;
        *self.inner.present() = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
