//! A directory in which everything of one test happens, and by which its processes are known.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use fencepost_lab::clock::now_ns;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

pub(crate) const FENCEPOST: &str = env!("CARGO_BIN_EXE_fencepost");

pub(crate) struct Scratch {
    home: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        // PostgreSQL is another user where we are root.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        fs::create_dir(home.path().join("tmp")).expect("it is ours");
        Self { home }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The command, in an environment that is all ours and in a group of its own.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(FENCEPOST);
        command.args(words).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home.path()).env("TMPDIR", self.path("tmp")).stdin(Stdio::null());
        command.process_group(0);
        command
    }

    pub(crate) fn start(&self, mut command: Command) -> Scene {
        let [out, err] = ["out", "err"].map(|name| self.path(name));
        let [stdout, stderr] = [&out, &err].map(|path| File::create(path).expect("it is ours"));
        let child = command.stdout(stdout).stderr(stderr).spawn().expect("it starts");
        Scene { child, out, err }
    }

    pub(crate) fn end(&self, command: Command) -> Said {
        self.start(command).said()
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Said {
        self.end(self.command(words))
    }

    /// How many processes have their output here: the command, its servers and their children, its workers.
    pub(crate) fn processes(&self) -> usize {
        self.all().count()
    }

    pub(crate) fn has_stopped_one(&self) -> bool {
        self.all().any(|process| {
            let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        })
    }

    fn all(&self) -> impl Iterator<Item = PathBuf> {
        let processes =
            fs::read_dir("/proc").expect("there is /proc").filter_map(|entry| Some(entry.ok()?.path()));
        processes.filter(|process| {
            let output = |number: &str| fs::read_link(process.join("fd").join(number));
            ["1", "2"]
                .iter()
                .any(|number| output(number).is_ok_and(|path| path.starts_with(self.home.path())))
        })
    }

    /// No process, and no file of one.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self) {
        until("nothing runs", || self.processes() == 0);
        assert_eq!(names(&self.path("tmp")), [""; 0]);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it is ours");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Polls until it is so, for a while.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = now_ns() + 60_000_000_000;
    while !so() {
        assert!(now_ns() < end, "not in time: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// A command that was started.
pub(crate) struct Scene {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

/// What it said, and how it ended: its status, or a signal's negative number.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Scene {
    pub(crate) fn signal(&mut self, signal: Signal, to_group: bool) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        if to_group { killpg(pid, signal) } else { kill(pid, signal) }.expect("it runs");
    }

    pub(crate) fn said(&mut self) -> Said {
        let status = self.child.wait().expect("it is our child");
        let code = status.code().unwrap_or_else(|| -status.signal().expect("it was killed"));
        let [out, err] = [&self.out, &self.err].map(|path| fs::read_to_string(path).expect("it is text"));
        Said { code, out, err }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    /// What stands on stdout, without its lines.
    pub(crate) fn flat(&self) -> String {
        self.out.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
