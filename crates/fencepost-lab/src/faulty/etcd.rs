//! As for Redis, between a driver and an etcd cluster.

use std::sync::Arc;

use fencepost::{
    driver::{Fail, Fut, Host},
    etcd::{Call, Events, Transport},
};
use tokio::sync::{mpsc, oneshot};

use super::{Fault, Faults};

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

    fn later(
        &self,
        by: std::time::Duration,
        call: Call,
        answer: Option<oneshot::Sender<Result<Vec<u8>, Fail>>>,
    ) {
        let (inner, host) = (self.inner.clone(), self.host.clone());
        self.host.spawn(Box::pin(async move {
            host.sleep_until(host.now() + by).await;
            let result = inner.call(call).await;
            if let Some(answer) = answer {
                let _ = answer.send(result);
            }
        }));
    }
}

impl Transport for Faulty {
    fn call(&self, call: Call) -> Fut<'_, Result<Vec<u8>, Fail>> {
        match self.faults.take(|verb| verb == call.verb()) {
            None => self.inner.call(call),
            Some(Fault::LoseRequest) => Box::pin(std::future::pending()),
            Some(Fault::LoseReply) => Box::pin(async move {
                let _ = self.inner.call(call).await;
                std::future::pending().await
            }),
            // In a task: the caller's patience may end before the request is sent.
            Some(Fault::HoldBack(by)) => {
                let (answer, answered) = oneshot::channel();
                self.later(by, call, Some(answer));
                Box::pin(async { answered.await.unwrap_or_else(|_| Err(Fail::Unknown("held back".into()))) })
            }
            Some(Fault::Repeat(after)) => {
                self.later(after, call.clone(), None);
                self.inner.call(call)
            }
        }
    }

    fn watch(&self, asks: mpsc::UnboundedReceiver<Vec<u8>>) -> Fut<'_, Result<Box<dyn Events>, Fail>> {
        self.inner.watch(asks)
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}
