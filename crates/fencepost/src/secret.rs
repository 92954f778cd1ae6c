//! Addresses and credentials in the URLs of servers, for every backend that has a server.

use std::{env, fmt, fs, path::Path};

use percent_encoding::percent_decode_str;

use crate::{
    connect::Url,
    error::{Error, ErrorKind},
};

/// A password: shown by nothing.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The password itself, for the server's eyes only.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// One server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// A name or an IP address; IPv6 without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Who we say we are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
}

impl Credentials {
    /// Takes the authority of a URL apart, `[user[:password]@]host[:port],…`, and the options `password_file=` and
    /// `password_env=`. A file `systemd:NAME` is the systemd credential of that name.
    pub(crate) fn from_url(url: &mut Url, port: u16) -> Result<(Self, Vec<Address>), Error> {
        if !url.authority.contains('@') && url.path.contains('@') {
            return Err(invalid(
                "invalid url: a slash stands before the @; escape special characters of a password as %XX, / as %2F",
            ));
        }
        let (who, hosts) = url.authority.rsplit_once('@').unwrap_or(("", &url.authority));
        let example = format!("{}://localhost:{port}", url.scheme);
        let addresses =
            hosts.split(',').map(|host| address(host, port, &example)).collect::<Result<Vec<_>, _>>()?;
        let (user, password) = match who.split_once(':') {
            Some((user, password)) => (decode(user)?, Some(Secret(decode(password)?))),
            None => (decode(who)?, None),
        };
        let sources = [password, from_file(url.take("password_file"))?, from_env(url.take("password_env"))?];
        let mut given = sources.into_iter().flatten();
        let password = given.next();
        if given.next().is_some() {
            return Err(invalid(
                "the url gives the password twice; leave one of user:password@, password_file= and password_env=",
            ));
        }
        Ok((Self { user: Some(user).filter(|user| !user.is_empty()), password }, addresses))
    }
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Invalid, why)
}

fn decode(text: &str) -> Result<String, Error> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| invalid("invalid url: a %-escape in user or password is not UTF-8"))
}

fn address(text: &str, default_port: u16, example: &str) -> Result<Address, Error> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            rest.split_once(']').ok_or_else(|| invalid("invalid url: the host's bracket is not closed"))?
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    if host.is_empty() {
        return Err(invalid(&format!("invalid url: it names no host; write, for example, {example}")));
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            invalid("invalid url: the port must be a number from 1 to 65535; escape special characters of a password as %XX")
        })?,
        None => return Err(invalid("invalid url: after the host's bracket only a port may come")),
    };
    Ok(Address { host: host.into(), port })
}

/// The first line of a file; a trailing line break is no part of a password.
fn from_file(path: Option<String>) -> Result<Option<Secret>, Error> {
    let Some(path) = path else { return Ok(None) };
    let file = match path.strip_prefix("systemd:") {
        None => path.into(),
        Some(name) => match env::var_os("CREDENTIALS_DIRECTORY") {
            Some(folder) => Path::new(&folder).join(name),
            None => {
                return Err(invalid(
                    "password_file=systemd:… needs CREDENTIALS_DIRECTORY, which systemd sets for a unit with LoadCredential=",
                ));
            }
        },
    };
    let text = fs::read_to_string(&file).map_err(|error| {
        invalid(&format!("cannot read the password file: {error}: path={}", file.display()))
    })?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(Some(Secret(line.into()))),
        _ => Err(invalid(&format!("the password file's first line is empty: path={}", file.display()))),
    }
}

fn from_env(name: Option<String>) -> Result<Option<Secret>, Error> {
    let Some(name) = name else { return Ok(None) };
    match env::var(&name) {
        Ok(password) if !password.is_empty() => Ok(Some(Secret(password))),
        _ => Err(invalid(&format!(
            "password_env names a variable that is unset, empty or not UTF-8: variable={name:?}"
        ))),
    }
}
