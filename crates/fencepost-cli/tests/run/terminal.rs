//! On a terminal, with a real shell that controls jobs: everything must be as without us. Needs tmux and bash.

use std::process::Command;

use libtest_mimic::Trial;
use nix::sys::signal::Signal::{SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1};

use crate::scene::{Scene, alive, kill, me, stat, trial, until};

pub(crate) fn trials() -> Vec<Trial> {
    let missing = Command::new("tmux").arg("-V").output().is_err();
    let tests: [(&str, fn()); 16] = [
        ("terminal_ctrl_c_arrives_once", ctrl_c),
        ("terminal_ctrl_z_and_fg", ctrl_z),
        ("terminal_job_stops_itself", stops_itself),
        ("terminal_job_continued_from_outside", continued_from_outside),
        ("terminal_pager_in_a_pipe", pager),
        ("terminal_pipe_ends_with_the_job", pipe_ends),
        ("terminal_job_reads_the_terminal", reads),
        ("terminal_waiting_ends_by_ctrl_c", waiting_ctrl_c),
        ("terminal_suspended_waiting_does_not_start", waiting_ctrl_z),
        ("terminal_suspended_between_lock_and_job", suspended_between),
        ("terminal_signals_to_us_are_forwarded", forwarded),
        ("terminal_relay_killed", relay_killed),
        ("terminal_group_killed_or_stopped", group),
        ("terminal_guardian_stopped_then_supervisor_killed", guardian_stopped),
        ("terminal_ctrl_c_leaves_a_loop", loops),
        ("terminal_interactive_shell", shell),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test).with_ignored_flag(missing)).collect()
}

const LEASE: &str = "ttl=600 grace=200 every=50";
const BOTH: [&str; 2] = [LEASE, ""];

/// A shell in a terminal of its own server, which ends with the scene.
struct Terminal {
    scene: Scene,
}

