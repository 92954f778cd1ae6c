//! A database of its own for one test, with the gate in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fencepost::{Error, ErrorKind, Lineage, SystemHost, Token, driver::Host, gate::Pass};
use fencepost_lab::server::postgres::Postgres;
use fencepost_sqlx::{
    postgres::{explain, install},
    sqlx::{
        AssertSqlSafe, Connection, Error as SqlxError, PgConnection, PgPool, Row,
        postgres::{PgDatabaseError, PgPoolOptions},
        raw_sql,
    },
};

pub(crate) struct World {
    pub(crate) server: Arc<Postgres>,
    pub(crate) database: String,
    runtime: tokio::runtime::Runtime,
}

impl World {
    pub(crate) fn new(server: Arc<Postgres>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let database = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        server.psql("postgres", &format!("CREATE DATABASE {database}")).expect("the server runs");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Self { server, database, runtime: runtime.expect("the system has threads left") }
    }

    /// Runs a test, in a database with the gate.
    pub(crate) fn run(&self, test: impl Future<Output = ()>) {
        self.runtime.block_on(async {
            install(&mut self.connect().await).await.expect("it installs");
            test.await;
        });
    }

    /// Runs a test, in an empty database.
    pub(crate) fn run_empty(&self, test: impl Future<Output = ()>) {
        self.runtime.block_on(test);
    }

    /// Statements of an operator.
    pub(crate) fn psql(&self, sql: &str) -> String {
        self.server.psql(&self.database, sql).unwrap_or_else(|error| panic!("{error}: {sql}"))
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(&self.database)
    }

    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.expect("the server runs")
    }

    pub(crate) async fn connect_as(&self, role: &str) -> PgConnection {
        let url = self.server.url_as(&self.database, role, "");
        PgConnection::connect(&url).await.expect("the server runs, and the role is there")
    }

    pub(crate) async fn pool(&self, size: u32) -> PgPool {
        let options = PgPoolOptions::new().max_connections(size);
        options.connect(&self.url()).await.expect("the server runs")
    }

    /// Returns once at least so many sessions of this database wait for a lock.
    pub(crate) async fn waiting(&self, count: u32) {
        let waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        self.until(&format!("SELECT count(*) >= {count} {waiting}"), "t").await;
    }

    /// Returns once the statement has this result.
    pub(crate) async fn until(&self, sql: &str, expected: &str) {
        for _ in 0..500 {
            if self.psql(sql) == expected {
                return;
            }
            pause(20).await;
        }
        panic!("{sql} never was {expected}, but {}", self.psql(sql));
    }
}

/// Time that has to pass while nothing happens.
pub(crate) async fn pause(millis: u64) {
    let host = SystemHost;
    host.sleep_until(host.now() + Duration::from_millis(millis)).await;
}

pub(crate) fn token(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

pub(crate) fn of_lineage(number: u64, lineage: &str) -> Pass {
    Pass::from(token(number)).with_lineage(Lineage::new(lineage))
}

/// Statements as any client would send them.
pub(crate) async fn send(connection: &mut PgConnection, sql: &str) -> Result<(), SqlxError> {
    raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.map(drop)
}

/// As [`send`], for what cannot fail.
pub(crate) async fn done(connection: &mut PgConnection, sql: &str) {
    send(connection, sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
}

/// The first column of the first row, as text.
pub(crate) async fn value(connection: &mut PgConnection, sql: &str) -> Option<String> {
    let row = raw_sql(AssertSqlSafe(format!("SELECT ({sql})::text"))).fetch_one(connection).await;
    row.unwrap_or_else(|error| panic!("{error}: {sql}")).get(0)
}

/// Fails with this SQLSTATE, and with a message that has each part.
#[track_caller]
pub(crate) fn refused<T>(result: Result<T, SqlxError>, code: &str, parts: &[&str]) -> Error {
    let Err(error) = result else { panic!("accepted, where {code} was expected") };
    let database = error.as_database_error().unwrap_or_else(|| panic!("{error}"));
    let database = database.downcast_ref::<PgDatabaseError>();
    assert_eq!(database.code(), code, "{error}");
    for part in parts {
        assert!(database.message().contains(part), "no {part:?} in {:?}", database.message());
    }
    explain(error)
}

/// Is an error of this kind, with a message that has each part.
#[track_caller]
pub(crate) fn fails<T>(result: Result<T, Error>, kind: ErrorKind, parts: &[&str]) -> Error {
    let Err(error) = result else { panic!("accepted, where {kind:?} was expected") };
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "no {part:?} in {error}");
    }
    error
}

/// Is stale, with these numbers.
#[track_caller]
pub(crate) fn stale<T>(result: Result<T, Error>, presented: u64, highest: u64) {
    let error = fails(result, ErrorKind::Stale, &["abandon", "`--above`", "gate rebind"]);
    let numbers = error.stale().map(|stale| (stale.presented.get(), stale.highest.get()));
    assert_eq!(numbers, Some((presented, highest)));
}
