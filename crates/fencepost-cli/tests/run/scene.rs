//! One run of the program under test, in a directory in which all its processes leave notes.

use std::fmt::Display;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::sys;

/// Where this process is to leave its notes.
pub(crate) fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os("SCENE").expect("roles run in a scene"))
}

/// Leaves a note, which replaces an earlier one of that name.
pub(crate) fn note(name: &str, text: impl Display) {
    let draft = directory().join(format!(".{name}"));
    std::fs::write(&draft, text.to_string()).expect("the directory is there");
    std::fs::rename(draft, directory().join(name)).expect("the directory is there");
}

/// A test, named after its function's purpose.
pub(crate) fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || std::panic::catch_unwind(test).map_err(|_| Failed::from("see the panic above")))
}

/// Polls until a condition gives something, and fails after ten seconds.
pub(crate) fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = sys::now() + 10_000_000_000;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(sys::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The fields of `/proc/PID/stat` after the name: state, parent, group, session…
pub(crate) fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat[stat.rfind(')')? + 1..].split_whitespace().map(str::to_owned).collect())
}

/// Whether a process runs: it exists and is no zombie.
pub(crate) fn alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z")
}

/// When a process started, in ticks.
fn started(pid: i32) -> Option<String> {
    stat(pid).map(|fields| fields[19].clone())
}

/// What is known of a process, for the message of a test that fails.
fn describe(pid: i32) -> String {
    let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("pid={pid} stat={:?} command={:?}", stat(pid).map(|fields| fields[..4].to_vec()), command)
}

pub(crate) fn kill(pid: i32, signal: nix::sys::signal::Signal) {
    sys::kill(pid, signal as i32).expect("the process exists");
}

pub(crate) struct Scene {
    pub(crate) directory: tempfile::TempDir,
    child: Option<Child>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory"), child: None }
    }

    /// The program under test with a script, in words, and a command.
    pub(crate) fn program(&self, script: &str, job: &[&str]) -> Command {
        let mut command = Command::new(me());
        command.arg("role:run").args(script.split_whitespace()).arg("--").args(job);
        command.env("SCENE", self.path()).stdin(Stdio::null());
        command
    }

    /// Starts the program, without a controlling terminal, as a service would be.
    pub(crate) fn start(script: &str, job: &[&str]) -> Self {
        let mut scene = Self::new();
        let program = scene.program(script, job);
        scene.spawn(program);
        scene
    }

    /// Starts what was made of [`Scene::program`], in a session of its own.
    pub(crate) fn spawn(&mut self, program: Command) {
        let mut command = Command::new("setsid");
        command.arg("-w").arg(program.get_program()).args(program.get_args()).env("SCENE", self.path());
        self.child = Some(command.stdin(Stdio::null()).spawn().expect("setsid of util-linux is installed"));
    }

    /// The process that was spawned: `setsid`, which waits for what it executes.
    pub(crate) fn child_id(&self) -> i32 {
        self.child.as_ref().expect("it was started").id() as i32
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A note, as soon as it is there.
    pub(crate) fn read<T: FromStr>(&self, name: &str) -> T {
        until(name, || std::fs::read_to_string(self.path().join(name)).ok()?.parse().ok())
    }

    /// Returns once a job of role `tree` has started everything.
    pub(crate) fn tree_is_up(&self) {
        for name in TREE {
            self.last_stamp(name);
        }
    }

    /// The last time stamp of a worker.
    pub(crate) fn last_stamp(&self, name: &str) -> u64 {
        let path = self.path().join(format!("{name}.stamp"));
        until(name, || Some(u64::from_ne_bytes(std::fs::read(&path).ok()?.try_into().ok()?)))
    }

    /// The guardian, which has no note of its own: the supervisor's child with the program's name.
    pub(crate) fn guardian(&self) -> i32 {
        let supervisor: i32 = self.read("supervisor");
        until("guardian", || children(supervisor).first().copied())
    }

    /// Waits until nothing of a job of role `tree` lives, and answers when the last of it was alive.
    pub(crate) fn tree_is_dead(&self) -> u64 {
        for name in TREE {
            let pid = self.read(name);
            let born = started(pid);
            // An id may be given to another process as soon as its first owner is reaped.
            until(&format!("death of {name}, {}", describe(pid)), || {
                (!alive(pid) || started(pid) != born).then_some(())
            });
        }
        TREE.map(|name| self.last_stamp(name)).into_iter().max().expect("there are names")
    }

    /// Every process that was started for this scene and lives: it has the scene in its environment.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let scene = [b"SCENE=", self.path().as_os_str().as_encoded_bytes(), b"\0"].concat();
        let is_ours = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(scene.len()).any(|window| window == scene)
        };
        processes().filter(is_ours).collect()
    }

    /// The program's exit status as its caller sees it.
    pub(crate) fn status(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("it was started");
        until("exit", || child.try_wait().expect("it is our child"))
    }

    pub(crate) fn code(&mut self) -> i32 {
        let status = self.status();
        status.code().unwrap_or_else(|| panic!("it was killed by {:?}", status.signal()))
    }
}

pub(crate) const TREE: [&str; 3] = ["job", "child", "daemon"];

pub(crate) fn me() -> PathBuf {
    std::env::current_exe().expect("a path")
}

pub(crate) fn children(parent: i32) -> Vec<i32> {
    processes().filter(|&pid| stat(pid).is_some_and(|fields| fields[1] == parent.to_string())).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

impl Drop for Scene {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = sys::kill(pid, nix::libc::SIGKILL);
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