impl Terminal {
    fn open() -> Self {
        let terminal = Self { scene: Scene::new() };
        let scene = format!("SCENE={}", terminal.scene.path().display());
        let shell = "exec env PS1='prompt$ ' bash --norc --noprofile -i";
        terminal.tmux(&["-f/dev/null", "new-session", "-d", "-x120", "-y40", "-e", &scene, shell]);
        terminal.shows("prompt$");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let socket = self.scene.path().join("tmux");
        let output = Command::new("tmux").arg("-S").arg(socket).args(arguments).env_remove("TMUX").output();
        String::from_utf8_lossy(&output.expect("tmux is installed").stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn shows(&self, text: &str) {
        self.comes_to(text, |screen| screen.contains(text));
    }

    fn ends_with(&self, text: &str) {
        self.comes_to(text, |screen| screen.trim_end().ends_with(text));
    }

    fn comes_to(&self, text: &str, shown: impl Fn(&str) -> bool) {
        let end = crate::sys::now() + 10_000_000_000;
        while !shown(&self.screen()) {
            assert!(crate::sys::now() < end, "no {text} on the screen:\n{}", self.screen());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Types a line that runs the program under test.
    fn run(&self, script: &str, job: &str) {
        self.keys(&[&format!("clear; {} role:run {script} -- {job}", me().display()), "Enter"]);
    }

    /// Types a line and waits for what it prints; the text typed must not contain it.
    fn type_and_see(&self, line: &str, text: &str) {
        self.keys(&[line, "Enter"]);
        self.shows(text);
    }

    fn renewals_go_on(&self) {
        let before: u64 = self.scene.read("renewals");
        until("renewals past the lease", || (self.scene.read::<u64>("renewals") > before + 16).then_some(()));
    }

    fn is_in(&self, name: &str, states: &[&str]) {
        let pid = self.scene.read(name);
        until(name, || stat(pid).filter(|fields| states.contains(&fields[0].as_str())));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn counter() -> String {
    format!("{} role:count", me().display())
}

fn signals(terminal: &Terminal, expected: &str) {
    until(expected, || (terminal.scene.read::<String>("signals") == expected).then_some(()));
}

fn ctrl_c() {
    for script in BOTH {
        let terminal = Terminal::open();
        terminal.run(script, &counter());
        let _: i32 = terminal.scene.read("job");
        terminal.keys(&["C-c"]);
        signals(&terminal, "2 ");
        terminal.keys(&["C-\\"]);
        signals(&terminal, "2 3 ");
        // Time for a second one to arrive.
        std::thread::sleep(std::time::Duration::from_millis(200));
        signals(&terminal, "2 3 ");
        kill(terminal.scene.read("job"), SIGTERM);
        terminal.type_and_see("echo status=$?", "status=9");
    }
}

fn ctrl_z() {
    for script in BOTH {
        let terminal = Terminal::open();
        terminal.run(script, &format!("{} role:leaf job", me().display()));
        let _ = terminal.scene.last_stamp("job");
        for _ in 0..2 {
            terminal.keys(&["C-z"]);
            terminal.shows("Stopped");
            terminal.is_in("job", &["T"]);
            if script == LEASE {
                terminal.renewals_go_on();
            }
            terminal.type_and_see("echo $((40+2))", "42");
            terminal.keys(&["clear; fg", "Enter"]);
            terminal.is_in("job", &["S", "R"]);
            terminal.is_in("caller", &["S", "R"]);
        }
        terminal.keys(&["C-c"]);
        terminal.type_and_see("echo status=$?", "status=130");
    }
}

fn stops_itself() {
    for script in BOTH {
        for signal in ["TSTP", "STOP"] {
            let terminal = Terminal::open();
            terminal.run(script, &format!("sh -c 'kill -{signal} $$; echo went o''n; exit 5'"));
            terminal.shows("Stopped");
            terminal.type_and_see("fg", "went on");
            terminal.type_and_see("echo status=$?", "status=5");
        }
    }
}

fn continued_from_outside() {
    let terminal = Terminal::open();
    terminal.run(LEASE, &counter());
    let _: i32 = terminal.scene.read("job");
    terminal.keys(&["C-z"]);
    terminal.is_in("caller", &["T"]);
    kill(terminal.scene.read("job"), SIGCONT);
    terminal.is_in("caller", &["S", "R"]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    signals(&terminal, "18 ");
}

/// The reader must see the end of a pipe while the job, which has closed it, still runs.
fn pipe_ends() {
    for script in BOTH {
        let terminal = Terminal::open();
        let reader = "{ cat; test -e $SCENE/ended || echo ea''rly; }";
        terminal.run(script, &format!("sh -c 'exec >/dev/null; sleep 1; : > $SCENE/ended' | {reader}"));
        terminal.shows("early");
    }
}

fn pager() {
    for script in BOTH {
        let terminal = Terminal::open();
        let file = terminal.scene.path().join("text");
        std::fs::write(&file, "line of text\n".repeat(20_000)).expect("it can be written");
        terminal.run(script, &format!("cat {} | less", file.display()));
        terminal.shows("line of text");
        terminal.keys(&["q"]);
        terminal.shows("prompt$");
        terminal.type_and_see("echo ${PIPESTATUS[@]}", "141 0");
    }
}

fn reads() {
    for script in BOTH {
        let terminal = Terminal::open();
        terminal.run(script, "sh -c 'echo rea''dy; read line; echo got=$line'");
        terminal.shows("ready");
        terminal.type_and_see("hello", "got=hello");
    }
}

fn waiting_ctrl_c() {
    for script in ["wait=60000 ttl=5000", "wait=60000"] {
        let terminal = Terminal::open();
        terminal.run(script, "true");
        let _: i32 = terminal.scene.read("supervisor");
        terminal.keys(&["C-c"]);
        assert_eq!(terminal.scene.read::<String>("claim"), "dropped");
        terminal.type_and_see("echo status=$?", "status=130");
    }
}

fn waiting_ctrl_z() {
    for script in ["wait=1000 ttl=600 grace=200 every=50", "wait=1000"] {
        let terminal = Terminal::open();
        terminal.run(script, &format!("{} role:leaf job", me().display()));
        let _: i32 = terminal.scene.read("supervisor");
        terminal.keys(&["C-z"]);
        terminal.shows("Stopped");
        std::thread::sleep(std::time::Duration::from_millis(1500));
        assert!(!terminal.scene.path().join("job").exists(), "{script}");
        terminal.keys(&["fg", "Enter"]);
        let _ = terminal.scene.last_stamp("job");
        terminal.keys(&["C-c"]);
        terminal.type_and_see("echo status=$?", "status=130");
    }
}

/// The lock is acquired while the relay is stopped, and before it goes on it is told to stop once more.
fn suspended_between() {
    let terminal = Terminal::open();
    terminal.run("wait=300 ttl=600 grace=200 every=50", &format!("{} role:leaf job", me().display()));
    kill(terminal.scene.read("caller"), SIGSTOP);
    terminal.renewals_go_on();
    kill(terminal.scene.read("supervisor"), SIGTSTP);
    std::thread::sleep(std::time::Duration::from_millis(100));
    kill(terminal.scene.read("caller"), SIGCONT);
    std::thread::sleep(std::time::Duration::from_millis(200));
    terminal.is_in("caller", &["T"]);
    assert!(!terminal.scene.path().join("job").exists());
    terminal.keys(&["fg", "Enter"]);
    let _ = terminal.scene.last_stamp("job");
}

fn forwarded() {
    for script in BOTH {
        let terminal = Terminal::open();
        terminal.run(script, &counter());
        let _: i32 = terminal.scene.read("job");
        for (signal, seen) in [(SIGUSR1, "10 "), (SIGINT, "10 2 ")] {
            kill(terminal.scene.read("caller"), signal);
            signals(&terminal, seen);
        }
        kill(terminal.scene.read("caller"), SIGTERM);
        terminal.type_and_see("echo status=$?", "status=9");
    }
}

fn relay_killed() {
    let terminal = Terminal::open();
    terminal.run(LEASE, &format!("{} role:tree stubborn", me().display()));
    terminal.scene.tree_is_up();
    kill(terminal.scene.read("caller"), SIGKILL);
    assert!(terminal.scene.tree_is_dead() < terminal.scene.read("over"));
}

fn group() {
    // Our part in the group is killed with it: what left the group must die all the same.
    for signal in [SIGKILL, SIGSTOP] {
        let terminal = Terminal::open();
        terminal.run(
            "ttl=1000 grace=300 every=50 renewals=20",
            &format!("{} role:tree stubborn", me().display()),
        );
        terminal.scene.tree_is_up();
        kill(-terminal.scene.read::<i32>("caller"), signal);
        assert!(terminal.scene.tree_is_dead() < terminal.scene.read("deadline"), "{signal}");
        let supervisor = terminal.scene.read("supervisor");
        // A relay that is stopped does not hold the supervisor up.
        until("supervisor", || (!alive(supervisor)).then_some(()));
    }
}

/// Elsewhere the kernel continues a stopped group that loses its supervisor, but this group has a shell.
fn guardian_stopped() {
    let terminal = Terminal::open();
    terminal.run("ttl=2000 grace=300 every=50", &format!("{} role:tree stubborn", me().display()));
    terminal.scene.tree_is_up();
    let (guardian, supervisor) = (terminal.scene.guardian(), terminal.scene.read("supervisor"));
    kill(supervisor, SIGSTOP);
    kill(guardian, SIGSTOP);
    kill(supervisor, SIGKILL);
    assert!(terminal.scene.tree_is_dead() < terminal.scene.read("deadline"));
    terminal.type_and_see("echo status=$?", "status=70");
}

fn loops() {
    for script in [LEASE, "", "wait=60000", "wait=60000 ttl=5000"] {
        for (job, left) in [("role:leaf job", true), ("role:count", false)] {
            let terminal = Terminal::open();
            let line = format!("{} role:run {script} -- {} {job}", me().display(), me().display());
            terminal.keys(&[
                &format!("clear; for i in 1 2; do {line}; echo turn=$i; done; echo af''ter"),
                "Enter",
            ]);
            let waits = script.starts_with("wait");
            let _: i32 = terminal.scene.read(if waits { "supervisor" } else { "job" });
            terminal.keys(&["C-c"]);
            if !waits && !left {
                // A job that handles Ctrl-C and ends as it likes does not end the loop.
                signals(&terminal, "2 ");
                kill(terminal.scene.read("job"), SIGTERM);
                terminal.shows("turn=1");
                continue;
            }
            terminal.ends_with("prompt$");
            assert!(!terminal.screen().contains("turn=1"), "{script}: {}", terminal.screen());
        }
    }
}

/// A shell as the job takes the terminal for its own jobs, and gives it back.
fn shell() {
    for script in BOTH {
        let terminal = Terminal::open();
        terminal.run(script, "env PS1='inner: ' bash --norc --noprofile -i");
        terminal.shows("inner:");
        terminal.keys(&["sleep 60", "Enter"]);
        std::thread::sleep(std::time::Duration::from_millis(300));
        terminal.keys(&["C-z"]);
        terminal.shows("Stopped");
        terminal.keys(&["fg", "Enter"]);
        std::thread::sleep(std::time::Duration::from_millis(300));
        terminal.keys(&["C-c"]);
        terminal.type_and_see("echo $((40+2))", "42");
        terminal.type_and_see("exit 6", "prompt$");
        terminal.type_and_see("echo status=$?", "status=6");
    }
}
