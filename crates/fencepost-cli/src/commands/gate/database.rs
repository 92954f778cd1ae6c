//! A gate in PostgreSQL: one connection a command.

use std::{fs, io, time::Duration};

use fencepost::{
    Error, ErrorKind,
    gate::{Mark, Pass},
};
use fencepost_sqlx::{
    postgres::{self, Installed},
    sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions},
};
use tokio::runtime;

use super::place::told;
use crate::{backend::Backend, commands::within, duration, exit, report};

/// How long it may take to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// What may stand behind the question mark; sqlx looks over what it does not know.
const PARAMETERS: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "options",
    "password_file",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

pub(super) struct Database {
    options: PgConnectOptions,
    source: &'static str,
    wait: Duration,
}

impl Database {
    pub(super) fn new(url: &str, source: &'static str, wait: Duration) -> Result<Self, Error> {
        let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
        let invalid = |why: String| Error::new(ErrorKind::Invalid, why);
        let mut password = None;
        let mut kept = Vec::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "password_file" => password = Some(read_password(&decoded(value))?),
                _ if PARAMETERS.contains(&name) => kept.push(parameter),
                _ => {
                    let known = PARAMETERS.join(", ");
                    return Err(invalid(format!(
                        "the url has an unknown parameter; there are {known}, parameter={name}"
                    )));
                }
            }
        }
        let options = format!("{place}?{}", kept.join("&")).parse::<PgConnectOptions>();
        // A PgBouncer refuses the one parameter that sqlx sends unasked.
        let mut options = options.map_err(postgres::explain)?.extra_float_digits(None);
        if let Some(password) = password {
            options = options.password(&password);
        }
        Ok(Self { options, source, wait })
    }

    pub(super) fn name(&self) -> String {
        let options = &self.options;
        let database = options.get_database().unwrap_or(options.get_username());
        format!("postgres://{}:{}/{database}", options.get_host(), options.get_port())
    }

    pub(super) fn fence(&self, resource: &str, pass: &Pass) -> Result<(), u8> {
        self.with(async |connection| {
            alone(connection, self.wait, async |tx| postgres::fence(tx, resource, pass).await).await
        })
    }

    pub(super) fn admit(&self, resource: &str, pass: &Pass) -> Result<(), u8> {
        self.with(async |connection| {
            alone(connection, self.wait, async |tx| postgres::admit(tx, resource, pass).await).await
        })
    }

    pub(super) fn marks(&self, resource: Option<&str>) -> Result<Vec<(String, Mark)>, u8> {
        self.with(async |connection| match resource {
            Some(resource) => Ok(vec![(resource.to_owned(), postgres::mark(connection, resource).await?)]),
            None => postgres::marks(connection, "").await,
        })
    }

    pub(super) fn rebind(&self, resource: &str, mark: &Mark) -> Result<Mark, u8> {
        self.with(async |connection| {
            alone(connection, self.wait, async |tx| postgres::rebind(tx, resource, mark).await).await
        })
    }

    pub(super) fn install(&self, roles: &[String]) -> Result<(), u8> {
        self.with(async |connection| {
            postgres::install(connection).await?;
            for role in roles {
                postgres::grant(connection, role).await?;
            }
            Ok(())
        })
    }

    pub(super) fn uninstall(&self, force: bool) -> Result<(), u8> {
        if !force {
            let Installed { tables, marks } =
                self.with(async |connection| Installed::read(connection).await)?;
            if !tables.is_empty() || marks > 0 {
                let tables = if tables.is_empty() { "no table".into() } else { tables.join(", ") };
                return Err(report::fail(
                    exit::USAGE,
                    format_args!(
                        "the gate protects {tables} and has {marks} marks, which would be lost; give --yes"
                    ),
                ));
            }
        }
        self.with(async |connection| postgres::uninstall(connection, force).await)
    }

    /// Connects, and does it within the limit; or says why not and answers the exit status.
    fn with<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>) -> Result<T, u8> {
        let internal =
            |error: io::Error| report::fail(exit::INTERNAL, format_args!("cannot start a runtime: {error}"));
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
        let done = runtime.block_on(async {
            let mut connection = self.connect().await?;
            let late = || {
                let limit = duration::exact(self.wait);
                let why = "a transaction of the former holder may still run: end it, or give a longer --wait";
                Error::new(ErrorKind::Unavailable, format!("the gate did not answer within {limit}; {why}"))
            };
            told(within(self.wait, work(&mut connection)).await.unwrap_or_else(|| Err(late())))
        });
        // The name of a host that nobody knows may still be asked for.
        runtime.shutdown_background();
        done
    }

    async fn connect(&self) -> Result<PgConnection, u8> {
        let connected = match within(CONNECT, PgConnection::connect_with(&self.options)).await {
            Some(connected) => connected.map_err(postgres::explain_repeatable),
            None => {
                let limit = duration::exact(CONNECT);
                Err(Error::new(ErrorKind::Unavailable, format!("the database did not answer within {limit}")))
            }
        };
        connected
            .map_err(|error| report::fail(Backend::code(&error), format_args!("{}: {error}", self.source)))
    }
}

/// Does it in a transaction of its own, with the isolation level that a new token takes. The server, too, gives up
/// after `wait`, or a moment later, since this side's sentence says more: a session that nobody waits for any more would stay
/// in the queue, and keep the valid holder out.
async fn alone<T>(
    connection: &mut PgConnection,
    wait: Duration,
    work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    let limit = wait.as_millis().saturating_add(100).min(i32::MAX as u128);
    let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {limit}");
    let explain = postgres::explain_repeatable;
    let mut tx = connection.begin_with(AssertSqlSafe(begin)).await.map_err(explain)?;
    let done = work(&mut tx).await?;
    tx.commit().await.map_err(explain)?;
    Ok(done)
}

fn read_password(path: &str) -> Result<String, Error> {
    let text = fs::read_to_string(path).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("cannot read the password's file: {error}, path={path}"))
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn decoded(value: &str) -> String {
    percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned()
}
