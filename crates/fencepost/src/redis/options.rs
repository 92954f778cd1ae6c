//! What a `redis://` URL says.

use crate::{
    connect::Url,
    error::{Error, ErrorKind},
    net::Tls,
    secret::{Address, Credentials},
};

/// The options that a `redis://` URL may have after its `?`.
const KNOWN: &[&str] =
    &["prefix", "lineage", "password_file", "password_env", "ca", "cert", "key", "server_name"];

/// What is common to all lock keys before the name.
const DEFAULT_PREFIX: &str = "lock:";

/// How to reach a Redis server and how to name keys there.
#[derive(Clone, Debug)]
pub struct Options {
    /// What stands before the lock's name in its key; empty to share keys with another client as they are.
    pub prefix: String,
    /// The lineage of the tokens, if it is not to be read from the server.
    pub lineage: Option<String>,
    pub(crate) address: Address,
    pub(crate) database: u32,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Option<Tls>,
}

impl Default for Options {
    /// The default prefix, and a server on this machine.
    fn default() -> Self {
        Self {
            prefix: DEFAULT_PREFIX.into(),
            lineage: None,
            address: Address { host: "localhost".into(), port: 6379 },
            database: 0,
            credentials: Credentials::default(),
            tls: None,
        }
    }
}

impl Options {
    /// Reads `redis://[user[:password]@]host[:port][/database][?options]`; `rediss://` is the same over TLS.
    ///
    /// # Errors
    ///
    /// `Invalid`, naming the part to fix.
    pub fn from_url(mut url: Url) -> Result<Self, Error> {
        let invalid = |text: String| Error::new(ErrorKind::Invalid, text);
        let (credentials, mut addresses) = Credentials::from_url(&mut url, 6379)?;
        let address = addresses.pop().filter(|_| addresses.is_empty()).ok_or_else(|| {
            invalid("the url names several hosts; redis:// takes one, such as redis://cache1:6379/0".into())
        })?;
        let database = match url.path.trim_start_matches('/') {
            "" => 0,
            text => text.parse().map_err(|_| {
                invalid(format!(
                    "the url's path {:?} is no database number; write, for example, redis://host/0",
                    url.path
                ))
            })?,
        };
        let tls = Tls::from_url(&mut url, "rediss")?;
        let options = Self {
            prefix: url.take("prefix").unwrap_or_else(|| DEFAULT_PREFIX.into()),
            lineage: url.take("lineage"),
            address,
            database,
            credentials,
            tls,
        };
        url.finish(KNOWN)?;
        if options
            .lineage
            .as_deref()
            .is_some_and(|name| name.is_empty() || name.chars().any(char::is_control))
        {
            return Err(invalid("the option lineage must be a name, such as lineage=orders-eu".into()));
        }
        if options.prefix.contains(['{', '}']) || options.prefix.chars().any(char::is_control) {
            return Err(invalid("the option prefix must not contain braces or control characters".into()));
        }
        Ok(options)
    }

    /// The server without its credentials.
    pub(crate) fn name(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}/{}", self.address, self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Options, Error> {
        Options::from_url(url.parse()?)
    }

    #[test]
    fn everything_a_url_can_say_is_read() {
        let options =
            read("rediss://app:p%40ss%2Fw@[::1]:7000/3?prefix=&lineage=eu&ca=/c&cert=/a&key=/b").unwrap();
        assert_eq!(options.name(), "rediss://[::1]:7000/3");
        assert_eq!((options.prefix.as_str(), options.lineage.as_deref()), ("", Some("eu")));
        assert_eq!(options.credentials.user.as_deref(), Some("app"));
        assert_eq!(options.credentials.password.as_ref().unwrap().expose(), "p@ss/w");
        assert!(!format!("{options:?}").contains("p@ss"));
        assert_eq!(read("redis://h").unwrap().name(), "redis://h:6379/0");
        assert_eq!(read("redis://h").unwrap().prefix, "lock:");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, part) in [
            ("redis://", "host"),
            ("redis://a,b", "several hosts"),
            ("redis://h:x", "port"),
            ("redis://h:0", "port"),
            ("redis://h/zero", "database"),
            ("redis://h?ca=/x", "rediss"),
            ("rediss://h?cert=/x", "cert"),
            ("redis://h?prefx=a", "prefx"),
            ("redis://h?prefix={a}", "prefix"),
            ("redis://h?lineage=", "lineage"),
            ("redis://:a@h?password_file=/x", "password"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
