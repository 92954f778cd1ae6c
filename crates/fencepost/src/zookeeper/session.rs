//! A session: what ephemeral nodes hang on. It outlives its connections, and goes from server to server.
//!
//! Invariants:
//! 1. A session is gone on with, or it is over: what answers with another session is not used (ClickHouse#116690).
//! 2. On every new connection the nodes that are watched are looked at before anything else is asked, so whatever is
//!    answered there was verified.
//! 3. A server that is behind what we have seen is not used: ZooKeeper itself refuses us there.
//! 4. When a new connection is served, nothing that was sent on an older one is carried out any more: a server closes
//!    the old connection of a session, and the leader refuses what comes through a server that lost the session.
//!
//! Source: "ZooKeeper Sessions" in the ZooKeeper Programmer's Guide; `ZooKeeperServer.processConnectRequest` and
//! `SessionTracker.checkSession` for the last one.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Options,
    connection::{Connection, Listener},
    handshake::{Identity, shake},
    request::{Reply, Request},
};
use crate::{
    driver::Fail,
    host::{Host, Moment},
    net,
};

/// How many paths go into one request: a request of more than a megabyte ends the connection.
pub(crate) const PATHS: usize = 1000;

/// Who uses a session. None of these may block.
pub(crate) trait User: Send + Sync {
    /// A watched node was deleted, or changed in another way. The watch is used up.
    fn changed(&self, path: &str, is_deleted: bool);

    /// What is watched, to be watched again on a new connection.
    fn watched(&self) -> Vec<String>;

    /// The connection broke, whether or not there is another one by now: the session is to be verified.
    fn doubted(&self);

    /// The server has ended the session.
    fn expired(&self);
}

/// A session at an ensemble; closed when dropped, without a promise.
pub(crate) struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    options: Arc<Options>,
    host: Arc<dyn Host>,
    /// What is asked for.
    timeout: Duration,
    user: Weak<dyn User>,
    present: Mutex<Present>,
    /// The latest change of the ensemble that any of our connections has heard of.
    seen: Arc<AtomicI64>,
    /// Held while a connection is made, so that a crowd makes one; with the last failure, which is the crowd's too.
    making: tokio::sync::Mutex<Option<(Moment, Fail)>>,
}

#[derive(Default)]
struct Present {
    identity: Option<Identity>,
    connection: Option<Arc<Connection>>,
    /// When we last asked for something that proves that the leader heard of the session.
    proved: Moment,
    is_over: bool,
    /// The place of the server to try first.
    server: usize,
}

impl Session {
    /// Opens a session that should outlive its owner's silence by `timeout`.
    pub(crate) async fn open(
        options: Arc<Options>,
        host: Arc<dyn Host>,
        timeout: Duration,
        user: Weak<dyn User>,
    ) -> Result<Self, Fail> {
        let server = host.random() as usize % options.addresses.len();
        let inner = Inner {
            options,
            host,
            timeout,
            user,
            present: Mutex::new(Present { server, ..Present::default() }),
            seen: Arc::default(),
            making: tokio::sync::Mutex::default(),
        };
        let session = Self { inner: Arc::new(inner) };
        session.connection().await?;
        Ok(session)
    }

    /// The session's number, and how long it lives as the server granted it.
    pub(crate) fn identity(&self) -> (i64, Duration) {
        let present = self.inner.present();
        let identity = present.identity.as_ref().expect("open has answered, so a server has");
        (identity.id, identity.timeout)
    }

    /// The latest change of the ensemble that was heard of.
    pub(crate) fn seen(&self) -> i64 {
        self.inner.seen.load(Ordering::Relaxed)
    }

