//! Fencing tokens, and the lineage within which they compare.

use std::{fmt, num::NonZeroU64, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// A fencing token: a number that is larger for every later holder of the same lock.
///
/// Hand it to the protected resource with every write; the resource rejects a token lower than the highest
/// that it has seen. Only the order is promised, never density. Tokens of different [lineages](Lineage) do
/// not compare. Source: Kleppmann, "How to do distributed locking" (2016).
///
/// In text and JSON a token is a decimal string: many JSON readers lose integers above 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(NonZeroU64);

impl Token {
    /// The token with this number; `None` for 0, which no lock ever carries.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None };
        number.and_then(Self::new).ok_or_else(|| {
            let why = "give a whole number from 1 to 18446744073709551615";
            Error::new(ErrorKind::Invalid, format!("invalid token {text:?}: {why}"))
        })
    }
}

impl TryFrom<String> for Token {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.to_string()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a token source. A new backend, or one that was wiped, starts another lineage, and tokens
/// of two lineages say nothing about each other.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lineage(Arc<str>);

impl Lineage {
    /// The lineage with this id.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_as_they_were_written() {
        for number in [1, 42, u64::from(u32::MAX), (1 << 53) + 1, u64::MAX] {
            let token = Token::new(number).unwrap();
            assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
            let json = serde_json::to_string(&token).unwrap();
            assert_eq!(json, format!("\"{number}\""));
            assert_eq!(serde_json::from_str::<Token>(&json).unwrap(), token);
        }
    }

    #[test]
    fn other_texts_are_not_tokens() {
        for text in ["", "0", "-1", "+1", " 1", "1 ", "0x10", "1.0", "18446744073709551616", "seven"] {
            assert_eq!(text.parse::<Token>().unwrap_err().kind(), ErrorKind::Invalid, "{text:?}");
        }
    }
}
