//! Which backend: from `--url`, the environment, the config file, or the embedded engine; and connecting to it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fencepost::{Error, ErrorKind, Locker, SystemHost, Url, driver::Host};
use serde::Deserialize;

use crate::{args::Global, duration, exit, report};

/// A backend's URL, and where it came from.
pub(crate) struct Backend {
    url: String,
    /// How messages name the place to fix.
    source: String,
    by_default: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    url: Option<String>,
}

impl Backend {
    /// Finds the URL.
    pub(crate) fn find(global: &Global) -> Result<Self, u8> {
        let found = |url: String, source: &str| Ok(Self { url, source: source.into(), by_default: false });
        if let Some(url) = &global.url {
            if !global.quiet && shows_password(url) {
                report::note(
                    "the password in --url is visible to every user of this machine; put the url into a config file",
                );
            }
            return found(url.clone(), "--url");
        }
        if let Some(url) = env::var_os("FENCEPOST_URL").filter(|url| !url.is_empty()) {
            let not_text =
                |_| report::fail(exit::CONFIG, "FENCEPOST_URL: it is not UTF-8; escape such bytes as %FF");
            return found(url.into_string().map_err(not_text)?, "FENCEPOST_URL");
        }
        for path in config_files() {
            match read_config(&path) {
                Ok(Some(Config { url: Some(url) })) => return found(url, &path.display().to_string()),
                Ok(_) => {}
                Err(why) => return Err(report::fail(exit::CONFIG, why)),
            }
        }
        Ok(Self { url: "local:".into(), source: "the default".into(), by_default: true })
    }

    /// Whether locks of this backend expire; without, no guardian is needed. A URL that cannot be read will be refused
    /// later, with a better sentence than could be given here.
    pub(crate) fn expires(&self) -> bool {
        self.url.parse::<Url>().is_ok_and(|url| url.scheme != "local")
    }

    /// Connects, and says once if the locks are kept on this machine only because nothing else was asked for.
    pub(crate) async fn connect(&self, quiet: bool, limit: Duration) -> Result<Locker, Error> {
        self.connect_on(Arc::new(SystemHost), quiet, limit).await
    }

    /// As [`connect`](Self::connect), for a caller that has a host of its own.
    pub(crate) async fn connect_on(
        &self,
        host: Arc<dyn Host>,
        quiet: bool,
        limit: Duration,
    ) -> Result<Locker, Error> {
        let connected = tokio::select! {
            biased;
            connected = connect(&self.url, host.clone()) => connected,
            () = host.sleep_until(host.now() + limit) => {
                let text = format!("the backend did not answer within {}", duration::exact(limit));
                Err(Error::new(ErrorKind::Unavailable, text))
            }
        };
        let locker =
            connected.map_err(|error| Error::new(error.kind(), format!("{}: {error}", self.source)))?;
        if self.by_default && !quiet {
            report::note(format_args!(
                "no backend is configured, so this locks on this machine only ({})",
                locker.about().backend
            ));
        }
        if let Some(notice) = locker.about().notice.filter(|_| !quiet) {
            report::note(format_args!("{}: {notice}", locker.about().backend));
        }
        Ok(locker)
    }

    /// The exit status for an error of [`connect`](Self::connect).
    pub(crate) fn code(error: &Error) -> u8 {
        match error.kind() {
            // The URL is configuration, wherever it was given.
            ErrorKind::Invalid => exit::CONFIG,
            _ => report::code(error),
        }
    }
}

async fn connect(url: &str, host: Arc<dyn Host>) -> Result<Locker, Error> {
    #[cfg(feature = "lab")]
    if url.starts_with("lab:") {
        let driver: Arc<dyn fencepost::driver::Driver> =
            fencepost_lab::leased::connect(url, host.clone()).await?;
        return Ok(Locker::from_parts(driver, host));
    }
    Locker::connect_on(url, host).await
}

fn config_files() -> impl Iterator<Item = PathBuf> {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
    let own =
        env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
    own.into_iter().chain([PathBuf::from("/etc")]).map(|folder| folder.join("fencepost/config.toml"))
}

fn read_config(path: &Path) -> Result<Option<Config>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let path = path.display();
            return Err(format!("cannot read the config file, fix or remove it: {error}: path={path}"));
        }
    };
    toml::from_str(&text).map(Some).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        // The parser's own text may quote the line, and a line may hold a password.
        let why = error.message().lines().next().unwrap_or("it is not TOML").to_owned();
        format!("the config file is broken at line {line}: {why}: path={}", path.display())
    })
}

/// Whether the authority of a URL carries a password.
pub(crate) fn shows_password(url: &str) -> bool {
    let authority = url.split_once("//").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or(""));
    let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    password.is_some_and(|(_, password)| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_seen() {
        assert!(shows_password("redis://u:p@h/0"));
        assert!(shows_password("redis://:p@h"));
        assert!(!shows_password("redis://u@h:6379"));
        assert!(!shows_password("postgres://u:@h:5432/d"));
        assert!(!shows_password("local:/a:b@c"));
    }
}