    /// Lets the next request take a new connection if the session was last [proved](Self::proved) more than `by` before now.
    ///
    /// The leader hears of a session when a server goes on with it, and otherwise in the pings of the server that serves it:
    /// of a request that was answered it may never hear, if that server is cut off before the next ping.
    pub(crate) fn renew_connection_after(&self, by: Duration) {
        let connection = {
            let mut present = self.inner.present();
            if self.inner.host.now().since(present.proved) <= by {
                return;
            }
            present.connection.take()
        };
        if let Some(connection) = connection {
            connection.hang_up();
        }
    }

    /// A request that was sent at `sent` was answered by a quorum.
    pub(crate) fn proved(&self, sent: Moment) {
        let mut present = self.inner.present();
        present.proved = present.proved.max(sent);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.inner.present().is_over
    }

    /// Sends the requests in one piece, each once, and answers as many replies.
    ///
    /// Fails with [`Fail::Unavailable`] if surely nothing was sent, with [`Fail::Unknown`] if it may have been, and with
    /// [`Fail::NoLease`] if the session is over.
    pub(crate) async fn send(&self, requests: &[Request]) -> Result<Vec<Reply>, Fail> {
        let connection = match self.inner.at_hand() {
            Some(connection) => connection,
            None => self.connection().await?,
        };
        connection.send(requests, self.inner.host.now()).await
    }

    /// Ends the session, and with it every node that hangs on it.
    pub(crate) async fn close(&self) -> Result<(), Fail> {
        match self.send(&[Request::CloseSession]).await {
            Ok(_) | Err(Fail::NoLease) => {
                self.inner.end();
                Ok(())
            }
            Err(fail) => Err(fail),
        }
    }

