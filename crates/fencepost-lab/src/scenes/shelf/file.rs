//! The stock in a file of JSON.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fencepost::gate::{FileGate, Pass};
use fencepost::{Error, ErrorKind};

use super::Stock;

pub(in crate::scenes) struct File {
    path: PathBuf,
    gate: FileGate,
}

impl File {
    pub(super) fn fill(path: &Path) -> Result<(), Error> {
        fs::write(path, text(&Stock::full())?).map_err(|error| broken(path, error))
    }

    pub(super) fn at(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.into(), gate: FileGate::new(path)? })
    }

    pub(super) fn read(&self, pass: Option<&Pass>) -> Result<Stock, Error> {
        let content = match pass {
            Some(pass) => self.gate.open(pass)?.read()?.unwrap_or_default(),
            None => fs::read(&self.path).map_err(|error| broken(&self.path, error))?,
        };
        serde_json::from_slice(&content).map_err(|error| broken(&self.path, error.into()))
    }

    pub(super) fn write(&self, pass: Option<&Pass>, stock: &Stock) -> Result<(), Error> {
        match pass {
            Some(pass) => self.gate.open(pass)?.write(text(stock)?),
            None => fs::write(&self.path, text(stock)?).map_err(|error| broken(&self.path, error)),
        }
    }
}

fn text(stock: &Stock) -> Result<String, Error> {
    serde_json::to_string(stock).map_err(|error| {
        Error::new(ErrorKind::Internal, "the stock cannot be written as JSON").caused_by(error)
    })
}

fn broken(path: &Path, error: io::Error) -> Error {
    let text = format!("the stock cannot be reached, play the scene again: {error}, path={}", path.display());
    Error::new(ErrorKind::Unavailable, text)
}
