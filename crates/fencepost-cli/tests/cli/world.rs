//! A backend of its own for one test, and the real command, run against it without a terminal.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fencepost_lab::history::{self, Event};
use fencepost_lab::leased::Control;
use fencepost_lab::server::redis::{self, Redis};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::Value;

use crate::backend::Backend;
use crate::scene::{Scene, until};

pub(crate) const FENCEPOST: &str = env!("CARGO_BIN_EXE_fencepost");

pub(crate) struct World {
    pub(crate) scene: Scene,
    pub(crate) url: String,
    pub(crate) leased: Option<Backend>,
    started: AtomicU32,
}

impl World {
    /// The embedded engine.
    pub(crate) fn local() -> Self {
        let scene = Scene::new();
        let url = format!("local:{}", scene.path().join("root").display());
        Self::at(scene, url, None)
    }

    /// A backend with leases: the test backend with leases of a `claim` or of a `session`, or a real server: `redis`, `etcd` or `zookeeper`.
    pub(crate) fn leased(lease: &str) -> Self {
        match lease {
            "redis" => return Self::redis(redis::Options::default()),
            "etcd" => return Self::through("etcd", Backend::etcd()),
            "zookeeper" => return Self::through("zk", Backend::zookeeper()),
            _ => {}
        }
        let scene = Scene::new();
        let backend = Backend::leased(&scene);
        let url = format!("lab://{}?lease={lease}", backend.proxy.addr());
        Self::at(scene, url, Some(backend))
    }

    /// A server whose keys other clients have written too.
    pub(crate) fn beside(server: &Redis) -> Self {
        Self::at_url(server.url())
    }

    /// A backend that the test has started itself.
    pub(crate) fn at_url(url: String) -> Self {
        Self::at(Scene::new(), url, None)
    }

    /// A redis-server.
    pub(crate) fn redis(options: redis::Options) -> Self {
        Self::through("redis", Backend::redis(options))
    }

    /// A server behind a proxy.
    fn through(scheme: &str, backend: Backend) -> Self {
        let url = format!("{scheme}://{}", backend.proxy.addr());
        Self::at(Scene::new(), url, Some(backend))
    }

    fn at(scene: Scene, url: String, leased: Option<Backend>) -> Self {
        fs::create_dir(scene.path().join("home")).expect("the directory is ours");
        let run = scene.path().join("run");
        fs::create_dir(&run).expect("the directory is ours");
        Self { scene, url, leased, started: AtomicU32::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scene.path().join(name)
    }

    pub(crate) fn backend(&self) -> &Backend {
        self.leased.as_ref().expect("this world has a backend with leases")
    }

    /// The command with words and arguments, in an environment that is all ours and in a session without a terminal:
    /// `setsid` replaces itself, so that the process that is started is the command.
    pub(crate) fn command(&self, words: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("setsid");
        command.arg(FENCEPOST).args(words.split_whitespace()).args(arguments);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("FENCEPOST", FENCEPOST).env("FENCEPOST_URL", &self.url);
        command.env("HOME", self.path("home")).env("XDG_RUNTIME_DIR", self.path("run"));
        command.env("SCENE", self.scene.path()).current_dir(self.scene.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn spawn(&self, mut command: Command) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let [out, err] = ["out", "err"].map(|name| self.path(&format!("{name}.{number}")));
        let [stdout, stderr] = [&out, &err].map(|path| File::create(path).expect("the directory is ours"));
        let child = command.stdout(stdout).stderr(stderr).spawn().expect("setsid of util-linux is installed");
        Running { child, out, err }
    }

    pub(crate) fn start(&self, words: &str, arguments: &[&str]) -> Running {
        self.spawn(self.command(words, arguments))
    }

    /// Runs the command to its end.
    pub(crate) fn ask(&self, words: &str, arguments: &[&str]) -> Said {
        self.start(words, arguments).said()
    }

    /// Runs a shell script, in which `$FENCEPOST` is the command.
    pub(crate) fn shell(&self, script: &str) -> Said {
        let command = self.command("", &[]);
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).env_clear().stdin(Stdio::null()).current_dir(self.scene.path());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.spawn(shell).said()
    }

    /// The status of lock `x`, as JSON.
    pub(crate) fn status(&self) -> Value {
        let said = self.ask("status x --json", &[]);
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.status()["held"] == true
    }

    /// Returns once this many wait for lock `x`.
    pub(crate) fn waiters(&self, count: usize) {
        until("waiters", || {
            let status = self.status();
            (status["waiters"].as_array().map(Vec::len) == Some(count)).then_some(())
        });
    }

    /// What was written with `--history`.
    pub(crate) fn history(&self) -> Vec<Event> {
        let text = fs::read_to_string(self.path("history")).unwrap_or_default();
        history::read(text.as_bytes()).map(|event| event.expect("an event")).collect()
    }

    /// What was written with `--events`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("events")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    pub(crate) fn event_names(&self) -> Vec<String> {
        self.events().iter().map(|event| event["event"].as_str().expect("a name").to_owned()).collect()
    }