    async fn connection(&self) -> Result<Arc<Connection>, Fail> {
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

impl Drop for Session {
    fn drop(&mut self) {
        let connection = self.inner.present().connection.clone();
        if let Some(connection) = connection.filter(|_| !self.is_over()) {
            // On its way before the connection ends below; nobody waits for the answer.
            drop(connection.send(&[Request::CloseSession], self.inner.host.now()));
        }
        self.inner.end();
    }
}

impl Inner {
    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, unless it is broken, or has left a request unanswered for so long that another server is the
    /// better bet.
    fn at_hand(&self) -> Option<Arc<Connection>> {
        let mut present = self.present();
        let connection = present.connection.clone().filter(|connection| connection.is_open())?;
        let Some(since) = connection.waits_since() else { return Some(connection) };
        let timeout = present.identity.as_ref().map_or(self.timeout, |identity| identity.timeout);
        let limit = (timeout / 9).clamp(Duration::from_millis(100), Duration::from_secs(2));
        if self.host.now().since(since) < limit {
            return Some(connection);
        }
        present.connection = None;
        present.server += 1;
        drop(present);
        connection.hang_up();
        None
    }

    async fn make(self: &Arc<Self>) -> Result<Arc<Connection>, Fail> {
        let asked = self.host.now();
        let mut last = self.making.lock().await;
        if let Some(connection) = self.at_hand() {
            return Ok(connection);
        }
        if self.present().is_over {
            return Err(Fail::NoLease);
        }
        if let Some((_, fail)) = last.as_ref().filter(|(at, _)| *at > asked) {
            return Err(fail.clone());
        }
        let made = self.connect().await;
        if let Err(fail) = &made {
            *last = Some((self.host.now(), fail.clone()));
        }
        made
    }

    /// Tries each server once, the last good one first.
    async fn connect(self: &Arc<Self>) -> Result<Arc<Connection>, Fail> {
        let servers = self.options.addresses.len();
        let (first, timeout) = {
            let present = self.present();
            (present.server, present.identity.as_ref().map_or(self.timeout, |identity| identity.timeout))
        };
        // One that says nothing must leave time for the others before a lock is lost.
        let longest = Duration::from_secs(if servers == 1 { 5 } else { 2 });
        let limit = (timeout / 8).clamp(Duration::from_millis(500), longest);
        let limit = if servers == 1 { longest } else { limit };
        let (mut trouble, mut denied) = (None, None);
        for server in first..first + servers {
            let address = &self.options.addresses[server % servers];
            let attempt = tokio::select! {
                biased;
                attempt = self.attempt(server) => attempt,
                () = self.host.sleep_until(self.host.now() + limit) => {
                    let name = self.options.name_of(address);
                    Err(Fail::Unavailable(format!("{name} did not answer within {limit:?}")))
                }
            };
            match attempt {
                // One server of several may know no such user, or have a certificate that is out of date.
                Err(fail @ Fail::Denied(_)) => denied = Some(fail),
                // Or be set up wrongly, or be none at all.
                Err(fail @ (Fail::Unavailable(_) | Fail::Invalid(_))) => {
                    trouble = trouble.filter(Fail::is_passing).or(Some(fail));
                }
                Err(Fail::NoLease) => {
                    self.expire();
                    return Err(Fail::NoLease);
                }
                other => return other,
            }
        }
        // A session that we have was not refused before: then what may pass is told.
        let (first, second) =
            if self.present().identity.is_none() { (denied, trouble) } else { (trouble, denied) };
        Err(first.or(second).unwrap_or_else(|| Fail::Internal("the url names no server".into())))
    }

    async fn attempt(self: &Arc<Self>, server: usize) -> Result<Arc<Connection>, Fail> {
        let address = &self.options.addresses[server % self.options.addresses.len()];
        let name = self.options.name_of(address);
        let (identity, seen) = (self.present().identity.clone(), self.seen.load(Ordering::Relaxed));
        let asked = self.host.now();
        let mut stream = net::connect(address, self.options.tls.as_ref(), &name, None).await?;
        let identity =
            shake(&mut stream, &self.options, address, identity.as_ref(), self.timeout, seen).await?;
        let (connection, run) =
            Connection::new(stream, self.seen.clone(), Arc::new(Ear(Arc::downgrade(self))));
        let connection = Arc::new(connection);
        let watched = self.user.upgrade().map(|user| user.watched()).unwrap_or_default();
        for paths in watched.chunks(PATHS) {
            // Before anybody else can send: their replies then say that these were looked at.
            let again = Request::SetWatches { zxid: seen, paths: paths.to_vec() };
            drop(connection.send(&[again], self.host.now()));
        }
        let mut present = self.present();
        if present.is_over {
            return Err(Fail::NoLease);
        }
        present.identity = Some(identity);
        present.proved = asked;
        present.connection = Some(connection.clone());
        present.server = server;
        drop(present);
        self.host.spawn(Box::pin(run));
        Ok(connection)
    }

    /// The server has ended the session.
    fn expire(&self) {
        self.end();
        if let Some(user) = self.user.upgrade() {
            user.expired();
        }
    }

    fn end(&self) {
        let connection = {
            let mut present = self.present();
            present.is_over = true;
            present.connection.take()
        };
        if let Some(connection) = connection {
            connection.hang_up();
        }
    }

    /// Looks once at what has become of the session after its connection broke. Also a session that a server has just gone on
    /// with is to be verified: its end may have been on its way, and then nobody tells this connection of it.
    async fn look(self: Arc<Self>) {
        let made = self.make().await;
        if !matches!(made, Err(Fail::NoLease))
            && let Some(user) = self.user.upgrade()
        {
            user.doubted();
        }
    }
}

/// A connection's way to its session, which it does not keep alive.
struct Ear(Weak<Inner>);

impl Listener for Ear {
    fn changed(&self, path: &str, is_deleted: bool) {
        if let Some(user) = self.0.upgrade().and_then(|inner| inner.user.upgrade()) {
            user.changed(path, is_deleted);
        }
    }

    fn cut(&self) {
        let Some(inner) = self.0.upgrade() else { return };
        if inner.present().is_over {
            return;
        }
        // At once, and not when the next renewal is due: whoever waits on a session that is over must learn of it.
        inner.host.spawn(Box::pin(inner.clone().look()));
    }
}
