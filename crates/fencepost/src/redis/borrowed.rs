//! A transport over a connection that the program has already.

use std::sync::Arc;

use redis::aio::ConnectionLike;

use super::{Command, Listener, Reply, Transport, connection};
use crate::{driver::Fail, host::Fut};

/// Sends over an asynchronous connection of the `redis` crate, version 1, such as its `MultiplexedConnection` or
/// `ConnectionManager`.
///
/// Nothing is pushed over it: those who wait for a lock ask from time to time, and a holder learns of an operator's deletion at
/// its next renewal. Locks are renewed only while the connection's own runtime runs.
///
/// ```no_run
/// # async fn example(connection: redis::aio::MultiplexedConnection) -> Result<(), fencepost::Error> {
/// use std::sync::Arc;
/// use fencepost::{Locker, SystemHost, redis::{Borrowed, Options, driver}};
///
/// let transport = Arc::new(Borrowed::new(connection, "redis://cache1"));
/// let driver = driver(transport, Options::default(), Arc::new(SystemHost)).await?;
/// let locker = Locker::from_parts(driver, Arc::new(SystemHost));
/// let guard = locker.lock("orders/4821").acquire().await?;
/// # guard.release().await?;
/// # Ok(()) }
/// ```
pub struct Borrowed<C> {
    connection: C,
    name: String,
}

impl<C> Borrowed<C> {
    /// Borrows `connection`; messages call its server `name`, which must hold no password.
    pub fn new(connection: C, name: impl Into<String>) -> Self {
        Self { connection, name: name.into() }
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Transport for Borrowed<C> {
    fn send(&self, commands: Vec<Command>) -> Fut<'_, Result<Vec<Reply>, Fail>> {
        let mut connection = self.connection.clone();
        Box::pin(async move { connection::send_over(&mut connection, &commands).await })
    }

    fn subscribe<'a>(&'a self, _channel: &'a str) -> Fut<'a, Result<bool, Fail>> {
        Box::pin(async { Err(Fail::Unsupported("nothing is pushed over a borrowed connection".into())) })
    }

    fn tracks(&self) -> bool {
        false
    }

    fn listen(&self, _listener: Arc<dyn Listener>) {}

    fn greet(&self, _commands: Vec<Command>) {}

    fn name(&self) -> String {
        self.name.clone()
    }
}
