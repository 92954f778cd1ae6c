//! The real command at a terminal, in a shell that controls jobs, and as process 1. Needs tmux.

use std::process::Command;

use libtest_mimic::Trial;
use nix::sys::signal::Signal::SIGTERM;

use crate::scene::{kill, me, stat, trial, until};
use crate::sys;
use crate::world::{FENCEPOST, World, pass};

pub(crate) fn trials() -> Vec<Trial> {
    let missing = Command::new("tmux").arg("-V").output().is_err();
    let tests: [(&str, fn()); 6] = [
        ("terminal_live_line", live_line),
        ("terminal_live_line_is_cut", narrow),
        ("terminal_no_live_line_into_a_file", no_live_line),
        ("terminal_ctrl_c_while_waiting", ctrl_c),
        ("terminal_pager", pager),
        ("terminal_ctrl_z_keeps_the_lease", ctrl_z),
    ];
    let tests = tests.into_iter().map(|(name, test)| trial(name, test).with_ignored_flag(missing));
    let root = nix::unistd::geteuid().is_root();
    tests.chain([trial("terminal_process_1", process_1).with_ignored_flag(!root)]).collect()
}

/// A shell in a terminal of its own server.
struct Terminal<'a> {
    world: &'a World,
}

impl<'a> Terminal<'a> {
    fn open(world: &'a World) -> Self {
        Self::of_width(world, 150)
    }

