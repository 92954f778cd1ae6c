//! The gate in PostgreSQL: a table whose rows are protected one by one.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use fencepost::{
    Error, ErrorKind, Token,
    conformance::Hook,
    gate::{
        Mark, Pass,
        conformance::{Client, Crash, Harness, Transaction},
    },
};
use fencepost_lab::server::postgres::{Options, Postgres, installed};
use fencepost_sqlx::{
    postgres::{self, explain},
    sqlx::{self, Connection, PgConnection, PgPool, Row, postgres::PgPoolOptions},
};
use tokio::runtime::{Builder, Runtime};

const TABLE: &str = "CREATE TABLE texts (resource text PRIMARY KEY, content text NOT NULL);
                     SELECT fencepost_protect_rows('texts', 'resource')";

const WRITE: &str =
    "INSERT INTO texts VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET content = excluded.content";

struct Store(Mutex<Postgres>);

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    installed().map_err(|missing| missing.to_string())?;
    let server = Postgres::start(Options::default()).map_err(|error| error.to_string())?;
    let install = format!("BEGIN; {} COMMIT; {TABLE}", postgres::INSTALL);
    server.psql("postgres", &install).map_err(|error| error.to_string())?;
    Ok(Box::new(Store(server.into())))
}

impl Store {
    fn server(&self) -> MutexGuard<'_, Postgres> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Harness for Store {
    fn connect(&self) -> Result<Box<dyn Client>, Error> {
        let url = self.server().url("postgres");
        let runtime = runtime()?;
        let pool =
            runtime.block_on(PgPoolOptions::new().max_connections(1).connect(&url)).map_err(explain)?;
        Ok(Box::new(Session { runtime, pool, url }))
    }

    fn largest(&self) -> Token {
        Token::new(i64::MAX.unsigned_abs()).expect("not zero")
    }

    fn restart(&self) -> Hook {
        self.server().restart().expect("it starts again");
        Ok(())
    }

    /// A psql that has itself killed between two statements.
    fn crash(&self, resource: &str, pass: &Pass, text: &str, step: usize) -> Hook<Crash> {
        let admit = format!("SELECT fencepost_admit('{resource}', {});", pass.token);
        let write = WRITE.replace("$1", &format!("'{resource}'")).replace("$2", &format!("'{text}'")) + ";";
        let mut script = vec!["BEGIN;", &admit, &write, "COMMIT;"];
        if step < script.len() {
            script.insert(step, r"\! kill -9 $PPID");
        }
        let mut psql = Command::new(installed().expect("the server runs").join("psql"));
        psql.arg(self.server().url("postgres")).args(["-Xq", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it is installed");
        // It may be dead before it has read all.
        let _ = psql.stdin.take().expect("it is piped").write_all(script.join("\n").as_bytes());
        let status = psql.wait().expect("it is our child");
        match status.code() {
            None => Ok(Crash::Killed),
            Some(0) => Ok(Crash::Ended),
            Some(code) => panic!("psql failed with {code}"),
        }
    }

    fn residue(&self) -> Vec<String> {
        let open = "SELECT mode FROM pg_locks WHERE locktype = 'advisory' \
                    UNION ALL SELECT state FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
        let mut found = String::new();
        // A session ends when the server has noticed that its client is dead.
        for _ in 0..100 {
            found = self.server().psql("postgres", open).expect("the server runs");
            if found.is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        found.lines().map(ToOwned::to_owned).collect()
    }
}

/// One process, with its own pool.
struct Session {
    runtime: Runtime,
    pool: PgPool,
    url: String,
}

impl Session {
    /// Does something over the pool's connection.
    fn with<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>) -> Result<T, Error> {
        self.runtime.block_on(async {
            let mut connection = self.pool.acquire().await.map_err(explain)?;
            work(&mut connection).await
        })
    }

    /// Does something in a transaction that begins with the fence.
    fn under<T>(
        &self,
        resource: &str,
        pass: &Pass,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.runtime.block_on(async {
            let mut tx = postgres::begin(&self.pool, resource, pass).await?;
            let done = work(&mut tx).await?;
            tx.commit().await.map_err(explain)?;
            Ok(done)
        })
    }
}

impl Client for Session {
    fn fence(&self, resource: &str, pass: &Pass) -> Result<(), Error> {
        self.with(async |connection| postgres::fence(connection, resource, pass).await)
    }

    fn read(&self, resource: &str, pass: &Pass) -> Result<String, Error> {
        self.under(resource, pass, async |tx| content(tx, resource).await)
    }

    fn write(&self, resource: &str, pass: &Pass, text: &str) -> Result<(), Error> {
        self.under(resource, pass, async |tx| put(tx, resource, text).await)
    }

    fn peek(&self, resource: &str) -> Result<String, Error> {
        self.with(async |connection| content(connection, resource).await)
    }

    fn mark(&self, resource: &str) -> Result<Mark, Error> {
        self.with(async |connection| postgres::mark(connection, resource).await)
    }

    fn rebind(&self, resource: &str, mark: &Mark) -> Result<(), Error> {
        self.with(async |connection| postgres::rebind(connection, resource, mark).await.map(drop))
    }

    fn begin(&self, resource: &str) -> Hook<Result<Box<dyn Transaction + '_>, Error>> {
        let begun = || -> Result<Box<dyn Transaction>, Error> {
            let runtime = runtime()?;
            let connection = runtime.block_on(async {
                let mut connection = PgConnection::connect(&self.url).await?;
                sqlx::raw_sql("BEGIN").execute(&mut connection).await?;
                Ok(connection)
            });
            Ok(Box::new(Own { connection: connection.map_err(explain)?, runtime, resource: resource.into() }))
        };
        Ok(begun())
    }
}

/// A transaction of the caller's own: the end of its connection rolls it back.
struct Own {
    // Before the runtime that it lives on.
    connection: PgConnection,
    runtime: Runtime,
    resource: String,
}

impl Transaction for Own {
    fn admit(&mut self, pass: &Pass) -> Result<(), Error> {
        self.runtime.block_on(postgres::admit(&mut self.connection, &self.resource, pass))
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        self.runtime.block_on(put(&mut self.connection, &self.resource, text))
    }

    fn commit(mut self: Box<Self>) -> Result<(), Error> {
        let committed = sqlx::raw_sql("COMMIT").execute(&mut self.connection);
        self.runtime.block_on(committed).map(drop).map_err(explain)
    }
}

async fn content(connection: &mut PgConnection, resource: &str) -> Result<String, Error> {
    let query = sqlx::query("SELECT content FROM texts WHERE resource = $1").bind(resource);
    let row = query.fetch_optional(connection).await.map_err(explain)?;
    Ok(row.map(|row| row.get(0)).unwrap_or_default())
}

async fn put(connection: &mut PgConnection, resource: &str, text: &str) -> Result<(), Error> {
    sqlx::query(WRITE).bind(resource).bind(text).execute(connection).await.map(drop).map_err(explain)
}

fn runtime() -> Result<Runtime, Error> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| Error::new(ErrorKind::Internal, "no runtime").caused_by(error))
}
