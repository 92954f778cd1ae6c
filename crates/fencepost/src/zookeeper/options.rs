//! What a `zk://` or `zks://` URL says.

use super::request::Acl;
use crate::{
    connect::Url,
    error::{Error, ErrorKind},
    net::Tls,
    secret::{Address, Credentials, Secret},
};

/// The options that the URL may have after its `?`.
const KNOWN: &[&str] = &[
    "root",
    "names",
    "acl",
    "auth",
    "lineage",
    "password_file",
    "password_env",
    "ca",
    "cert",
    "key",
    "server_name",
];

/// Where locks lie unless the URL says otherwise.
const DEFAULT_ROOT: &str = "/fencepost/locks";

/// How a password is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Auth {
    /// To the `digest` scheme of access lists, which takes any user and compares when a node is touched.
    #[default]
    Digest,
    /// With SASL DIGEST-MD5, which refuses a wrong password at once.
    Sasl,
}

/// How a lock's name becomes a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Names {
    /// Slashes and what ZooKeeper forbids as %XX, so that every name is one node below the root.
    #[default]
    Escaped,
    /// As it is, to share locks with other clients.
    Raw,
}

/// How to reach an ensemble, and where things lie there.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) addresses: Vec<Address>,
    /// What stands before every path: empty, or a path without a slash at its end.
    pub(crate) chroot: String,
    /// Where locks lie, in the chroot: empty, or a path without a slash at its end.
    pub(crate) root: String,
    pub(crate) names: Names,
    pub(crate) acl: Acl,
    pub(crate) auth: Auth,
    pub(crate) lineage: Option<String>,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Option<Tls>,
}

impl Options {
    /// Reads `zk://[user:password@]host[:port][,host[:port]…][/chroot][?options]`; `zks://` is the same over TLS.
    pub(crate) fn from_url(mut url: Url) -> Result<Self, Error> {
        let (credentials, addresses) = Credentials::from_url(&mut url, 2181)?;
        let tls = Tls::from_url(&mut url, "zks")?;
        let chroot = path(&url.path, "the url's path")?;
        let root = path(url.take("root").as_deref().unwrap_or(DEFAULT_ROOT), "root")?;
        let names = match url.take("names").as_deref() {
            None | Some("escaped") => Names::Escaped,
            Some("raw") => Names::Raw,
            Some(other) => return Err(unknown("names", other, "escaped or raw")),
        };
        let acl = match url.take("acl").as_deref() {
            None | Some("open") => Acl::Open,
            Some("creator") => Acl::Creator,
            Some("creator-read") => Acl::CreatorRead,
            Some(other) => return Err(unknown("acl", other, "open, creator or creator-read")),
        };
        let auth = match url.take("auth").as_deref() {
            None | Some("digest") => Auth::Digest,
            Some("sasl") => Auth::Sasl,
            Some(other) => return Err(unknown("auth", other, "digest or sasl")),
        };
        let lineage = url.take("lineage");
        url.finish(KNOWN)?;
        if credentials.user.is_some() != credentials.password.is_some() {
            return Err(invalid(
                "the url has only one of user and password; zookeeper needs both or neither",
            ));
        }
        if auth == Auth::Sasl && credentials.user.is_none() {
            return Err(invalid("auth=sasl needs a user; write zk://user:password@host"));
        }
        // A client's certificate makes a user too.
        if acl != Acl::Open
            && credentials.user.is_none()
            && tls.as_ref().is_none_or(|tls| tls.identity.is_none())
        {
            return Err(invalid(
                "acl=creator needs somebody to be the creator; write zk://user:password@host",
            ));
        }
        if lineage.as_deref().is_some_and(|name| name.is_empty() || name.chars().any(char::is_control)) {
            return Err(invalid("the option lineage must be a name, such as lineage=orders-eu"));
        }
        Ok(Self { addresses, chroot, root, names, acl, auth, lineage, credentials, tls })
    }

    /// User and password, if the URL has them.
    pub(crate) fn user(&self) -> Option<(&str, &Secret)> {
        Some((self.credentials.user.as_deref()?, self.credentials.password.as_ref()?))
    }

