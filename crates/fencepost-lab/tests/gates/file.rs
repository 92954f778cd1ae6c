//! The gate of a file.

use std::{fs, path::PathBuf};

use fencepost::{
    Error, Token,
    conformance::{Hook, NotApplicable},
    gate::{
        FileGate, Mark, Pass,
        conformance::{Client, Crash, Harness, Transaction},
    },
};
use fencepost_lab::storm;
use libtest_mimic::{Completion, Trial};
use tempfile::TempDir;

use crate::killed;

/// A directory with a file for each resource.
struct Files {
    home: TempDir,
    /// How the writers go about it that are killed.
    way: &'static str,
}

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    files(killed::SOUND)
}

/// With writers that put the data there first and then the fence.
pub(crate) fn broken() -> Result<Box<dyn Harness>, String> {
    files(killed::DATA_FIRST)
}

fn files(way: &'static str) -> Result<Box<dyn Harness>, String> {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    Ok(Box::new(Files { home, way }))
}

impl Harness for Files {
    fn connect(&self) -> Result<Box<dyn Client>, Error> {
        Ok(Box::new(Directory(self.home.path().to_owned())))
    }

    fn largest(&self) -> Token {
        Token::new(u64::MAX).expect("not zero")
    }

    fn restart(&self) -> Hook {
        NotApplicable::new("nothing runs between two uses of a file")
    }

    fn crash(&self, resource: &str, pass: &Pass, text: &str, step: usize) -> Hook<Crash> {
        let path = Directory(self.home.path().to_owned()).path(resource);
        killed::before_system_call(self.way, &path, pass.token, text, step)
    }

    fn residue(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home.path()).expect("the directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.ends_with(".data") && !name.ends_with(".data.fence")).collect()
    }
}

struct Directory(PathBuf);

impl Directory {
    /// No two names give the same one, and none has a slash.
    fn path(&self, resource: &str) -> PathBuf {
        let escaped: String = resource.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.0.join(format!("{escaped}.data"))
    }

    fn gate(&self, resource: &str) -> Result<FileGate, Error> {
        FileGate::new(self.path(resource))
    }
}

fn text(content: Option<Vec<u8>>) -> String {
    String::from_utf8(content.unwrap_or_default()).expect("what the cases write")
}

impl Client for Directory {
    fn fence(&self, resource: &str, pass: &Pass) -> Result<(), Error> {
        self.gate(resource)?.fence(pass)
    }

    fn read(&self, resource: &str, pass: &Pass) -> Result<String, Error> {
        self.gate(resource)?.open(pass)?.read().map(text)
    }

    fn write(&self, resource: &str, pass: &Pass, text: &str) -> Result<(), Error> {
        self.gate(resource)?.open(pass)?.write(text)
    }

    fn peek(&self, resource: &str) -> Result<String, Error> {
        Ok(text(fs::read(self.path(resource)).ok()))
    }

    fn mark(&self, resource: &str) -> Result<Mark, Error> {
        self.gate(resource)?.mark()
    }

    fn rebind(&self, resource: &str, mark: &Mark) -> Result<(), Error> {
        self.gate(resource)?.rebind(mark.clone()).map(drop)
    }

    fn begin(&self, _: &str) -> Hook<Result<Box<dyn Transaction + '_>, Error>> {
        NotApplicable::new("no transactions: a write replaces the whole file")
    }
}

/// What only this gate promises.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::ignorable_test("file::what_a_rename_shows_was_flushed", killed::flushes_come_first),
        Trial::ignorable_test("file::random_interleavings_in_memory", || {
            let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
                return Ok(Completion::ignored_with("no file system in memory at /dev/shm"));
            };
            storm::judge(&Files { home: memory, way: killed::SOUND }, 10_000, storm::seed())?;
            Ok(Completion::Completed)
        }),
    ]
}
