//! The stock in a row of a PostgreSQL table, behind a gate of `fencepost-sqlx`.

use fencepost::Error;
use fencepost::gate::Pass;
use fencepost_sqlx::postgres::{self, explain};
use fencepost_sqlx::sqlx::{self, Connection, PgConnection};

use super::Stock;
use crate::scenes::worker::LOCK;

pub(in crate::scenes) struct Table(PgConnection);

impl Table {
    pub(super) async fn fill(url: &str) -> Result<(), Error> {
        let mut table = Self::connect(url).await?;
        postgres::install(&mut table.0).await?;
        let full = Stock::full();
        let tables =
            "DROP TABLE IF EXISTS stock; CREATE TABLE stock (remaining int NOT NULL, sold text[] NOT NULL)";
        sqlx::raw_sql(tables).execute(&mut table.0).await.map_err(explain)?;
        let insert = sqlx::query("INSERT INTO stock VALUES ($1, $2)").bind(full.left).bind(full.sold);
        insert.execute(&mut table.0).await.map(drop).map_err(explain)
    }

    pub(super) async fn connect(url: &str) -> Result<Self, Error> {
        PgConnection::connect(url).await.map(Self).map_err(explain)
    }

    /// The fence is a transaction of its own: held until the write, it would keep the next holder waiting for a paused one.
    pub(super) async fn read(&mut self, pass: Option<&Pass>) -> Result<Stock, Error> {
        if let Some(pass) = pass {
            postgres::fence(&mut self.0, LOCK, pass).await?;
        }
        let row = sqlx::query_as("SELECT remaining, sold FROM stock").fetch_one(&mut self.0).await;
        row.map(|(left, sold)| Stock { left, sold }).map_err(explain)
    }

    pub(super) async fn write(&mut self, pass: Option<&Pass>, stock: &Stock) -> Result<(), Error> {
        let mut transaction = self.0.begin().await.map_err(explain)?;
        if let Some(pass) = pass {
            postgres::admit(&mut transaction, LOCK, pass).await?;
        }
        let update =
            sqlx::query("UPDATE stock SET remaining = $1, sold = $2").bind(stock.left).bind(&stock.sold);
        update.execute(&mut *transaction).await.map_err(explain)?;
        transaction.commit().await.map_err(explain)
    }
}
