//! Commands to a cluster, through `etcdctl`: nothing of the code under test is in between.

use std::io;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Etcd, ROOT};

impl Etcd {
    /// Runs `etcdctl` with these words on the members that run, as a user who may do everything; answers what it prints.
    ///
    /// # Errors
    ///
    /// What it says when it fails.
    pub fn command(&self, words: &[&str]) -> io::Result<String> {
        let running: Vec<usize> = (0..self.size()).filter(|m| self.members[*m].process.is_some()).collect();
        self.command_on(&running, words, self.has_users())
    }

    /// The keys that begin like this, oldest first: each with its lease's id.
    ///
    /// # Errors
    ///
    /// As [`Etcd::command`].
    ///
    /// # Panics
    ///
    /// When `etcdctl` prints something else than it should.
    pub fn keys(&self, prefix: &str) -> io::Result<Vec<(String, i64)>> {
        let words = ["get", prefix, "--prefix", "--sort-by=CREATE", "--order=ASCEND", "-w=fields"];
        let text = self.command(&words)?;
        let of = |name: &str| fields(&text, name);
        let keys = of("Key").into_iter().map(|key| key.trim_matches('"').to_owned());
        let leases = of("Lease").into_iter().map(|lease| lease.parse().expect("a number"));
        Ok(keys.zip(leases).collect())
    }

    /// The cluster's present revision.
    ///
    /// # Errors
    ///
    /// As [`Etcd::command`].
    pub fn revision(&self) -> io::Result<i64> {
        let text = self.command(&["get", "?", "-w=fields"])?;
        fields(&text, "Revision")
            .first()
            .and_then(|revision| revision.parse().ok())
            .ok_or_else(|| io::Error::other(text.clone()))
    }

    /// Ends a lease, and deletes what hangs on it.
    ///
    /// # Errors
    ///
    /// As [`Etcd::command`].
    pub fn revoke(&self, lease: i64) -> io::Result<()> {
        self.command(&["lease", "revoke", &format!("{lease:x}")]).map(drop)
    }

    /// Deletes one key.
    ///
    /// # Errors
    ///
    /// As [`Etcd::command`].
    pub fn delete(&self, key: &str) -> io::Result<()> {
        self.command(&["del", key]).map(drop)
    }

    /// Forgets all of the past: a watch from before is refused.
    ///
    /// # Errors
    ///
    /// As [`Etcd::command`].
    pub fn compact(&self) -> io::Result<()> {
        // The present revision can be compacted only when something is written after it.
        self.command(&["put", "fencepost-lab", "compacted"])?;
        let revision = self.revision()?.to_string();
        self.command(&["compact", &revision]).map(drop)
    }

    /// The leader's number, if the members that run agree on one that runs.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let leads = |member: usize| {
            let status =
                self.command_on(&[member], &["endpoint", "status", "-w=json"], self.has_users()).ok()?;
            let status: Value = serde_json::from_str(&status).ok()?;
            let status = &status[0]["Status"];
            Some(status["leader"].as_u64()? == status["header"]["member_id"].as_u64()?)
        };
        (0..self.size()).filter(|m| self.members[*m].process.is_some()).find(|m| leads(*m) == Some(true))
    }

    fn has_users(&self) -> bool {
        !self.options.users.is_empty()
    }

    /// Whether a member takes writes.
    pub(super) fn is_healthy(&self, member: usize) -> bool {
        // Before there are users, a login would be refused; afterwards, doing without.
        [false, true]
            .into_iter()
            .take(1 + usize::from(self.has_users()))
            .any(|logs_in| self.command_on(&[member], &["endpoint", "health"], logs_in).is_ok())
    }

    pub(super) fn make_users(&self) -> io::Result<()> {
        if !self.has_users() {
            return Ok(());
        }
        let run = |words: &[&str]| self.command_on(&[0], words, false);
        run(&["user", "add", ROOT])?;
        run(&["user", "grant-role", "root", "root"])?;
        for (name, password, prefix) in &self.options.users {
            run(&["user", "add", &format!("{name}:{password}")])?;
            run(&["role", "add", name])?;
            run(&["role", "grant-permission", name, "readwrite", prefix, "--prefix"])?;
            run(&["user", "grant-role", name, name])?;
        }
        run(&["auth", "enable"]).map(drop)
    }

    pub(super) fn command_on(&self, members: &[usize], words: &[&str], logs_in: bool) -> io::Result<String> {
        let endpoints: Vec<String> = members.iter().map(|member| self.addr(*member).to_string()).collect();
        let mut command = Command::new(&self.control);
        command.env("ETCDCTL_API", "3").args(words);
        command.args(["--dial-timeout=2s", "--command-timeout=5s", "--endpoints", &endpoints.join(",")]);
        if logs_in {
            command.args(["--user", ROOT]);
        }
        if let Some(tls) = &self.options.tls {
            // Of a member whose certificate is bad on purpose, too.
            command.arg("--insecure-skip-tls-verify").arg("--cacert").arg(&tls.authority);
            command.arg("--cert").arg(&tls.client.0).arg("--key").arg(&tls.client.1);
        }
        let Output { status, stdout, stderr } = command.output()?;
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr);
            return Err(io::Error::other(format!("etcdctl {} failed: {}", words.join(" "), said.trim())));
        }
        String::from_utf8(stdout).map_err(io::Error::other)
    }
}

/// The values of one field, as `etcdctl` prints them line by line.
fn fields<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let value = |line: &'a str| Some(line.strip_prefix(&format!("\"{name}\" : "))?.trim());
    text.lines().filter_map(value).collect()
}
