//! An ordinary user, for what root may not be: a server that refuses root, a directory that is not writable.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{User, geteuid};

/// Lets a command run as the user `nobody` if we are root, and as ourselves if we are not.
///
/// # Errors
///
/// When the machine has no such user.
pub fn as_nobody(command: &mut Command) -> io::Result<()> {
    if let Some(user) = nobody()? {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    Ok(())
}

/// Gives a file or a directory, without what is in it, to the user as whom [`as_nobody`] runs a command.
///
/// # Errors
///
/// When the machine has no such user or the file cannot be given away.
pub fn give_to_nobody(path: &Path) -> io::Result<()> {
    match nobody()? {
        Some(user) => chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
        None => Ok(()),
    }
}

/// Writes a file that only the user as whom [`as_nobody`] runs a command may read.
pub(super) fn write_for_nobody(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    give_to_nobody(path)
}

/// `None` if we are an ordinary user ourselves.
fn nobody() -> io::Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let missing = || io::Error::other("there is no user nobody, add one or do not run as root");
    User::from_name("nobody")?.ok_or_else(missing).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_no_rights_of_root() {
        let home = crate::server::home("nobody").unwrap();
        let touch = |name: &str| {
            let mut command = Command::new("touch");
            as_nobody(&mut command).unwrap();
            command.arg(home.path().join(name)).status().unwrap().success()
        };
        assert_eq!(touch("before"), !geteuid().is_root());
        give_to_nobody(home.path()).unwrap();
        assert!(touch("after"));
        let mut id = Command::new("id");
        as_nobody(&mut id).unwrap();
        let groups = String::from_utf8(id.arg("-G").output().unwrap().stdout).unwrap();
        assert!(!groups.split_whitespace().any(|group| group == "0"), "{groups}");
    }
}
