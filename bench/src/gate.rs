//! A transaction in PostgreSQL with the gate, beside the same without: it reads a row, changes it and commits.

use fencepost::Token;
use fencepost_lab::server::postgres::{Options, Postgres, installed};
use fencepost_sqlx::{
    postgres,
    sqlx::{self, PgConnection, PgPool, postgres::PgPoolOptions},
};
use tokio::runtime::{Builder, Runtime};

use crate::{
    outcome::Outcome,
    pairs::{Pairs, in_turn},
    table::Table,
};

/// Connections, each on a resource of its own.
const MANY: usize = 64;
/// How many transactions of each connection make one measurement.
const REPEATED: u32 = 40;
/// What a gated transaction may take, in ungated ones.
const GOAL: f64 = 1.25;

pub(crate) fn measure(table: &mut Table, effort: usize) -> Outcome<()> {
    if let Err(missing) = installed() {
        table.plain("the gate in PostgreSQL", missing.to_string());
        return Ok(());
    }
    let server = Postgres::start(Options { fsync: true, ..Options::default() })?;
    server.psql("postgres", &format!("BEGIN; {} COMMIT", postgres::INSTALL))?;
    server.psql("postgres", "CREATE TABLE stock (id int PRIMARY KEY, n bigint); INSERT INTO stock SELECT generate_series(0, 63), 0")?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let url = server.url("postgres");
    let pools = runtime.block_on(async {
        let mut pools = Vec::new();
        for _ in 0..MANY {
            pools.push(PgPoolOptions::new().max_connections(1).connect(&url).await?);
        }
        Ok::<_, sqlx::Error>(pools)
    })?;
    let one = pair(&runtime, &pools[..1], 2 * effort)?;
    table.pairs("a transaction with the gate", "without", &one.each_of(REPEATED), Some(GOAL));
    let many = pair(&runtime, &pools, effort)?;
    let what = format!("the same, {MANY} connections and resources");
    table.pairs(&what, "without", &many.each_of(REPEATED * MANY as u32), Some(GOAL));
    Ok(())
}

fn pair(runtime: &Runtime, pools: &[PgPool], pairs: usize) -> Outcome<Pairs> {
    in_turn(pairs, || work(runtime, pools, false), || work(runtime, pools, true))
}

/// Each connection does its transactions, beside the others.
fn work(runtime: &Runtime, pools: &[PgPool], is_gated: bool) -> Outcome<()> {
    let tasks: Vec<_> =
        pools.iter().cloned().enumerate().map(|(id, pool)| runtime.spawn(turn(pool, id, is_gated))).collect();
    for task in tasks {
        runtime.block_on(task)?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

async fn turn(
    pool: PgPool,
    id: usize,
    is_gated: bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (resource, token) = (format!("stock/{id}"), Token::new(42).expect("not zero"));
    for _ in 0..REPEATED {
        let mut tx = match is_gated {
            true => postgres::begin(&pool, &resource, token).await?,
            false => pool.begin().await?,
        };
        sell(&mut tx, id as i32).await?;
        tx.commit().await?;
    }
    Ok(())
}

async fn sell(tx: &mut PgConnection, id: i32) -> Result<(), sqlx::Error> {
    let n: i64 = sqlx::query_scalar("SELECT n FROM stock WHERE id = $1").bind(id).fetch_one(&mut *tx).await?;
    sqlx::query("UPDATE stock SET n = $2 WHERE id = $1").bind(id).bind(n + 1).execute(tx).await?;
    Ok(())
}
