//! Where the gate is: found in `--gate` or FENCEPOST_GATE, and asked by one set of verbs.

use fencepost::{
    Error,
    gate::{FileGate, Mark, Pass},
};

#[cfg(feature = "postgres")]
use super::database::Database;
use super::variable;
use crate::{
    args::{Gate, Global},
    backend, exit, report,
};

pub(super) enum Place {
    File {
        gate: FileGate,
        name: String,
    },
    #[cfg(feature = "postgres")]
    Postgres(Box<Database>),
}

#[cfg_attr(not(feature = "postgres"), allow(unused_variables, reason = "a file gate has one resource"))]
impl Place {
    pub(super) fn find(global: &Global, args: &Gate) -> Result<Self, u8> {
        let (url, source) = match &args.gate {
            Some(url) => (url.clone(), "--gate"),
            None => match variable("FENCEPOST_GATE")? {
                Some(url) => (url, "FENCEPOST_GATE"),
                None => {
                    return Err(report::fail(
                        exit::USAGE,
                        "no gate: give --gate, such as postgres://host/database",
                    ));
                }
            },
        };
        if source == "--gate" && !global.quiet && backend::shows_password(&url) {
            report::note(
                "the password in --gate is visible to every user of this machine; \
                 put it into a file, and ?password_file=PATH into the url",
            );
        }
        let config = |error: Error| report::fail(exit::CONFIG, format_args!("{source}: {error}"));
        match url.split_once(':') {
            Some(("file", path)) => {
                let gate = FileGate::new(path).map_err(config)?;
                Ok(Self::File { gate, name: path.to_owned() })
            }
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", _)) => Database::new(&url, source, args.wait)
                .map(|database| Self::Postgres(Box::new(database)))
                .map_err(config),
            _ => {
                let known = if cfg!(feature = "postgres") {
                    "postgres://host/database or file:/path"
                } else {
                    "file:/path"
                };
                Err(report::fail(
                    exit::CONFIG,
                    format_args!("{source}: no gate of this build has such a url; give {known}"),
                ))
            }
        }
    }

    /// How messages name it, without credentials.
    pub(super) fn name(&self) -> String {
        match self {
            Self::File { name, .. } => format!("file:{name}"),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.name(),
        }
    }

    pub(super) fn is_one_resource(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Refuses the name of a resource where the gate has only one.
    pub(super) fn only_one(&self, given: Option<&str>) -> Result<(), u8> {
        let Some(given) = given else { return Ok(()) };
        let why = "a file gate has one resource, the file of its url: leave the name out, resource=";
        Err(report::fail(exit::USAGE, format_args!("{why}{given}")))
    }

    pub(super) fn fence(&self, resource: &str, pass: &Pass) -> Result<(), u8> {
        match self {
            Self::File { gate, .. } => told(gate.fence(pass)),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.fence(resource, pass),
        }
    }

    pub(super) fn admit(&self, resource: &str, pass: &Pass) -> Result<(), u8> {
        match self {
            Self::File { gate, .. } => told(gate.open(pass).map(drop)),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.admit(resource, pass),
        }
    }

    pub(super) fn write(&self, pass: &Pass, content: &[u8]) -> Result<(), u8> {
        match self {
            Self::File { gate, .. } => told(gate.open(pass).and_then(|file| file.write(content))),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Err(report::fail(
                exit::USAGE,
                "write is for file gates: call fencepost_admit in the transaction that writes",
            )),
        }
    }

    /// One resource's mark, or all marks.
    pub(super) fn marks(&self, resource: Option<&str>) -> Result<Vec<(String, Mark)>, u8> {
        match self {
            Self::File { gate, name } => {
                self.only_one(resource)?;
                told(gate.mark()).map(|mark| vec![(name.clone(), mark)])
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.marks(resource),
        }
    }

    /// Sets the mark, and returns the one that was there.
    pub(super) fn rebind(&self, resource: &str, mark: &Mark) -> Result<Mark, u8> {
        match self {
            Self::File { gate, .. } => told(gate.rebind(mark.clone())),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.rebind(resource, mark),
        }
    }

    #[cfg(feature = "postgres")]
    pub(super) fn install(&self, roles: &[String]) -> Result<(), u8> {
        match self {
            Self::File { .. } => Err(nothing_to_install()),
            Self::Postgres(database) => database.install(roles),
        }
    }

    #[cfg(feature = "postgres")]
    pub(super) fn uninstall(&self, force: bool) -> Result<(), u8> {
        match self {
            Self::File { .. } => Err(nothing_to_install()),
            Self::Postgres(database) => database.uninstall(force),
        }
    }
}

#[cfg(feature = "postgres")]
fn nothing_to_install() -> u8 {
    report::fail(
        exit::USAGE,
        "a file gate needs no installation: its mark is the file beside it, ending in .fence",
    )
}

/// The answer, or the exit status of the error that was told.
pub(super) fn told<T>(result: Result<T, Error>) -> Result<T, u8> {
    result.map_err(|error| report::error(&error))
}
