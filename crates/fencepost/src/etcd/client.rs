//! The transport that a URL makes: one connection at a time, made anew by whoever needs it next.
//!
//! Endpoints are tried in turn, each a little after the one before, and the first that proves to have a leader is taken; so one
//! that is dead, frozen or cut off costs a fraction of a second, once. A connection that breaks, has no leader any more, or keeps a
//! request until whoever sent it gives up, is left for the next endpoint's. What is under way on it goes on.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tonic::{
    Status,
    metadata::{Ascii, MetadataValue},
};

use super::{
    Call, Events, Options, Transport,
    connection::{Connection, Login},
    fail::{cause, fail, is_of_the_endpoint, wants_login},
    proto::{AuthenticateRequest, AuthenticateResponse, StatusResponse, path},
};
use crate::{
    driver::Fail,
    host::{Fut, Host, Moment},
};

/// How long connecting to one endpoint may take. A request that waits for it has its own, usually shorter limit.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long one endpoint is waited for before the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// A connection to one etcd cluster, made at first use and again after it broke.
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    host: Arc<dyn Host>,
    present: Mutex<Option<Arc<Connection>>>,
    /// The endpoint to try first.
    next: AtomicUsize,
    /// Held while a connection is made, so that a crowd makes one; with the last failure, which is the crowd's too.
    making: tokio::sync::Mutex<Option<(Moment, Fail)>>,
    /// The cluster that was met first: endpoints of another are a mistake in the URL, or a cluster that was rebuilt.
    cluster: OnceLock<u64>,
    login: Mutex<Login>,
    /// Held while a login is fetched, which costs the server a tenth of a second of hashing.
    logging_in: tokio::sync::Mutex<()>,
}

impl Client {
    /// A client that connects at first use.
    pub fn new(options: Options, host: Arc<dyn Host>) -> Self {
        let inner = Inner {
            options,
            host,
            present: Mutex::default(),
            next: AtomicUsize::new(0),
            making: tokio::sync::Mutex::default(),
            cluster: OnceLock::new(),
            login: Mutex::default(),
            logging_in: tokio::sync::Mutex::default(),
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

/// Dropped, it says that a request was given up before its answer.
struct Unanswered<'a> {
    inner: &'a Inner,
    /// `None` once it is answered.
    connection: Option<Arc<Connection>>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.inner.leave(&connection);
        }
    }
}

impl Inner {
    fn at_hand(&self) -> Option<Arc<Connection>> {
        lock(&self.present).clone().filter(|connection| connection.is_open())
    }

    /// Goes on with the endpoint after this connection's.
    fn leave(&self, connection: &Arc<Connection>) {
        let mut present = lock(&self.present);
        if present.as_ref().is_some_and(|other| Arc::ptr_eq(other, connection)) {
            *present = None;
            self.next.store((connection.index + 1) % self.options.addresses.len(), Ordering::Relaxed);
        }
        drop(present);
        connection.doubt();
    }

