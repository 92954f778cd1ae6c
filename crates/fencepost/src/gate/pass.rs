//! What a holder shows at a gate.

use crate::{
    blocking,
    guard::Guard,
    token::{Lineage, Token},
};

/// What a holder shows at a gate: its token, and where it is known the lineage within which the token compares.
///
/// Made of a guard, or of what a job finds in its environment under `fencepost run`:
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::env;
/// use fencepost::{Lineage, Token, gate::Pass};
///
/// let token: Token = env::var("FENCEPOST_TOKEN")?.parse()?;
/// let pass = Pass::from(token).with_lineage(Lineage::new(env::var("FENCEPOST_LINEAGE")?));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The fencing token.
    pub token: Token,
    /// Its lineage. A pass without one is compared by its number alone.
    pub lineage: Option<Lineage>,
}

impl Pass {
    /// The same pass, with the lineage of its token.
    pub fn with_lineage(self, lineage: Lineage) -> Self {
        Self { lineage: Some(lineage), ..self }
    }
}

impl From<Token> for Pass {
    fn from(token: Token) -> Self {
        Self { token, lineage: None }
    }
}

impl From<&Guard> for Pass {
    fn from(guard: &Guard) -> Self {
        Self::from(guard.token()).with_lineage(guard.lineage().clone())
    }
}

impl From<&blocking::Guard> for Pass {
    fn from(guard: &blocking::Guard) -> Self {
        Self::from(guard.token()).with_lineage(guard.lineage().clone())
    }
}

impl From<&Pass> for Pass {
    fn from(pass: &Pass) -> Self {
        pass.clone()
    }
}