    /// Returns once an event of this name was written.
    pub(crate) fn event(&self, name: &str) {
        until(name, || self.event_names().iter().any(|event| event == name).then_some(()));
    }

    pub(crate) fn control(&self, control: Control) {
        self.backend().control(control);
    }

    /// Every process that was started for this test has ended, and no handle and no ticket is left.
    pub(crate) fn nothing_is_left(&self) {
        let servers = self.leased.as_ref().map_or(0, Backend::processes);
        until("no process", || (self.scene.processes().len() == servers).then_some(()));
        assert_eq!(files_in(&self.path("run/fencepost")), [""; 0]);
        let locks = fs::read_dir(self.path("root")).into_iter().flatten().filter_map(Result::ok);
        for lock in locks.filter(|entry| entry.path().is_dir()) {
            assert_eq!(files_in(&lock.path()), [".lock"]);
        }
    }
}

/// The names in a directory, none if it is missing.
pub(crate) fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
}

/// A command that was started. Dropped, it is killed.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).expect("it was created")).into_owned()
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).expect("it was created")).into_owned()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    fn status(&mut self) -> ExitStatus {
        until("exit", || self.child.try_wait().expect("it is our child"))
    }

    /// Waits for its end.
    pub(crate) fn said(mut self) -> Said {
        let status = self.status();
        let code = status.code().unwrap_or_else(|| -status.signal().expect("it was killed"));
        Said { code, out: self.out(), err: self.err() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command said and how it ended: its status, or a signal's negative number.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It ended with this status and said nothing on stderr.
    #[track_caller]
    pub(crate) fn quiet(self, code: i32) -> String {
        assert_eq!((self.code, self.err.as_str()), (code, ""), "stdout: {}", self.out);
        self.out
    }

    /// It ended with this status and one line on stderr, which has each part.
    #[track_caller]
    pub(crate) fn says(self, code: i32, parts: &[&str]) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.starts_with("fencepost: ") && self.err.lines().count() == 1, "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {:?}", self.err);
        }
        self.out
    }
}

/// A pipe of which nothing is read yet, and into which nothing more goes.
pub(crate) fn full_pipe() -> (File, File) {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).expect("a pipe");
    let mut writer = File::from(writer);
    fill(&mut writer);
    (reader.into(), writer)
}

/// Fills a pipe that nobody reads.
pub(crate) fn fill(pipe: &mut File) {
    let size = fcntl(&*pipe, FcntlArg::F_SETPIPE_SZ(4096)).expect("it is a pipe");
    pipe.write_all(&vec![b' '; size as usize]).expect("it fits");
}

/// Time that has to pass while nothing happens: it cannot be polled for.
pub(crate) fn pass(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}
