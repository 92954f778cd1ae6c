//! Showing a token to the gate, and what the gate has recorded.

use fencepost::{
    Error, ErrorKind, Lineage, Token,
    gate::{Mark, Pass, Resource},
};
use sqlx::{PgConnection, Row, postgres::PgRow};

use super::sql::{ask, call, literal, optional, run};

/// Raises the gate: call it before you read what you are going to change.
///
/// In a transaction it holds until its end; alone it is one. A mark that a transaction has raised is there once it has
/// committed: rolled back, the mark goes back as well, so commit before you rely on what you have read. A new token takes the isolation level READ COMMITTED: a
/// transaction whose snapshot is fixed could otherwise read what was there before the former holder's last write. So
/// under REPEATABLE READ or SERIALIZABLE fence first, in a transaction of its own, and [`admit`] in the one that works.
///
/// # Errors
///
/// `Stale` and `OtherLineage`; `Unavailable` if the database was not reached or gave way to another transaction: repeat;
/// `Unsupported` on a replica, without the gate's functions, and for a new token under another isolation level.
pub async fn fence(
    connection: &mut PgConnection,
    resource: &str,
    pass: impl Into<Pass>,
) -> Result<(), Error> {
    run(connection, call("fence", &resource.parse()?, &pass.into())).await
}

/// Does as [`fence`], and lets this transaction write to the tables that are protected for the resource.
///
/// The admission goes with the transaction, and with a savepoint that is rolled back.
///
/// # Errors
///
/// As [`fence`].
pub async fn admit(
    connection: &mut PgConnection,
    resource: &str,
    pass: impl Into<Pass>,
) -> Result<(), Error> {
    run(connection, call("admit", &resource.parse()?, &pass.into())).await
}

/// What the gate has recorded about one resource: nothing, if no token was ever shown for it.
///
/// # Errors
///
/// As [`fence`], but never stale.
pub async fn mark(connection: &mut PgConnection, resource: &str) -> Result<Mark, Error> {
    let resource: Resource = resource.parse()?;
    let condition = format!("WHERE resource = {}", literal(resource.as_str()));
    Ok(select(connection, &condition).await?.pop().map(|(_, mark)| mark).unwrap_or_default())
}

/// What the gate has recorded, for every resource whose name begins with `prefix`, in the order of the names.
///
/// # Errors
///
/// As [`mark`].
pub async fn marks(connection: &mut PgConnection, prefix: &str) -> Result<Vec<(String, Mark)>, Error> {
    let condition = format!("WHERE starts_with(resource, {}) ORDER BY resource", literal(prefix));
    select(connection, &condition).await
}

/// Sets the mark of a resource to what an operator knows to be right, a lower one too, as after a move to locks of
/// another lineage; and returns the one that was there. Only the owner of the gate may. Waits for the transactions that
/// were admitted.
///
/// # Errors
///
/// As [`mark`].
pub async fn rebind(connection: &mut PgConnection, resource: &str, mark: &Mark) -> Result<Mark, Error> {
    let resource: Resource = resource.parse()?;
    let (name, lineage) = (literal(resource.as_str()), optional(mark.lineage.as_ref()));
    let highest = mark.highest.map_or("NULL".into(), |highest| highest.to_string());
    let columns = format!("{name}, highest_before::text, lineage_before");
    let question =
        format!("SELECT {columns} FROM public.fencepost_rebind({name}, {lineage}, {highest}::numeric)");
    let rows = ask(connection, question).await?;
    Ok(rows.iter().map(read).next().transpose()?.map(|(_, mark)| mark).unwrap_or_default())
}

async fn select(connection: &mut PgConnection, condition: &str) -> Result<Vec<(String, Mark)>, Error> {
    let question = format!("SELECT resource, highest::text, lineage FROM fencepost.guard {condition}");
    ask(connection, question).await?.iter().map(read).collect()
}

/// The name as it is: one that is none any more must not hide the others.
fn read(row: &PgRow) -> Result<(String, Mark), Error> {
    let broken = |error| Error::new(ErrorKind::Internal, "the gate's table cannot be read").caused_by(error);
    let text = |column: usize| row.try_get::<Option<String>, _>(column).map_err(broken);
    let highest = text(1)?.map(|number| number.parse::<Token>()).transpose()?;
    let mark = Mark { highest, lineage: text(2)?.map(Lineage::new) };
    Ok((text(0)?.unwrap_or_default(), mark))
}
