//! `fencepost demo` and `fencepost lab`, from the command line: what they print, how they end, and that nothing stays behind.

mod scratch;
#[path = "../../src/sys.rs"]
#[allow(dead_code, reason = "one of these calls is needed here")]
mod sys;

use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use fencepost_lab::clock::now_ns;
use fencepost_lab::server::{ignored, postgres, redis, require};
use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::{
    Signal,
    Signal::{SIGINT, SIGKILL, SIGTERM},
};

use scratch::{FENCEPOST, Scratch, until};

fn main() -> ExitCode {
    // A runner in the background ignores the keys of the terminal, and what it starts would as well.
    for signal in [nix::libc::SIGHUP, nix::libc::SIGINT, nix::libc::SIGQUIT] {
        sys::set_ignored(signal, false);
    }
    let (no_redis, no_postgres) = (ignored(&redis::installed()), ignored(&postgres::installed()));
    let no_tmux = ignored(&require("tmux", "tmux"));
    let tests: [(&str, fn(), bool); 9] = [
        ("demo", demo, no_redis),
        ("lab_plays_every_scene", every_scene, no_redis || no_postgres),
        ("lab_lists_what_it_plays", list, false),
        ("a_missing_server_is_named", missing, false),
        ("odd_arguments_are_refused", refused, false),
        ("a_signal_cleans_up", signals, no_redis || no_postgres),
        ("a_killed_scene_leaves_no_process", killed, no_redis || no_postgres),
        ("a_terminal_shows_colours_unless_told_not_to", terminal, no_redis || no_tmux),
        ("a_narrow_terminal_is_not_overrun", narrow, no_redis || no_tmux),
    ];
    let trial = |(name, test, skip): (&'static str, fn(), bool)| {
        let test = move || {
            test();
            Ok(())
        };
        Trial::test(name, test).with_ignored_flag(skip)
    };
    let mut arguments = Arguments::from_args();
    // The scenes keep time, which too many at once would take from them.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    libtest_mimic::run(&arguments, tests.into_iter().map(trial).collect()).exit_code()
}

/// Both acts, in less than 30 seconds; plain ASCII, because nothing asks for more.
fn demo() {
    let scratch = Scratch::new();
    let began = now_ns();
    let said = scratch.ask(&["demo"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    assert!(now_ns() - began < 30_000_000_000);
    for part in [
        "1. The lock that everybody",
        "and the file ACCEPTED it",
        "98 should be left, but the stock says 99: the sale of B is LOST",
        "2. A Fencepost lock",
        "and REJECTED it",
        "1 sale was confirmed, and 99 are left: nothing is lost",
    ] {
        assert!(said.flat().contains(part), "no {part}:\n{}", said.out);
    }
    assert_eq!(said.out.matches("It came out so.").count(), 2);
    assert!(said.out.is_ascii() && !said.out.contains('\x1b'), "{}", said.out);
    assert!(said.out.lines().all(|line| line.len() <= 80), "{}", said.out);
    scratch.nothing_is_left();
}

fn every_scene() {
    for (words, parts) in [
        (&["order"][..], &["98 should be left", "LOST"][..]),
        (&["pause"], &["the database ACCEPTED it", "LOST"]),
        (
            &["pause", "--gate", "on", "--ttl", "1s"],
            &["The database had seen token", "REJECTED", "nothing is lost"],
        ),
        (
            &["pause", "--gate", "writes-only"],
            &["ACCEPTED", "the sale of A is LOST", "REJECTED", "nothing is lost"],
        ),
    ] {
        let scratch = Scratch::new();
        let said = scratch.ask(&[&["lab"], words].concat());
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}\n{}", said.out);
        for part in parts {
            assert!(said.flat().contains(part), "no {part}:\n{}", said.out);
        }
        scratch.nothing_is_left();
    }
}

fn list() {
    let scratch = Scratch::new();
    for words in [&["lab"][..], &["lab", "list"]] {
        let said = scratch.ask(words);
        assert_eq!(said.code, 0);
        for scene in ["order", "pause", "pause --gate on", "pause --gate writes-only"] {
            assert!(said.out.contains(&format!("fencepost lab {scene} ")), "{}", said.out);
        }
        assert!(said.out.contains("fencepost demo "));
    }
    assert_eq!(scratch.ask(&["-q", "lab"]).out, "");
}

fn missing() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["demo"]);
    command.env("PATH", "/nonexistent");
    let said = scratch.end(command);
    assert_eq!((said.code, said.out.as_str()), (69, ""));
    assert_eq!(
        said.err,
        "fencepost: redis-server is not installed, get it with `apt-get install redis-server`\n"
    );
    scratch.nothing_is_left();
}