    async fn make(self: &Arc<Self>) -> Result<Arc<Connection>, Fail> {
        let asked = self.host.now();
        let mut last = self.making.lock().await;
        if let Some(connection) = self.at_hand() {
            return Ok(connection);
        }
        if let Some((_, fail)) = last.as_ref().filter(|(at, _)| *at > asked) {
            return Err(fail.clone());
        }
        match self.open_one().await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *lock(&self.present) = Some(connection.clone());
                Ok(connection)
            }
            Err(fail) => {
                *last = Some((self.host.now(), fail.clone()));
                Err(fail)
            }
        }
    }

    /// The first endpoint that answers, of all of them.
    async fn open_one(self: &Arc<Self>) -> Result<Connection, Fail> {
        let (count, first) = (self.options.addresses.len(), self.next.load(Ordering::Relaxed));
        let (answer, mut answers) = mpsc::unbounded_channel();
        let mut failed = Vec::new();
        let mut tried = 0;
        loop {
            if tried < count && tried == failed.len() {
                self.try_one((first + tried) % count, answer.clone());
                tried += 1;
            }
            let later = self.host.now() + STAGGER;
            tokio::select! {
                biased;
                Some(outcome) = answers.recv() => match outcome {
                    Ok(connection) => return Ok(connection),
                    Err(fail) => failed.push(fail),
                },
                () = self.host.sleep_until(later), if tried < count => {
                    self.try_one((first + tried) % count, answer.clone());
                    tried += 1;
                }
            }
            if failed.len() == count {
                return Err(worst(failed));
            }
        }
    }

    fn try_one(self: &Arc<Self>, index: usize, answer: mpsc::UnboundedSender<Result<Connection, Fail>>) {
        let inner = self.clone();
        self.host.spawn(Box::pin(async move {
            let outcome = tokio::select! {
                biased;
                outcome = inner.open(index) => outcome,
                // Another one was quicker.
                () = answer.closed() => return,
                () = inner.host.sleep_until(inner.host.now() + CONNECT_LIMIT) => {
                    let hint = if inner.options.tls.is_some() { "; if it does not speak TLS, write etcd://" } else { "" };
                    let name = inner.options.endpoint(index);
                    Err(Fail::Unavailable(format!("{name} did not answer within {CONNECT_LIMIT:?}{hint}")))
                }
            };
            let _ = answer.send(outcome);
        }));
    }

    /// Connects to one endpoint, logs in if that was not done yet, and makes sure that it is of use.
    async fn open(&self, index: usize) -> Result<Connection, Fail> {
        let connection = Connection::open(&self.options, index, &self.host).await?;
        let login = lock(&self.login).clone();
        let login = if self.options.credentials.user.is_some() && login.is_none() {
            self.log_in(&connection, &None).await?
        } else {
            login
        };
        let name = self.options.endpoint(index);
        let call = Call::new("hello", path::STATUS, Vec::new());
        let mut hello = connection.unary(&call, &login).await;
        if hello.as_ref().is_err_and(wants_login) {
            hello = connection.unary(&call, &self.log_in(&connection, &login).await?).await;
        }
        let hello = hello.map_err(|status| self.stranger(&name, &status))?;
        let status = StatusResponse::decode(hello.as_slice())
            .map_err(|error| Fail::Invalid(format!("{name} does not speak etcd's protocol: {error}")))?;
        let version: Vec<u32> =
            status.version.split(['.', '-']).map_while(|part| part.parse().ok()).collect();
        if version.as_slice() < [3, 4].as_slice() {
            let text = format!("{name} runs etcd version={:?}; Fencepost needs 3.4 or later", status.version);
            return Err(Fail::Unsupported(text));
        }
        if status.leader == 0 || status.is_learner {
            let why = if status.is_learner { "is a learner" } else { "has no leader" };
            return Err(Fail::Unavailable(format!("{name} {why}")));
        }
        let cluster = status.header.map_or(0, |header| header.cluster_id);
        if *self.cluster.get_or_init(|| cluster) != cluster {
            return Err(Fail::Invalid(format!(
                "{name} belongs to another cluster than before: it was rebuilt, or the url mixes two; its tokens do not compare with those before"
            )));
        }
        Ok(connection)
    }

    /// An endpoint that does not even say hello.
    fn stranger(&self, name: &str, status: &Status) -> Fail {
        // A server that wants a certificate may close the connection before its alert is read.
        let hint = match &self.options.tls {
            None => "; if it expects TLS, write etcds://",
            Some(tls) if tls.identity.is_none() => "; if it wants to see a certificate, give cert= and key=",
            Some(_) => "",
        };
        let cause = cause(status);
        if cause.contains("fatal alert") {
            return Fail::Denied(format!(
                "{name} refuses us in TLS; give cert= and key= of an authority that it trusts: {cause}"
            ));
        }
        match fail(status) {
            Fail::Unknown(why) => {
                Fail::Unavailable(format!("{name} did not answer as etcd does: {why}{hint}"))
            }
            Fail::Internal(why) | Fail::Unsupported(why) => Fail::Invalid(format!("{name}: {why}")),
            other => other,
        }
    }

    /// A new login, unless somebody has fetched one since `outdated`.
    async fn log_in(&self, connection: &Connection, outdated: &Login) -> Result<Login, Fail> {
        let _one_at_a_time = self.logging_in.lock().await;
        let present = lock(&self.login).clone();
        if present != *outdated {
            return Ok(present);
        }
        let credentials = &self.options.credentials;
        let (Some(user), Some(password)) = (&credentials.user, &credentials.password) else {
            return Ok(None);
        };
        let ask = AuthenticateRequest { name: user.clone(), password: password.expose().to_owned() };
        let call = Call::new("log in", path::AUTHENTICATE, ask.encode_to_vec());
        let reply = connection.unary(&call, &None).await.map_err(|status| match fail(&status) {
            // It changes nothing: not known is as good as not done.
            Fail::Unknown(why) => Fail::Unavailable(why),
            other => other,
        })?;
        let login: Option<MetadataValue<Ascii>> =
            AuthenticateResponse::decode(reply.as_slice()).ok().and_then(|reply| reply.token.parse().ok());
        let login: Login = match login {
            Some(mut token) => {
                // Neither logged nor remembered by the compression of headers.
                token.set_sensitive(true);
                Some(token)
            }
            None => return Err(Fail::Internal("etcd answered a login with no token".into())),
        };
        *lock(&self.login) = login.clone();
        Ok(login)
    }
}

