//! Backups of a cluster, and its return to one of them, as an operator does it.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::Etcd;

/// A backup, which lies among the cluster's files.
#[derive(Debug)]
pub struct Snapshot(PathBuf);

impl Etcd {
    /// Backs up what the first member has.
    ///
    /// # Errors
    ///
    /// As [`Etcd::command`].
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let file = self.home.path().join("snapshot.db");
        self.command_on(&[0], &["snapshot", "save", &file.display().to_string()], false)?;
        Ok(Snapshot(file))
    }

    /// Kills all members and starts them again with what was in the backup. With `is_same` with the same flags too: the cluster's id
    /// is then the same as before.
    ///
    /// # Errors
    ///
    /// When it cannot be restored or the members do not get ready.
    pub fn restore(&mut self, snapshot: &Snapshot, is_same: bool) -> io::Result<()> {
        self.kill_all()?;
        if !is_same {
            self.token += "-next";
        }
        for member in 0..self.size() {
            std::fs::remove_dir_all(self.data(member))?;
            let wanted = ["--name", "--data-dir", "--initial-cluster", "--initial-advertise-peer-urls"];
            let is_wanted = |flag: &String| wanted.iter().any(|name| flag.split('=').next() == Some(name));
            let mut command = Command::new(&self.control);
            command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(&snapshot.0);
            command.arg(format!("--initial-cluster-token={}", self.token));
            command.args(self.flags(member).into_iter().filter(is_wanted));
            let output = command.output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(io::Error::other(format!("etcdctl snapshot restore failed: {}", said.trim())));
            }
        }
        self.run_all()
    }
}
