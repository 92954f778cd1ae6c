//! Where the stock lies: read as a whole, written back as a whole, with or without a token.

mod file;
mod table;

use std::path::PathBuf;

use fencepost::Error;
use fencepost::gate::Pass;
use serde::{Deserialize, Serialize};

use super::act::Gate;
use file::File;
use table::Table;

/// What is left, and to whom the rest was sold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stock {
    pub(super) left: i32,
    pub(super) sold: Vec<String>,
}

impl Stock {
    pub(super) fn full() -> Self {
        Self { left: 100, sold: Vec::new() }
    }

    /// What is left after one more sale.
    pub(super) fn sell(mut self, sale: &str) -> Self {
        self.left -= 1;
        self.sold.push(sale.into());
        self
    }
}

/// Where a worker finds the stock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Place {
    /// A file.
    File(PathBuf),
    /// A database of PostgreSQL.
    Postgres(String),
}

/// The stock, as one worker reaches it.
pub(super) enum Shelf {
    File(File),
    Table(Table),
}

impl Shelf {
    /// Puts a full stock there, and the gate.
    pub(super) async fn fill(place: &Place) -> Result<(), Error> {
        match place {
            Place::File(path) => File::fill(path),
            Place::Postgres(url) => Table::fill(url).await,
        }
    }

    pub(super) async fn open(place: &Place) -> Result<Self, Error> {
        Ok(match place {
            Place::File(path) => Self::File(File::at(path)?),
            Place::Postgres(url) => Self::Table(Table::connect(url).await?),
        })
    }

    /// Reads the stock; a pass is shown first.
    pub(super) async fn read(&mut self, pass: Option<&Pass>) -> Result<Stock, Error> {
        match self {
            Self::File(file) => file.read(pass),
            Self::Table(table) => table.read(pass).await,
        }
    }

    /// Replaces the stock; a pass is shown in the same step.
    pub(super) async fn write(&mut self, pass: Option<&Pass>, stock: &Stock) -> Result<(), Error> {
        match self {
            Self::File(file) => file.write(pass, stock),
            Self::Table(table) => table.write(pass, stock).await,
        }
    }
}

impl Gate {
    /// What is shown before a read.
    pub(super) fn for_reads(self, pass: Option<&Pass>) -> Option<&Pass> {
        pass.filter(|_| self == Self::On)
    }

    /// What is shown with a write.
    pub(super) fn for_writes(self, pass: Option<&Pass>) -> Option<&Pass> {
        pass.filter(|_| self != Self::Off)
    }
}
