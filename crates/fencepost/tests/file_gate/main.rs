//! The file gate on real file systems: what it keeps of a file, and what it refuses in one sentence.

mod machines;
mod paths;
mod rights;

use std::{fs, path::PathBuf};

use fencepost::{
    Error, ErrorKind, Token,
    gate::{FileGate, Pass},
};
use tempfile::TempDir;

/// A directory with one file to protect.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("stock")
    }

    fn fence(&self) -> PathBuf {
        self.0.path().join("stock.fence")
    }

    fn gate(&self) -> FileGate {
        FileGate::new(self.path()).unwrap()
    }

    fn write(&self, number: u64, text: &str) -> Result<(), Error> {
        self.gate().open(pass(number))?.write(text)
    }

    /// The names of what is there, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn pass(number: u64) -> Pass {
    Token::new(number).unwrap().into()
}

#[track_caller]
fn assert_refused<T>(result: Result<T, Error>, kind: ErrorKind, part: &str) {
    let error = result.map(drop).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(part) && !text.contains('\n'), "{text}");
    assert!(text.starts_with(char::is_lowercase), "{text}");
}
