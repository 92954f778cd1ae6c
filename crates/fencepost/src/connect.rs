//! From a URL to a driver: one table of schemes, strict options.

use std::{collections::BTreeMap, fmt, sync::Arc};

use percent_encoding::percent_decode_str;

use crate::{
    driver::{Driver, Host},
    error::{Error, ErrorKind},
};

/// The schemes that this build has.
pub const SCHEMES: &[&str] = &[
    #[cfg(feature = "etcd")]
    "etcd",
    #[cfg(feature = "etcd")]
    "etcds",
    #[cfg(feature = "local")]
    "local",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "redis")]
    "rediss",
    #[cfg(feature = "zookeeper")]
    "zk",
    #[cfg(feature = "zookeeper")]
    "zks",
];

/// Every scheme that Fencepost knows, with the feature that compiles it in.
const KNOWN: &[(&str, &str)] = &[
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("local", "local"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("zk", "zookeeper"),
    ("zks", "zookeeper"),
];

/// The driver for the backend that `url` names, to be wrapped, simulated or tested;
/// [`Locker::connect`](crate::Locker::connect) is the way to use one.
///
/// # Errors
///
/// As [`Locker::connect`](crate::Locker::connect).
///
/// # Cancel safety
///
/// Safe.
pub async fn connect(url: &str, host: Arc<dyn Host>) -> Result<Arc<dyn Driver>, Error> {
    let url: Url = url.parse()?;
    match url.scheme.as_str() {
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => crate::drivers::etcd::connect(url, host).await,
        #[cfg(feature = "local")]
        "local" => crate::drivers::local::connect(url, host),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => crate::drivers::redis::connect(url, host).await,
        #[cfg(feature = "zookeeper")]
        "zk" | "zks" => crate::drivers::zookeeper::connect(url, host).await,
        scheme => {
            let _ = host;
            let feature = KNOWN.iter().find(|(known, _)| *known == scheme);
            let why = match feature {
                Some((_, feature)) => format!("needs the cargo feature `{feature}`, which this build lacks"),
                None => "is not known".into(),
            };
            let text = format!("the scheme {scheme:?} {why}; this build has: {}", SCHEMES.join(", "));
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

/// The parts of a backend's URL, `scheme:[//authority][path][?key=value&…]`, percent-decoded. The authority is left to
/// the driver: it may name several hosts.
///
/// `Debug` and the errors leave the authority out: it may carry a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// What stands before the first colon, in lower case.
    pub scheme: String,
    /// What stands between `//` and the next `/` or `?`, as it was typed; empty if there is none.
    pub authority: String,
    /// The decoded path.
    pub path: String,
    params: BTreeMap<String, String>,
}

impl Url {
    /// Takes an option out of the URL.
    pub fn take(&mut self, key: &str) -> Option<String> {
        self.params.remove(key)
    }

    /// Refuses options that nobody has taken: one that is misspelt must not be ignored.
    ///
    /// # Errors
    ///
    /// `Invalid`, with the first such option and the ones that there are.
    pub fn finish(&self, known: &[&str]) -> Result<(), Error> {
        match self.params.keys().next() {
            None => Ok(()),
            Some(key) => {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let text = format!("the url has an unknown option {key:?}; {} takes: {known}", self.scheme);
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Url").field("scheme", &self.scheme).field("path", &self.path).finish_non_exhaustive()
    }
}

impl std::str::FromStr for Url {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        let invalid = |why: &str| Error::new(ErrorKind::Invalid, format!("invalid url: {why}"));
        let (scheme, rest) = url
            .split_once(':')
            .ok_or_else(|| invalid("it has no scheme; write, for example, local: or local:/path"))?;
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(legal) {
            return Err(invalid("the scheme before the first colon must be letters, such as local"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            None => ("", rest),
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        };
        let decode = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            let text = text.map_err(|_| invalid("a %-escape in it is not UTF-8"))?;
            if text.contains('\0') { Err(invalid("it contains a NUL byte")) } else { Ok(text.into_owned()) }
        };
        let mut params = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| invalid(no_value(pair)))?;
            let key = decode(key)?;
            if params.insert(key.clone(), decode(value)?).is_some() {
                return Err(invalid(&format!("the option {key:?} is given twice")));
            }
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            authority: authority.to_owned(),
            path: decode(path)?,
            params,
        })
    }
}

fn no_value(pair: &str) -> &'static str {
    if pair.contains('@') {
        "a question mark stands before the @; escape special characters of a password as %XX, ? as %3F"
    } else {
        "an option after the ? has no value; write key=value"
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parts_are_found() {
        let mut url: Url = "ZK://u:p%40@a,b:1/ch%20root/x?k=v%26w&y=".parse().unwrap();
        assert_eq!((url.scheme.as_str(), url.authority.as_str()), ("zk", "u:p%40@a,b:1"));
        assert_eq!(url.path, "/ch root/x");
        assert_eq!(url.take("k").unwrap(), "v&w");
        assert!(url.finish(&["k"]).unwrap_err().to_string().contains("\"y\""));
        assert_eq!(url.take("y").unwrap(), "");
        url.finish(&[]).unwrap();
        assert!(!format!("{url:?}").contains("p%40"));
    }

    #[test]
    fn broken_urls_are_refused_in_one_sentence() {
        for url in ["", "local", ":x", "9p:/x", "local:?a", "local:?a=1&a=2", "local:/%ff", "local:/a%00b"] {
            let error = url.parse::<Url>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains('\n'));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}", rest in "[a-z]{1,5}:[/?&=%a-f0-9,@]{0,40}") {
            let _ = text.parse::<Url>();
            let _ = rest.parse::<Url>();
        }
    }
}
