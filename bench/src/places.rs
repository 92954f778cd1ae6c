//! Where the locks of a measurement are kept.

use std::{env, path::PathBuf};

use tempfile::TempDir;

use crate::outcome::Outcome;

/// A folder that is removed in the end.
pub(crate) struct Place {
    folder: TempDir,
    /// The name of its file system.
    pub(crate) kind: String,
}

impl Place {
    /// On tmpfs, where a file costs no more than the system calls.
    pub(crate) fn in_memory() -> Outcome<Self> {
        let place = Self::within("/dev/shm".into())?;
        if place.kind != "tmpfs" {
            return Err(format!("/dev/shm is not a tmpfs but {}; mount one there", place.kind).into());
        }
        Ok(place)
    }

    /// Where this program was built: most likely a disk.
    pub(crate) fn on_disk() -> Outcome<Self> {
        let program = env::current_exe()?;
        Self::within(program.parent().ok_or("this program is in no folder")?.to_owned())
    }

    fn within(folder: PathBuf) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("fencepost-bench-").tempdir_in(folder)?;
        let kind = match rustix::fs::statfs(folder.path())?.f_type as u32 {
            0x0102_1994 => "tmpfs".into(),
            0xEF53 => "ext4".into(),
            0x5846_5342 => "xfs".into(),
            0x9123_683E => "btrfs".into(),
            other => format!("file system {other:#x}"),
        };
        Ok(Self { folder, kind })
    }

    /// The locks of one measurement.
    pub(crate) fn url(&self) -> String {
        format!("local:{}", self.folder.path().join("root").display())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