    fn of_width(world: &'a World, width: usize) -> Self {
        let terminal = Self { world };
        let command = world.command("", &[]);
        let mut arguments = vec![
            "-f/dev/null".into(),
            "new-session".into(),
            "-d".into(),
            format!("-x{width}"),
            "-y40".into(),
            "-c".into(),
        ];
        arguments.push(world.scene.path().to_str().expect("plain").into());
        for (name, value) in
            command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)))
        {
            arguments.extend(["-e".to_owned(), format!("{name}={value}")]);
        }
        arguments.push("exec env PS1='prompt$ ' bash --norc --noprofile -i".into());
        terminal.tmux(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        terminal.shows("prompt$");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S")
            .arg(self.world.path("tmux"))
            .args(arguments)
            .env_remove("TMUX")
            .env("SCENE", self.world.scene.path());
        String::from_utf8_lossy(&tmux.output().expect("tmux is installed").stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a line that runs the command.
    fn types(&self, line: &str) {
        self.keys(&[&format!("clear; {line}"), "Enter"]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn comes_to(&self, what: &str, shown: impl Fn(&str) -> bool) {
        let end = sys::now() + 10_000_000_000;
        while !shown(&self.screen()) {
            assert!(sys::now() < end, "no {what} on the screen:\n{}", self.screen());
            pass(10);
        }
    }

    fn shows(&self, text: &str) {
        self.comes_to(text, |screen| screen.contains(text));
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn live_line() {
    for world in [World::local(), World::leased("claim")] {
        let first = world.start("run --label nightly x sleep 60", &[]);
        until("the first", || world.is_held().then_some(()));
        let terminal = Terminal::open(&world);
        let typed = sys::now();
        terminal.types("$FENCEPOST run x -- echo it ra''n; echo status=$?");
        world.waiters(1);
        terminal.shows("fencepost: waiting 1s for x, held by pid");
        assert!(sys::now() - typed >= 1_000_000_000);
        terminal.shows("(nightly), number 1 in line");
        terminal.shows("fencepost: waiting 2s for x");
        assert!(!terminal.screen().contains("waiting 1s"), "it was not replaced:\n{}", terminal.screen());
        kill(first.pid(), SIGTERM);
        terminal.shows("it ran");
        terminal.shows("status=0");
        assert!(!terminal.screen().contains("waiting"), "it was not removed:\n{}", terminal.screen());
        terminal.types("$FENCEPOST run -q x true; echo status=$?");
        terminal.shows("status=0");
        assert!(!terminal.screen().contains("fencepost:"), "{}", terminal.screen());
    }
}

/// A line that is longer than the terminal is wide is cut, and does not scroll the screen each second.
fn narrow() {
    let world = World::local();
    let label = "a-label-that-is-longer-than-the-terminal-is-wide";
    let first = world.start(&format!("run --label {label} x sleep 60"), &[]);
    until("the first", || world.is_held().then_some(()));
    let terminal = Terminal::of_width(&world, 50);
    terminal.types("$FENCEPOST run x true; echo status=$?");
    terminal.shows("fencepost: waiting 3s for x, held by pid");
    let lines = terminal.screen().lines().filter(|line| !line.is_empty()).count();
    assert_eq!(lines, 1, "{}", terminal.screen());
    kill(first.pid(), SIGTERM);
    terminal.shows("status=0");
    assert!(!terminal.screen().contains("waiting"), "{}", terminal.screen());
}

fn no_live_line() {
    let world = World::local();
    let _first = world.start("run x sleep 60", &[]);
    until("the first", || world.is_held().then_some(()));
    let terminal = Terminal::open(&world);
    terminal.types("$FENCEPOST run -w 1500ms x true 2>err; echo status=$?");
    terminal.shows("status=75");
    let err = std::fs::read_to_string(world.path("err")).expect("it was written");
    assert!(
        err.starts_with("fencepost: lock=x is held by")
            && err.lines().count() == 1
            && !err.contains('\u{1b}'),
        "{err:?}"
    );
    terminal.types("$FENCEPOST run -q -w 1500ms x true; echo status=$?");
    terminal.shows("status=75");
    assert!(!terminal.screen().contains("waiting"), "{}", terminal.screen());
}

fn ctrl_c() {
    for world in [World::local(), World::leased("session")] {
        let _first = world.start("run x sleep 60", &[]);
        until("the first", || world.is_held().then_some(()));
        let terminal = Terminal::open(&world);
        for command in ["run x touch ran", "hold --pid $$ x"] {
            terminal.types(&format!("$FENCEPOST {command}"));
            world.waiters(1);
            terminal.keys(&["C-c"]);
            world.waiters(0);
            terminal.keys(&["echo status=$?", "Enter"]);
            terminal.shows("status=130");
        }
        assert!(!world.path("ran").exists());
    }
}

fn pager() {
    for world in [World::local(), World::leased("claim")] {
        std::fs::write(world.path("text"), "line of text\n".repeat(20_000)).expect("the directory is ours");
        let terminal = Terminal::open(&world);
        terminal.types("$FENCEPOST run x cat text | less");
        terminal.shows("line of text");
        terminal.keys(&["q"]);
        terminal.shows("prompt$");
        terminal.keys(&["echo ${PIPESTATUS[@]}", "Enter"]);
        terminal.shows("141 0");
        assert!(!world.is_held());
    }
}

fn ctrl_z() {
    for lease in ["claim", "session"] {
        let world = World::leased(lease);
        let terminal = Terminal::open(&world);
        // Not a shell: one that is stopped while it starts a child stops only after that.
        terminal.types(&format!("$FENCEPOST run --ttl 1s x {} role:leaf job", me().display()));
        let pid = world.scene.read("job");
        terminal.keys(&["C-z"]);
        terminal.shows("Stopped");
        until("the job to stop", || stat(pid).filter(|fields| fields[0] == "T"));
        let token = world.status()["holder"]["token"].clone();
        let stopped = sys::now();
        until("three leases to pass", || {
            assert_eq!(world.status()["holder"]["token"], token, "the lock was not renewed");
            pass(50);
            (sys::now() > stopped + 3_000_000_000).then_some(())
        });
        terminal.keys(&["fg", "Enter"]);
        let resumed = sys::now();
        until("the job to go on", || (world.scene.last_stamp("job") > resumed).then_some(()));
        std::fs::write(world.path("enough"), "").expect("the directory is ours");
        terminal.keys(&["echo status=$?", "Enter"]);
        terminal.shows("status=0");
        until("the release", || (!world.is_held()).then_some(()));
    }
}

fn process_1() {
    for world in [World::local(), World::leased("claim")] {
        let words = "--pid --fork --mount-proc --kill-child";
        let command = |job: &[&str]| {
            let envs = world.command("", &[]);
            let mut unshare = Command::new("setsid");
            unshare
                .args(["unshare"])
                .args(words.split(' '))
                .arg(FENCEPOST)
                .args(["run", "--ttl", "2s", "x", "--"])
                .args(job);
            unshare.env_clear().envs(envs.get_envs().filter_map(|(name, value)| Some((name, value?))));
            unshare.current_dir(world.scene.path());
            world.spawn(unshare)
        };
        // An orphan that ends while the job runs is reaped, and the job's status is ours.
        let script = "(sleep .1 & echo) | cat; sleep .4; grep -l 'State:.Z' /proc/[0-9]*/status; exit 7";
        assert_eq!(command(&["sh", "-c", script]).said().quiet(7), "\n");
        assert!(!world.is_held());
    }
}