fn refused() {
    let scratch = Scratch::new();
    for (words, part) in [
        (&["demo", "--url", "redis://127.0.0.1"][..], "--url"),
        (&["lab", "pause", "--url", "redis://127.0.0.1"], "--url"),
        (&["lab", "pause", "--ttl", "1ms"], "500ms"),
        (&["lab", "pause", "--ttl", "2h"], "1m"),
        (&["lab", "pause", "--gate", "maybe"], "writes-only"),
        (&["lab", "opera"], "opera"),
    ] {
        let said = scratch.ask(words);
        assert_eq!((said.code, said.out.as_str()), (64, ""), "{words:?}: {}", said.err);
        assert!(said.err.contains(part) && said.err.lines().count() == 1, "{}", said.err);
    }
    let said = scratch.ask(&["lab", "worker"]);
    assert_eq!(said.code, 70);
    assert!(said.err.contains("fencepost lab"), "{}", said.err);
    scratch.nothing_is_left();
}

/// To us alone, and to the whole group as the keys of a terminal do; while servers start, and while a worker is stopped.
fn signals() {
    for (signal, to_group, stopped) in
        [(SIGINT, true, true), (SIGTERM, false, true), (SIGINT, true, false), (SIGTERM, false, false)]
    {
        let scratch = Scratch::new();
        let mut scene = scratch.start(scratch.command(&["lab", "pause", "--gate", "on"]));
        until("it began", || scratch.processes() > 1 && (!stopped || scratch.has_stopped_one()));
        scene.signal(signal, to_group);
        let said = scene.said();
        assert_eq!((said.code, said.err.as_str()), (128 + signal as i32, ""), "{}", said.out);
        scratch.nothing_is_left();
    }
}

/// By SIGKILL, of the lab alone: no server, no worker and no stopped worker stays.
fn killed() {
    let scratch = Scratch::new();
    let mut scene = scratch.start(scratch.command(&["lab", "pause"]));
    until("a worker is stopped", || scratch.has_stopped_one());
    assert!(scratch.processes() >= 4);
    scene.signal(Signal::SIGKILL, false);
    assert_eq!(scene.said().code, -(SIGKILL as i32));
    until("nothing runs", || scratch.processes() == 0);
}

fn terminal() {
    for (variables, coloured) in [("LANG=C.UTF-8", true), ("LANG=C.UTF-8 NO_COLOR=1", false)] {
        let scratch = Scratch::new();
        let screen = shown(&scratch, 100, &format!("{variables} {FENCEPOST} demo"));
        assert!(screen.contains('█') && screen.contains('✗'), "{screen}");
        assert_eq!(screen.contains("\x1b["), coloured, "{screen}");
        // The line that says what happens is gone.
        assert!(!screen.contains("asks for the lock"), "{screen}");
    }
}

fn narrow() {
    let scratch = Scratch::new();
    let screen = shown(&scratch, 50, &format!("NO_COLOR=1 LANG=C.UTF-8 {FENCEPOST} demo"));
    // A line that is too long would have been broken by the terminal, after its last column.
    let full = screen.lines().filter(|line| line.chars().count() > 50).count();
    assert_eq!(full, 0, "{screen}");
    let lanes = screen.lines().filter(|line| line.starts_with("worker ") || line.starts_with("stock   "));
    assert_eq!(lanes.count(), 6, "{screen}");
    let begins = |line: &&str| ["┼", "─"].iter().any(|sign| line.starts_with(sign));
    assert_eq!(screen.lines().filter(begins).count(), 0, "{screen}");
}

/// What a terminal of this width shows in the end, with the codes of its colours.
fn shown(scratch: &Scratch, width: usize, line: &str) -> String {
    let socket = scratch.path("tmux");
    let tmux = |words: &[&str]| {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(&socket).args(words).env_remove("TMUX").env("TMPDIR", scratch.path(""));
        String::from_utf8_lossy(&tmux.output().expect("tmux is installed").stdout).into_owned()
    };
    let size = format!("-x{width}");
    let line = format!("env {line}; echo status $?; sleep 60");
    tmux(&["-u", "-f/dev/null", "new-session", "-d", &size, "-y90", &line]);
    until("the end", || {
        sleep(Duration::from_millis(100));
        tmux(&["-u", "capture-pane", "-p"]).contains("status ")
    });
    let screen = tmux(&["-u", "capture-pane", "-e", "-p"]);
    tmux(&["kill-server"]);
    assert!(screen.contains("status 0"), "{screen}");
    screen
}
