//! Names of protected resources.

use std::{fmt, str::FromStr};

use crate::{
    error::{Error, ErrorKind},
    name::{self, LockName},
};

/// The name under which a gate keeps the mark of one resource.
///
/// It has the rules of a [`LockName`], because it nearly always is one: what a lock protects is best called by the
/// lock's own name, and then no table says which token belongs where.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(LockName);

impl Resource {
    /// The name as it was typed.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for Resource {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match name::fault(text) {
            None => text.parse().map(Self),
            Some(fault) => Err(Error::new(ErrorKind::Invalid, format!("invalid resource name: {fault}"))),
        }
    }
}

impl From<LockName> for Resource {
    fn from(name: LockName) -> Self {
        Self(name)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
