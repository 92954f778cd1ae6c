//! Why a gate lets nobody through, in the same words for every gate.

use std::{error, fmt};

use crate::{
    error::{Error, ErrorKind},
    token::{Lineage, Token},
};

/// A later holder has raised the gate: the work under the lower token must be abandoned.
///
/// [`Error::stale`] gives it to the caller. If new holders are refused too, the lock's backend has lost its tokens (it
/// was restored or wiped): take the lock above [`highest`](Self::highest), and it goes on from there.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencepost::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let locker = fencepost::Locker::connect(&format!("local:{}", dir.path().display())).await?;
/// use fencepost::{Token, gate::{MemoryGate, Pass}};
///
/// let gate = MemoryGate::new(100);
/// gate.open(Token::new(9_000_000_000_000_000_000).expect("not zero"))?; // before the backend was restored
///
/// let mut guard = locker.lock("orders/4821").acquire().await?;
/// if let Some(stale) = gate.open(&guard).err().and_then(|error| error.stale()) {
///     guard.release().await?;
///     guard = locker.lock("orders/4821").floor(stale.highest).acquire().await?;
/// }
/// gate.open(&guard)?.update(|stock| *stock -= 1)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The token that was shown.
    pub presented: Token,
    /// The highest token that the gate had accepted.
    pub highest: Token,
}

/// The token comes from another source than those that the gate compares, so neither is the higher one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherLineage {
    /// The lineage that was shown.
    pub presented: Lineage,
    /// The lineage that the gate had recorded.
    pub recorded: Lineage,
}

/// Why a gate did not let a request through. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A later holder has raised the gate.
    Stale(Stale),
    /// The token is of another lineage.
    OtherLineage(OtherLineage),
    /// A protected write came without a pass.
    NotAdmitted,
    /// No token was ever shown for this resource.
    UnknownResource,
}

impl Refusal {
    /// The numbers, if the pass was stale.
    pub fn stale(&self) -> Option<Stale> {
        match self {
            Self::Stale(stale) => Some(*stale),
            _ => None,
        }
    }

    /// The error that a gate returns for its resource.
    pub fn at(self, resource: impl fmt::Display) -> Error {
        let text = format!("{self} resource={resource}");
        Error::new(self.kind(), text).refused(self)
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Stale(_) => ErrorKind::Stale,
            Self::OtherLineage(_) => ErrorKind::OtherLineage,
            Self::NotAdmitted => ErrorKind::Denied,
            Self::UnknownResource => ErrorKind::Invalid,
        }
    }
}

/// The error for a write whose reply was lost.
pub fn unknown_outcome(resource: impl fmt::Display) -> Error {
    let why = "the write may or may not have happened: open the gate again and read before you repeat it";
    Error::new(ErrorKind::Unknown, format!("{why}, resource={resource}"))
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the token is stale: a later holder has raised the gate, so abandon this work; if new holders are refused \
             too, the lock's backend has lost its tokens: take the lock above the highest one (`--above`, \
             `Lock::floor`), or `fencepost gate rebind` the resource, presented={} highest={}",
            self.presented, self.highest
        )
    }
}

impl fmt::Display for OtherLineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the token is of another lineage than those that the gate compares: lock with the backend that the others \
             use, or after a move to this one `fencepost gate rebind` the resource, presented={} recorded={}",
            self.presented, self.recorded
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::OtherLineage(other) => other.fmt(f),
            Self::NotAdmitted => {
                f.write_str("the write came without a pass: show the token in the same step,")
            }
            Self::UnknownResource => {
                f.write_str("no token was ever shown for this resource: check its name, or fence it first,")
            }
        }
    }
}

impl error::Error for Stale {}
impl error::Error for OtherLineage {}
impl error::Error for Refusal {}

impl From<Stale> for Refusal {
    fn from(stale: Stale) -> Self {
        Self::Stale(stale)
    }
}

impl From<OtherLineage> for Refusal {
    fn from(other: OtherLineage) -> Self {
        Self::OtherLineage(other)
    }
}

/// For gates whose resource has no name.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::new(refusal.kind(), refusal.to_string()).refused(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale() -> Stale {
        Stale { presented: Token::new(41).unwrap(), highest: Token::new(42).unwrap() }
    }

    #[test]
    fn a_stale_error_has_both_numbers_and_every_way_out() {
        let error = Refusal::from(stale()).at("orders/4821");
        assert_eq!((error.kind(), error.stale()), (ErrorKind::Stale, Some(stale())));
        let text = error.to_string();
        for part in [
            "abandon",
            "`--above`",
            "`Lock::floor`",
            "gate rebind",
            "presented=41 highest=42 resource=orders/4821",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }

    #[test]
    fn another_lineage_is_not_stale() {
        let other = OtherLineage { presented: Lineage::new("b"), recorded: Lineage::new("a") };
        let error = Error::from(Refusal::from(other.clone()));
        assert_eq!((error.kind(), error.stale()), (ErrorKind::OtherLineage, None));
        assert_eq!(error.other_lineage(), Some(&other));
        assert!(error.to_string().ends_with("presented=b recorded=a"), "{error}");
    }

    #[test]
    fn other_errors_carry_no_numbers() {
        for (error, kind) in [
            (Refusal::NotAdmitted.at("a"), ErrorKind::Denied),
            (Refusal::UnknownResource.at("a"), ErrorKind::Invalid),
            (unknown_outcome("a"), ErrorKind::Unknown),
        ] {
            assert_eq!((error.kind(), error.stale(), error.other_lineage()), (kind, None, None));
            assert!(error.to_string().ends_with(", resource=a"), "{error}");
        }
    }
}