    /// Where locks lie, as the servers see it.
    pub(crate) fn top(&self) -> String {
        format!("{}{}", self.chroot, self.root)
    }

    /// The same, for requests about that node itself.
    pub(crate) fn top_or_slash(&self) -> String {
        slash(&self.top())
    }

    /// The ensemble without credentials.
    pub(crate) fn name(&self) -> String {
        let hosts: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        format!("{}://{}{}", self.scheme(), hosts.join(","), self.chroot)
    }

    /// One server.
    pub(crate) fn name_of(&self, address: &Address) -> String {
        format!("{}://{address}", self.scheme())
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "zks" } else { "zk" }
    }
}

/// A path for a request: that of the top is a slash.
pub(crate) fn slash(path: &str) -> String {
    if path.is_empty() { "/".into() } else { path.to_owned() }
}

/// A path without a slash at its end; empty for the top.
fn path(text: &str, what: &str) -> Result<String, Error> {
    let text = text.trim_end_matches('/');
    if text.is_empty() {
        return Ok(String::new());
    }
    let is_odd = |part: &str| matches!(part, "" | "." | "..") || part.chars().any(is_forbidden);
    if !text.starts_with('/') || text[1..].split('/').any(is_odd) {
        return Err(invalid(&format!(
            "{what} is no path of zookeeper; write, for example, /apps/orders: {text:?}"
        )));
    }
    Ok(text.to_owned())
}

/// Whether ZooKeeper takes no path with this character.
///
/// Source: `PathUtils.validatePath`. It looks at halves of UTF-16, so what needs two of them is forbidden too.
pub(crate) fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// `%`, `/` and what ZooKeeper forbids become %XX; `.` and `..` cannot be names of locks.
pub(crate) fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '%' | '/') || is_forbidden(c) {
            let mut utf8 = [0; 4];
            for byte in c.encode_utf8(&mut utf8).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn invalid(text: &str) -> Error {
    Error::new(ErrorKind::Invalid, text)
}

fn unknown(key: &str, value: &str, known: &str) -> Error {
    invalid(&format!("the option {key} must be {known}: {key}={value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Options, Error> {
        Options::from_url(url.parse()?)
    }

    #[test]
    fn everything_a_url_can_say_is_read() {
        let url = "zks://app:p%40ss@a,[::1]:7000/apps/orders/?root=/l&names=raw&acl=creator-read&auth=sasl&lineage=eu&ca=/c";
        let options = read(url).unwrap();
        assert_eq!(options.name(), "zks://a:2181,[::1]:7000/apps/orders");
        assert_eq!(options.top(), "/apps/orders/l");
        assert_eq!((options.names, options.acl, options.auth), (Names::Raw, Acl::CreatorRead, Auth::Sasl));
        assert_eq!((options.lineage.as_deref(), options.tls.is_some()), (Some("eu"), true));
        assert_eq!(options.user().unwrap().1.expose(), "p@ss");
        assert!(!format!("{options:?}").contains("p@ss"));
        let plain = read("zk://h").unwrap();
        assert_eq!((plain.name().as_str(), plain.top().as_str()), ("zk://h:2181", "/fencepost/locks"));
        assert_eq!(read("zk://h/?root=/").unwrap().top(), "");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, part) in [
            ("zk://", "host"),
            ("zk://a,,b", "host"),
            ("zk://h:x", "port"),
            ("zk://h?root=locks", "root"),
            ("zk://h/a//b", "path"),
            ("zk://h/a/../b", "path"),
            ("zk://h?names=x", "names"),
            ("zk://h?acl=x", "acl"),
            ("zk://h?acl=creator", "creator"),
            ("zk://h?auth=x", "auth"),
            ("zk://h?auth=sasl", "sasl"),
            ("zk://u@h", "user"),
            ("zk://h?ca=/x", "zks"),
            ("zk://h?lineage=", "lineage"),
            ("zk://h?timeout=3", "timeout"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
