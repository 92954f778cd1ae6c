//! Lock names: validated once, here; escaped per backend by each driver.

use std::{fmt, str::FromStr, sync::Arc};

use crate::error::{Error, ErrorKind};

/// The longest lock name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 255;

/// The name of a lock, as users type it, such as `orders/4821`.
///
/// 1 to 255 bytes of UTF-8 without control characters; segments are separated by `/`, and none of them
/// is empty, `.` or `..`. Names are case-sensitive and never normalised: `a`, `A`, `ab` and `a/b` are
/// four locks, and so are two Unicode forms of one letter.
///
/// ```
/// use fencepost::LockName;
/// assert!("orders/4821".parse::<LockName>().is_ok());
/// assert!("orders//4821".parse::<LockName>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The name as it was typed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match fault(name) {
            None => Ok(Self(name.into())),
            Some(fault) => Err(Error::new(ErrorKind::Invalid, format!("invalid lock name: {fault}"))),
        }
    }
}

/// What is wrong with `name`, and the way out; `None` when nothing is.
pub(crate) fn fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty; give 1 to 255 bytes, such as orders/4821".into());
    }
    if name.len() > MAX_NAME_BYTES {
        return Some(format!("it has {} bytes; at most {MAX_NAME_BYTES} fit", name.len()));
    }
    if let Some(c) = name.chars().find(|c| c.is_control()) {
        return Some(format!("it contains the control character U+{:04X}; remove it", c as u32));
    }
    if name.starts_with('/') || name.ends_with('/') {
        return Some(format!("{name:?} begins or ends with a slash; remove it"));
    }
    let segment = name.split('/').find(|s| matches!(*s, "" | "." | ".."))?;
    Some(format!("{name:?} has the segment {segment:?}; use segments other than \"\", \".\" and \"..\""))
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_names_are_taken_as_they_are() {
        for name in ["a", "orders/4821", "A b", "日本/语", "...", "a/.b", &"x".repeat(255), "e\u{301}", "é"]
        {
            assert_eq!(name.parse::<LockName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn illegal_names_are_refused_with_the_reason() {
        let long = "x".repeat(256);
        for (name, part) in [
            ("", "empty"),
            (long.as_str(), "256 bytes"),
            ("a\0b", "U+0000"),
            ("a\nb", "U+000A"),
            ("a\u{85}b", "U+0085"),
            ("/a", "slash"),
            ("a/", "slash"),
            ("a//b", "segment \"\""),
            ("..", "segment \"..\""),
            ("a/./b", "segment \".\""),
        ] {
            let error = name.parse::<LockName>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
