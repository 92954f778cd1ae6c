//! Putting the gate's functions into a database, and removing them.

use fencepost::{Error, ErrorKind};
use sqlx::{PgConnection, Row};

use super::sql::{ask, identifier, run};

/// The statements that install the gate, to be run as one transaction (`psql -1`): for those who keep their schema in
/// migrations.
pub const INSTALL: &str = concat!(
    include_str!("../../sql/postgres/gate.sql"),
    "\n",
    include_str!("../../sql/postgres/protect.sql"),
    "\n",
    include_str!("../../sql/postgres/rights.sql")
);

/// The statements that remove the gate with every mark and every trigger, to be run as one transaction.
pub const UNINSTALL: &str = include_str!("../../sql/postgres/uninstall.sql");

/// Installs the gate into the database, or brings an older one up to date. The role that does it owns the gate.
///
/// # Errors
///
/// `Denied` without CREATE on the database and on its schema `public`, or if another role owns the gate; `Unsupported` on an
/// older server, on a replica, or if a newer Fencepost has installed the gate; `Unavailable`.
pub async fn install(connection: &mut PgConnection) -> Result<(), Error> {
    run(connection, INSTALL.into()).await
}

/// Lets an application's role show tokens and look at the gate; it cannot lower or remove a mark.
///
/// # Errors
///
/// `Denied` for others than the gate's owner, `Invalid` if there is no such role, `Unavailable`.
pub async fn grant(connection: &mut PgConnection, role: &str) -> Result<(), Error> {
    let role = identifier(role);
    let routines =
        ["fence", "admit", "admit_recorded", "highest"].map(|name| format!("public.fencepost_{name}"));
    let routines = routines.join(", ");
    let table = format!("GRANT SELECT ON fencepost.guard TO {role}");
    run(connection, format!("{table}; GRANT EXECUTE ON ROUTINE {routines} TO {role}")).await
}

/// What would go with the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The tables that are protected.
    pub tables: Vec<String>,
    /// How many resources have a mark.
    pub marks: u64,
}

impl Installed {
    /// What is there.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the gate is not installed, `Denied`, `Unavailable`.
    pub async fn read(connection: &mut PgConnection) -> Result<Self, Error> {
        let broken = |error| Error::new(ErrorKind::Internal, "the catalog cannot be read").caused_by(error);
        let tables = "SELECT DISTINCT tgrelid::pg_catalog.regclass::text FROM pg_catalog.pg_trigger \
                      WHERE tgfoid = 'fencepost.refuse_write'::regproc AND tgparentid = 0 ORDER BY 1";
        let tables = ask(connection, tables.into()).await?;
        let tables = tables.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(broken)?;
        let marks = ask(connection, "SELECT pg_catalog.count(*) FROM fencepost.guard".into()).await?;
        let marks: i64 =
            marks.first().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get(0)).map_err(broken)?;
        Ok(Self { tables, marks: marks.unsigned_abs() })
    }
}

/// Removes the gate with every mark. Tables that are still protected keep it from that, unless `force` is given.
///
/// # Errors
///
/// `Denied` for others than the gate's owner; `Invalid` if tables are protected; `Unsupported` if it is not installed.
pub async fn uninstall(connection: &mut PgConnection, force: bool) -> Result<(), Error> {
    // The database refuses to drop a function that triggers need.
    let check = if force { "" } else { "DROP FUNCTION fencepost.refuse_write();" };
    run(connection, format!("{check}{UNINSTALL}")).await
}
