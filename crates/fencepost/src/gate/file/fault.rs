//! What goes wrong on a file system, each in one sentence with its fix.

use std::{io, path::Path};

use rustix::{io::Errno, process::geteuid};

use crate::error::{Error, ErrorKind};

/// What `error` means for the gate of the file at `path`.
pub(super) fn of(path: &Path, error: io::Error) -> Error {
    let (kind, what) = match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => (ErrorKind::Invalid, "the directory of the file does not exist: make it first"),
        Some(Errno::NOTDIR) => (ErrorKind::Invalid, "a part of the path is not a directory: correct it"),
        Some(Errno::LOOP) => {
            (ErrorKind::Invalid, "the file is a symbolic link: give the gate the path that it leads to")
        }
        Some(Errno::NAMETOOLONG) => {
            (ErrorKind::Invalid, "the path is too long for the file system: shorten it")
        }
        Some(Errno::BUSY) => (
            ErrorKind::Invalid,
            "the file is a mount point, so it cannot be replaced: mount its directory instead",
        ),
        Some(Errno::ISDIR) => return not_a_file(path),
        Some(Errno::ACCESS | Errno::PERM) => (
            ErrorKind::Denied,
            "this user may not write there: give it the right to write in the directory of the file",
        ),
        Some(Errno::ROFS) => {
            (ErrorKind::Denied, "the file system is read-only: mount it for writing, or move the file")
        }
        Some(Errno::NOSPC | Errno::DQUOT) => (
            ErrorKind::Unavailable,
            "the disk or the quota is full, and the file is as it was: free some space",
        ),
        Some(Errno::MFILE | Errno::NFILE) => {
            (ErrorKind::Unavailable, "too many files are open: close some, or raise the limit (ulimit -n)")
        }
        _ => {
            let text = format!("the file system failed: {error}, path={}", path.display());
            return Error::new(ErrorKind::Unavailable, text).caused_by(error);
        }
    };
    Error::new(kind, format!("{what}, path={}", path.display())).caused_by(error)
}

pub(super) fn not_a_file(path: &Path) -> Error {
    let what = "the path leads to something other than a regular file: a gate protects regular files only";
    Error::new(ErrorKind::Invalid, format!("{what}, path={}", path.display()))
}

pub(super) fn another_owner(path: &Path, uid: u32, gid: u32) -> Error {
    let what =
        "the new content would belong to another user or group than the old: write as the owner of the file";
    Error::new(ErrorKind::Denied, format!("{what}, uid={uid} gid={gid} path={}", path.display()))
}

/// `error` came when the fence file was opened; most often another user's process has made it.
pub(super) fn of_fence(fence: &Path, error: Errno, owner: Option<u32>) -> Error {
    match owner {
        Some(uid) if uid != geteuid().as_raw() && matches!(error, Errno::ACCESS | Errno::PERM) => {
            let what = "the fence file belongs to another user, who has used this gate: give it to the owner of the file, or remove it if it is empty";
            Error::new(ErrorKind::Denied, format!("{what}, uid={uid} path={}", fence.display()))
                .caused_by(io::Error::from(error))
        }
        _ => of(fence, error.into()),
    }
}

pub(super) fn mount_point(path: &Path) -> Error {
    of(path, Errno::BUSY.into())
}

pub(super) fn stuck(fence: &Path) -> Error {
    let what = "another process is in the middle of its write and does not go on: resume or end it";
    Error::new(ErrorKind::Unavailable, format!("{what}, path={}", fence.display()))
}
