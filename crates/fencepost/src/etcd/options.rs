//! What an `etcd://` URL says.

use crate::{
    connect::Url,
    error::{Error, ErrorKind},
    net::Tls,
    secret::{Address, Credentials},
};

/// The options that an `etcd://` URL may have after its `?`.
const KNOWN: &[&str] =
    &["prefix", "names", "password_file", "password_env", "ca", "cert", "key", "server_name"];

/// Where etcd listens for clients.
pub(crate) const DEFAULT_PORT: u16 = 2379;

/// How a lock's name becomes a part of its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// A slash in a name is escaped, so that `orders` does not wait for `orders/4821`.
    #[default]
    Escaped,
    /// As they are, to share a name that has a slash with `etcdctl lock`, which has that fault.
    Raw,
}

/// How to reach an etcd cluster and how to name keys there.
#[derive(Clone, Debug)]
pub struct Options {
    /// What stands before the lock's name in its keys.
    pub prefix: String,
    /// How names become keys.
    pub names: Names,
    pub(crate) addresses: Vec<Address>,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Option<Tls>,
}

impl Options {
    /// Reads `etcd://[user:password@]host[:port][,host[:port]…][?options]`; `etcds://` is the same over TLS.
    ///
    /// # Errors
    ///
    /// `Invalid`, naming the part to fix.
    pub fn from_url(mut url: Url) -> Result<Self, Error> {
        let (credentials, addresses) = Credentials::from_url(&mut url, DEFAULT_PORT)?;
        let tls = Tls::from_url(&mut url, "etcds")?;
        if !matches!(url.path.as_str(), "" | "/") {
            return Err(invalid(format!(
                "the url has the path {:?}, which means nothing to etcd; to put locks below a common key write ?prefix={}",
                url.path,
                url.path.trim_start_matches('/')
            )));
        }
        if credentials.user.is_some() != credentials.password.is_some() {
            return Err(invalid(
                "the url has only one of user and password; etcd wants both, as user:password@".into(),
            ));
        }
        let names = match url.take("names").as_deref() {
            None | Some("escaped") => Names::Escaped,
            Some("raw") => Names::Raw,
            Some(other) => {
                return Err(invalid(format!("the option names={other:?} is unknown; write escaped or raw")));
            }
        };
        let prefix = url.take("prefix").unwrap_or_default();
        url.finish(KNOWN)?;
        if prefix.chars().any(char::is_control) {
            return Err(invalid("the option prefix must not contain control characters".into()));
        }
        Ok(Self { prefix, names, addresses, credentials, tls })
    }

    /// Whether we say who we are, by a login or a certificate.
    pub(crate) fn shows_who(&self) -> bool {
        self.credentials.user.is_some() || self.tls.as_ref().is_some_and(|tls| tls.identity.is_some())
    }

    /// One endpoint as messages name it.
    pub(crate) fn endpoint(&self, index: usize) -> String {
        format!("{}://{}", self.scheme(), self.addresses[index])
    }

    /// The cluster without its credentials.
    pub(crate) fn name(&self) -> String {
        let hosts: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        format!("{}://{}", self.scheme(), hosts.join(","))
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "etcds" } else { "etcd" }
    }
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::Invalid, text)
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
            read("etcds://app:p%40ss@a,[::1]:7000,c/?prefix=locks/&names=raw&ca=/c&cert=/a&key=/b").unwrap();
        assert_eq!(options.name(), "etcds://a:2379,[::1]:7000,c:2379");
        assert_eq!(options.endpoint(1), "etcds://[::1]:7000");
        assert_eq!((options.prefix.as_str(), options.names), ("locks/", Names::Raw));
        assert_eq!(options.credentials.password.as_ref().unwrap().expose(), "p@ss");
        assert!(!format!("{options:?}").contains("p@ss"));
        assert_eq!(
            (read("etcd://h").unwrap().prefix, read("etcd://h").unwrap().names),
            (String::new(), Names::Escaped)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, part) in [
            ("etcd://", "host"),
            ("etcd://a,,b", "host"),
            ("etcd://h:x", "port"),
            ("etcd://h/locks", "?prefix=locks"),
            ("etcd://h?ca=/x", "etcds"),
            ("etcds://h?cert=/x", "cert"),
            ("etcd://h?prefx=a", "prefx"),
            ("etcd://h?names=odd", "names"),
            ("etcd://h?prefix=%01", "prefix"),
            ("etcd://u@h", "password"),
            ("etcd://:p@h", "user"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