/// What to tell of endpoints that all failed: what may pass, if any does; the others may be there again by then.
fn worst(failed: Vec<Fail>) -> Fail {
    let passing = failed.iter().find(|fail| fail.is_passing()).cloned();
    let told = passing.or_else(|| failed.first().cloned());
    told.unwrap_or_else(|| Fail::Invalid("the url names no endpoint".into()))
}

impl Transport for Client {
    /// Once more if it is refused for an outdated login, and judges the endpoint by what comes of it.
    fn call(&self, call: Call) -> Fut<'_, Result<Vec<u8>, Fail>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            let mut unanswered = Unanswered { inner: &self.inner, connection: Some(connection.clone()) };
            let login = lock(&self.inner.login).clone();
            let mut answer = connection.unary(&call, &login).await;
            if answer.as_ref().is_err_and(wants_login) && self.inner.options.credentials.user.is_some() {
                let login = self.inner.log_in(&connection, &login).await?;
                answer = connection.unary(&call, &login).await;
                // Its streams came with the outdated login, and take nothing new.
                connection.doubt();
            }
            unanswered.connection = None;
            answer.map_err(|status| {
                let fail = fail(&status);
                // A member that refuses renewals, however quickly, is of no use to those who hold: another one may take them. The
                // end of a lease, a missing right and a wrong login are the same everywhere.
                let renews = matches!(call.verb(), "renew" | "confirm");
                let is_everywhere = matches!(fail, Fail::NoLease | Fail::Denied(_)) || wants_login(&status);
                if is_of_the_endpoint(&status) || renews && !is_everywhere || !connection.is_open() {
                    self.inner.leave(&connection);
                }
                fail
            })
        })
    }

    fn watch(&self, asks: mpsc::UnboundedReceiver<Vec<u8>>) -> Fut<'_, Result<Box<dyn Events>, Fail>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            let login = lock(&self.inner.login).clone();
            connection.watch(asks, &login).await.map_err(|status| fail(&status))
        })
    }

    fn name(&self) -> String {
        self.inner.options.name()
    }
}

impl Drop for Client {
    /// Its tasks may hold this client's parts; the connection must end all the same.
    fn drop(&mut self) {
        *lock(&self.inner.present) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
