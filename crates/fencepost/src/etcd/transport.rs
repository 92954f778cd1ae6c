//! The seam between those who know etcd's messages and whatever carries them.

use std::fmt;

use tokio::sync::mpsc;

use crate::{driver::Fail, host::Fut};

/// One request, encoded. `Debug` shows what it is for, and nothing of what it says.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    verb: &'static str,
    path: &'static str,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(verb: &'static str, path: &'static str, body: Vec<u8>) -> Self {
        Self { verb, path, body }
    }

    /// What it is for, such as `enter`, `renew` or `leave`.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// The method's path, such as `/etcdserverpb.KV/Txn`.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// The encoded message.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({} {})", self.verb, self.path)
    }
}

/// What carries requests to one etcd cluster.
pub trait Transport: Send + Sync + 'static {
    /// Sends one request and answers its one reply. Never sends it twice.
    ///
    /// # Errors
    ///
    /// [`Fail::Unavailable`] if surely nothing was carried out, [`Fail::Unknown`] if it may have been, otherwise what the
    /// server's refusal means.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have been carried out. The next one may go to another endpoint: whoever drops a call
    /// has usually waited long enough.
    fn call(&self, call: Call) -> Fut<'_, Result<Vec<u8>, Fail>>;

    /// Opens a stream of watches, on which `asks` are sent. It completes at the first answer.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    fn watch(&self, asks: mpsc::UnboundedReceiver<Vec<u8>>) -> Fut<'_, Result<Box<dyn Events>, Fail>>;

    /// The cluster as messages name it, without credentials, such as `etcd://a:2379,b:2379`.
    fn name(&self) -> String;
}

/// What comes back on a stream of watches.
pub trait Events: Send {
    /// The next message; `None` when the stream has ended, for whatever reason.
    fn next(&mut self) -> Fut<'_, Option<Vec<u8>>>;
}
