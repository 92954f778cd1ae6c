//! Is the server installed, and what does a test do if it is not?

use std::env;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Something that a test needs and that is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    what: String,
    remedy: String,
}

impl Missing {
    /// This, which can be had with that.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not installed, get it with `{}`", self.what, self.remedy)
    }
}

impl std::error::Error for Missing {}

/// Finds a program in `PATH`, or where Debian puts those of the administrator.
///
/// # Errors
///
/// [`Missing`], which names the Debian package to install.
pub fn require(binary: &str, package: &str) -> Result<PathBuf, Missing> {
    let path = env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut candidates = env::split_paths(&path).chain(admin).map(|dir| dir.join(binary));
    let missing = || Missing::new(binary, format!("apt-get install {package}"));
    candidates.find(|candidate| is_program(candidate)).ok_or_else(missing)
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Whether a test shows as *ignored* because its server is missing: never as passed, and never where `CI` is `true`.
/// There it runs, and fails with the name of the package.
///
/// ```
/// use fencepost_lab::server::{ignored, require};
/// use libtest_mimic::Trial;
///
/// let redis = require("redis-server", "redis-server");
/// let skip = ignored(&redis);
/// let trial = Trial::test("redis::grants_once", move || {
///     let program = redis?;
///     assert!(program.is_absolute());
///     Ok(())
/// });
/// let trial = trial.with_ignored_flag(skip);
/// # drop(trial);
/// ```
#[must_use]
pub fn ignored<T>(found: &Result<T, Missing>) -> bool {
    ignored_where(found, env::var("CI").is_ok_and(|ci| ci == "true"))
}

fn ignored_where<T>(found: &Result<T, Missing>, ci: bool) -> bool {
    found.is_err() && !ci
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_it_is() {
        let sh = require("sh", "dash").unwrap();
        assert!(sh.is_absolute() && sh.ends_with("sh"), "{sh:?}");
        assert!(!ignored(&Ok(sh)));
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let missing = require("fencepost-no-such-server", "no-such-package").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "fencepost-no-such-server is not installed, get it with `apt-get install no-such-package`"
        );
    }

    #[test]
    fn a_missing_program_is_an_error_only_in_ci() {
        let missing = require("fencepost-no-such-server", "no-such-package");
        assert!(ignored_where(&missing, false));
        assert!(!ignored_where(&missing, true));
    }

    #[test]
    fn a_directory_is_no_program() {
        assert!(!is_program(Path::new("/usr/bin")));
    }
}
