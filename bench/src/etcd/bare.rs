//! The bare requests: the very transactions of one acquire and one release, sent again and again over the library's own connection,
//! and nothing around them.

use std::sync::{Arc, Mutex, PoisonError};

use fencepost::{
    Locker, SystemHost, blocking,
    driver::{Fail, Fut, Host},
    etcd::{Call, Client, Events, Options, Transport, driver},
};
use tokio::sync::mpsc;

use crate::outcome::Outcome;

/// Passes everything on, and keeps what it is asked.
struct Recorder {
    client: Arc<Client>,
    calls: Mutex<Vec<Call>>,
}

impl Transport for Recorder {
    fn call(&self, call: Call) -> Fut<'_, Result<Vec<u8>, Fail>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        self.client.call(call)
    }

    fn watch(&self, asks: mpsc::UnboundedReceiver<Vec<u8>>) -> Fut<'_, Result<Box<dyn Events>, Fail>> {
        self.client.watch(asks)
    }

    fn name(&self) -> String {
        self.client.name()
    }
}

/// One acquire and one release, to be sent again.
pub(super) struct Bare {
    client: Arc<Client>,
    calls: Vec<Call>,
    /// Its lease is the one that the requests name.
    _locker: Locker,
}

impl Bare {
    pub(super) fn record(url: &str) -> Outcome<Self> {
        let host: Arc<dyn Host> = Arc::new(SystemHost);
        let options = Options::from_url(url.parse()?)?;
        let client = Arc::new(Client::new(options.clone(), host.clone()));
        let recorder = Arc::new(Recorder { client: client.clone(), calls: Mutex::default() });
        let driver = blocking::wait(driver(recorder.clone(), options, host.clone()))?;
        let locker = Locker::from_parts(driver, host);
        blocking::wait(blocking::wait(locker.lock("bare").acquire())?.release())?;
        let mut calls = std::mem::take(&mut *recorder.calls.lock().unwrap_or_else(PoisonError::into_inner));
        calls.retain(|call| ["enter", "leave"].contains(&call.verb()));
        if calls.len() != 2 {
            return Err(format!("a lock took other requests than two: {calls:?}").into());
        }
        Ok(Self { client, calls, _locker: locker })
    }

    /// The transaction of an acquire, and the one of a release.
    pub(super) async fn both(&self) -> Outcome<()> {
        for call in &self.calls {
            self.client.call(call.clone()).await.map_err(|fail| fail.to_string())?;
        }
        Ok(())
    }
}
