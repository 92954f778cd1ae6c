//! Lock clients and drivers of other languages, which `scripts/peers` has put below the target directory.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use super::{Missing, require};

/// An interpreter, and the folder of the packages for it.
#[derive(Clone, Debug)]
pub struct Peer {
    interpreter: PathBuf,
    /// Where it looks for packages.
    variable: &'static str,
    packages: PathBuf,
}

impl Peer {
    /// The interpreter, which finds the packages. It wants a script, or `-c` in Python and `-e` in Node.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.interpreter);
        command.env(self.variable, &self.packages);
        command
    }
}

/// Python with a package: `redis` or `psycopg`.
///
/// # Errors
///
/// [`Missing`], which says how to get it.
pub fn python(package: &str) -> Result<Peer, Missing> {
    let interpreter = require("python3", "python3")?;
    Ok(Peer { interpreter, variable: "PYTHONPATH", packages: folder("python", package)? })
}

/// Node with a package: `ioredis`, `redlock` (the stable version 4) or `redlock-beta` (version 5, which its own
/// documentation describes and much new code uses).
///
/// # Errors
///
/// [`Missing`], which says how to get it.
pub fn node(package: &str) -> Result<Peer, Missing> {
    let interpreter = require("node", "nodejs")?;
    Ok(Peer { interpreter, variable: "NODE_PATH", packages: folder("node/node_modules", package)? })
}

/// Looks upwards from the running program, which cargo has built somewhere below its target directory.
fn folder(language: &str, package: &str) -> Result<PathBuf, Missing> {
    let program = env::current_exe().unwrap_or_default();
    let mut folders = program.ancestors().map(|above| above.join("peers").join(language));
    let missing = || Missing::new(format!("the package {package}"), "scripts/peers");
    folders.find(|folder| folder.join(package).is_dir()).ok_or_else(missing)
}
