//! The gate in PostgreSQL 13 and later.
//!
//! [`install`] it once into a database (`fencepost gate install`). Then a transaction [begins](begin) with the holder's
//! token, and whatever it reads and writes afterwards, no later holder has read or written before its end:
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool, guard: fencepost::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! use fencepost_sqlx::postgres;
//!
//! let mut tx = postgres::begin(&pool, "orders/4821", &guard).await?;
//! sqlx::query("UPDATE orders SET state = 'shipped' WHERE id = $1").bind(4821).execute(&mut *tx).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! In a transaction of your own call [`admit`] before its first read. That takes the isolation level READ COMMITTED, or a
//! token that the gate has seen before: see [`fence`].
//!
//! Nothing depends on the session and nothing is prepared, so all of it works through PgBouncer's transaction pooling. (To
//! connect through it sqlx needs `PgConnectOptions::extra_float_digits(None)`, or PgBouncer `ignore_startup_parameters`.)
//!
//! What fails with [`ErrorKind::Unavailable`](fencepost::ErrorKind) may be repeated, with the whole transaction:
//! the database was not reached, or it gave way to another transaction (serialization failure, deadlock, a time limit).
//! Errors of your own statements are told apart by [`explain`]; a COMMIT whose reply was lost is `Unknown`.

mod begin;
mod error;
mod install;
mod mark;
mod recorded;
mod sql;

pub use begin::begin;
pub use error::{explain, explain_repeatable};
pub use install::{INSTALL, Installed, UNINSTALL, grant, install, uninstall};
pub use mark::{admit, fence, mark, marks, rebind};
