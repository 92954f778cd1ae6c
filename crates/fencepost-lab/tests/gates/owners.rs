//! The owners of a file and its fence. Only root can give files away, so all of it is ignored for others.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
};

use fencepost::{Token, gate::FileGate};
use libtest_mimic::{Failed, Trial};
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::killed;

/// The user `nobody` of most systems; the number needs no entry anywhere.
const NOBODY: u32 = 65534;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<(), Failed>| {
        Trial::test(format!("file::{name}"), run).with_ignored_flag(!geteuid().is_root())
    };
    vec![
        trial("root_leaves_a_file_to_its_owner", kept),
        trial("root_leaves_a_fence_to_the_owner_of_the_directory", fenced),
        trial("a_fence_that_cannot_be_opened_names_its_owner", closed),
        trial("a_write_that_would_change_the_owner_is_refused", changed),
        trial("a_fence_of_another_user_is_not_believed", planted),
    ]
}

/// A directory in which everybody may write, and a file of this owner there.
fn place(owner: u32) -> Result<(TempDir, PathBuf), Failed> {
    let home = tempfile::tempdir()?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o777))?;
    let path = home.path().join("stock");
    fs::write(&path, "text")?;
    chown(&path, Some(owner), Some(owner))?;
    Ok((home, path))
}

fn token(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

fn owner(path: &Path) -> Result<(u32, u32), Failed> {
    let stat = fs::metadata(path)?;
    Ok((stat.uid(), stat.gid()))
}

/// What `nobody` says who tries to write there.
fn said(path: &Path) -> Result<String, Failed> {
    let output = killed::untraced(path, token(42), "played").uid(NOBODY).gid(NOBODY).output()?;
    Ok(String::from_utf8(output.stdout)?)
}

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), Failed> {
    if found == expected { Ok(()) } else { Err(format!("{found:?} is not {expected:?}").into()) }
}

fn kept() -> Result<(), Failed> {
    let (_home, path) = place(NOBODY)?;
    FileGate::new(&path)?.open(token(41))?.write("by root")?;
    expect(owner(&path)?, (NOBODY, NOBODY))?;
    expect(owner(&path.with_file_name("stock.fence"))?, (NOBODY, NOBODY))?;
    expect(said(&path)?.as_str(), "written\n")?;
    expect(fs::read_to_string(&path)?.as_str(), "played")
}

/// There is no file yet, and the service that will write it must get through.
fn fenced() -> Result<(), Failed> {
    let (home, path) = place(0)?;
    fs::remove_file(&path)?;
    chown(home.path(), Some(NOBODY), Some(NOBODY))?;
    let gate = FileGate::new(&path)?;
    gate.fence(token(41))?;
    expect(owner(&path.with_file_name("stock.fence"))?, (NOBODY, NOBODY))?;
    gate.fence(token(41))?;
    expect(said(&path)?.as_str(), "written\n")?;
    expect(owner(&path)?, (NOBODY, NOBODY))
}

fn closed() -> Result<(), Failed> {
    let (_home, path) = place(NOBODY)?;
    let fence = path.with_file_name("stock.fence");
    fs::write(&fence, "")?;
    fs::set_permissions(&fence, Permissions::from_mode(0o600))?;
    let said = said(&path)?;
    let is_told =
        said.starts_with("Denied: the fence file belongs to another user") && said.contains("uid=0 path=");
    expect((is_told, said.as_str()), (true, said.as_str()))
}

fn changed() -> Result<(), Failed> {
    let (home, path) = place(0)?;
    let said = said(&path)?;
    let is_told =
        said.starts_with("Denied: ") && said.contains("write as the owner of the file, uid=0 gid=0");
    expect((is_told, said.as_str()), (true, said.as_str()))?;
    expect(fs::read_to_string(&path)?.as_str(), "text")?;
    // Not even an empty fence file, which its owner would not believe.
    expect(fs::read_dir(home.path())?.count(), 1)
}

fn planted() -> Result<(), Failed> {
    let (_home, path) = place(0)?;
    let gate = FileGate::new(&path)?;
    gate.fence(token(1))?;
    chown(path.with_file_name("stock.fence"), Some(1), Some(1))?;
    let text = gate.fence(token(42)).map_err(|error| error.to_string()).err().unwrap_or_default();
    let is_told = text.contains("belongs to another user") && text.contains("uid=1 path=");
    expect((is_told, text.as_str()), (true, text.as_str()))
}
