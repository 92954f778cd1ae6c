//! A transaction whose first statement is the fence, in one round trip.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use fencepost::{
    Error,
    gate::{Pass, Resource},
};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use tokio::runtime::Handle;

use super::{
    error::{explain_repeatable, is_not_recorded},
    recorded::Memory,
    sql,
};

/// Begins a transaction that is admitted at the gate of this resource; the fence rides on BEGIN, in one round trip.
///
/// A new token is recorded by a transaction of its own before, in the same round trip: so what was read here may be relied
/// on later, also if this transaction is rolled back. A token that this process has recorded before is only asked for; if the
/// database knows it no more, as after a restore, it is recorded again, in a second round trip.
///
/// The isolation level is READ COMMITTED, unless the database has another default. If the former holder's last
/// transaction still runs, this waits for its end, as long as the session's `lock_timeout` and `statement_timeout` allow.
/// Set a `lock_timeout` (`PgConnectOptions::options`): a session that has been given up by its client stays in the queue, and
/// keeps out those behind it, the valid holder's other transactions among them.
///
/// Cancel safe: a transaction that was begun for nobody is rolled back.
///
/// # Errors
///
/// `Stale` and `OtherLineage`; `Unavailable` if the database was not reached or gave way to another transaction: repeat.
pub async fn begin(
    pool: &PgPool,
    resource: &str,
    pass: impl Into<Pass>,
) -> Result<Transaction<'static, Postgres>, Error> {
    let resource: Resource = resource.parse()?;
    let pass = pass.into();
    let memory = Memory::of(&resource, &pass);
    let fence = sql::call("fence", &resource, &pass);
    let admit = format!("CALL public.fencepost_admit_recorded({})", sql::shown(&resource, &pass));
    let pool = pool.clone();
    let begun = async move {
        // In this order: the statements of one message are one transaction, which BEGIN then keeps open. After a refusal
        // the session is not left in a failed transaction, of which the pool would not know.
        if memory.is_there() {
            match pool.begin_with(AssertSqlSafe(format!("{admit}; BEGIN"))).await {
                Err(error) if is_not_recorded(&error) => {}
                begun => return begun,
            }
        }
        let begun = pool.begin_with(AssertSqlSafe(format!("{fence}; BEGIN; COMMIT; {admit}; BEGIN"))).await;
        if begun.is_ok() {
            memory.keep();
        }
        begun
    };
    ToItsEnd(Some(Box::pin(begun))).await.map_err(explain_repeatable)
}

type Begun = Pin<Box<dyn Future<Output = sqlx::Result<Transaction<'static, Postgres>>> + Send>>;

/// Begins on, in a task, if nobody waits any more: a connection that goes back into its pool in the middle of it would
/// keep the gate locked, since sqlx rolls back only what it knows to have begun.
struct ToItsEnd(Option<Begun>);

impl Future for ToItsEnd {
    type Output = <Begun as Future>::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let begun = self.0.as_mut().expect("a future is not polled after its end");
        let output = std::task::ready!(begun.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(output)
    }
}

impl Drop for ToItsEnd {
    fn drop(&mut self) {
        if let (Some(begun), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(begun);
        }
    }
}
