//! A session for whoever asks without a lease: it is not renewed, comes as it is needed, and goes by itself.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use super::{Code, Kind, Options, Reply, Request, Session, User};
use crate::{driver::Fail, host::Host};

/// How long it lives when nobody asks.
const VISIT: Duration = Duration::from_secs(10);

pub(crate) struct Visitor {
    options: Arc<Options>,
    host: Arc<dyn Host>,
    session: Mutex<Option<Arc<Session>>>,
    /// Held while a session is opened, so that a crowd opens one.
    opening: tokio::sync::Mutex<()>,
    user: Arc<Nobody>,
}

/// Nothing is watched there.
struct Nobody;

impl User for Nobody {
    fn changed(&self, _path: &str, _is_deleted: bool) {}

    fn watched(&self) -> Vec<String> {
        Vec::new()
    }

    fn doubted(&self) {}

    fn expired(&self) {}
}

impl Visitor {
    pub(crate) fn new(options: Arc<Options>, host: Arc<dyn Host>) -> Self {
        Self {
            options,
            host,
            session: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            user: Arc::new(Nobody),
        }
    }

    pub(crate) fn options(&self) -> &Arc<Options> {
        &self.options
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// A session that was alive a moment ago, for what takes several steps.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Fail> {
        let session = self.any().await?;
        // A request that needs nothing: a session that ended unseen is found out here, not half way through.
        let ping = Request::Exists { path: self.options.top_or_slash(), watch: false };
        match session.send(&[ping]).await {
            Ok(_) => Ok(session),
            // Nothing was to be changed, so what became of it does not matter.
            Err(Fail::NoLease | Fail::Unknown(_)) => self.any().await,
            Err(fail) => Err(fail),
        }
    }

    /// As [`Session::send`], on whatever session there is.
    pub(crate) async fn send(&self, requests: &[Request]) -> Result<Vec<Reply>, Fail> {
        match self.any().await?.send(requests).await {
            // Found out before anything was sent.
            Err(Fail::NoLease) => self.any().await?.send(requests).await,
            sent => sent,
        }
    }

    /// A session of the caller's own: what hangs on it goes when it is dropped, or soon after, whoever else asks meanwhile.
    pub(crate) async fn own(&self) -> Result<Session, Fail> {
        let user: Weak<Nobody> = Arc::downgrade(&self.user);
        Session::open(self.options.clone(), self.host.clone(), VISIT, user).await
    }

    async fn any(&self) -> Result<Arc<Session>, Fail> {
        let _one_at_a_time = self.opening.lock().await;
        let present = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(session) = present.filter(|session| !session.is_over()) {
            return Ok(session);
        }
        let session = Arc::new(self.own().await?);
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        Ok(session)
    }

    /// Makes nodes that stay, where they are missing.
    pub(crate) async fn make(&self, session: &Session, nodes: Vec<(String, Vec<u8>)>) -> Result<(), Fail> {
        let acl = self.options.acl;
        let paths: Vec<_> = nodes.iter().map(|(path, _)| path.clone()).collect();
        let create = |(path, data)| Request::Create { path, data, kind: Kind::Persistent, acl };
        let replies = session.send(&nodes.into_iter().map(create).collect::<Vec<_>>()).await?;
        for (reply, path) in replies.iter().zip(&paths) {
            match reply.done() {
                Ok(()) | Err(Code::NODE_EXISTS) => {}
                Err(code) => return Err(code.fail(path)),
            }
        }
        Ok(())
    }
}
