//! Text for the simple protocol, the only one that needs no prepared statement.

use std::fmt::Display;

use fencepost::{
    Error,
    gate::{Pass, Resource},
};
use sqlx::{AssertSqlSafe, PgConnection, postgres::PgRow};

use super::error::explain_repeatable;

/// A call of one of the gate's functions, `what` being the end of its name.
pub(super) fn call(what: &str, resource: &Resource, pass: &Pass) -> String {
    format!("SELECT public.fencepost_{what}({})", shown(resource, pass))
}

/// What shows a pass to the gate's routines.
pub(super) fn shown(resource: &Resource, pass: &Pass) -> String {
    let lineage = optional(pass.lineage.as_ref());
    let (resource, token) = (literal(resource.as_str()), pass.token);
    format!("{resource}, '{token}'::numeric, {lineage}")
}

/// A string that means the same whatever the session takes backslashes for.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'::text", text.replace('\\', r"\\").replace('\'', "''"))
}

pub(super) fn optional(text: Option<impl Display>) -> String {
    text.map_or("NULL".into(), |text| literal(&text.to_string()))
}

/// A name of a role or a table as one identifier.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Executes statements that were put together with the functions above.
pub(super) async fn run(connection: &mut PgConnection, sql: String) -> Result<(), Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop).map_err(explain_repeatable)
}

/// Asks a question that was put together with the functions above.
pub(super) async fn ask(connection: &mut PgConnection, sql: String) -> Result<Vec<PgRow>, Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await.map_err(explain_repeatable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_literal_early() {
        assert_eq!(literal(r"a'b\'; DROP TABLE t; --"), r"E'a''b\\''; DROP TABLE t; --'::text");
        assert_eq!(optional(None::<&str>), "NULL");
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
    }
}
