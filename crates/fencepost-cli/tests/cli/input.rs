//! Bad input: for each the exact exit status and the exact line, which names the flag or the thing, and the fix.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use libtest_mimic::Trial;

use crate::scene::trial;
use crate::world::{World, files_in};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 5] = [
        ("input_refused_usage", usage),
        ("input_refused_urls", urls),
        ("input_refused_names", names),
        ("input_extreme_durations", extremes),
        ("input_help", help),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

/// Refused with exactly this line, before anything was done.
fn refused(world: &World, arguments: &[&str], code: i32, line: &str) {
    let said = world.ask("", arguments);
    assert_eq!(
        (said.code, said.err.as_str()),
        (code, format!("fencepost: {line}\n").as_str()),
        "{arguments:?}"
    );
    assert_eq!(said.out, "", "{arguments:?}");
}

fn nothing_was_done(world: &World) {
    assert!(!world.path("ran").exists() && !world.path("root").exists());
    assert_eq!(files_in(&world.path("run")), [""; 0]);
    assert_eq!(files_in(&world.path("home")), [""; 0]);
}

const DURATION: &str = "write a whole number and a unit, such as 250ms, 30s, 5m, 2h or 1d";

fn usage() {
    let world = World::local();
    let run = |flags: &[&'static str]| [&["run"], flags, &["x", "touch", "ran"]].concat();
    let see = |text: &str| format!("{text} (fencepost --help shows how)");
    let value =
        |value: &str, flag: &str, why: &str| see(&format!("invalid value '{value}' for '{flag}': {why}"));
    let long = [
        (vec![], "no command was given (fencepost --help lists them)".to_owned()),
        (vec!["frob"], see("unrecognized subcommand 'frob'")),
        (vec!["rum", "x"], see("unrecognized subcommand 'rum'; tip: a similar subcommand exists: 'run'")),
        (vec!["run"], see("the following required arguments were not provided: <NAME>; <CMD>...")),
        (vec!["run", "x"], see("the following required arguments were not provided: <CMD>...")),
        (vec!["run", "x", "--"], see("the following required arguments were not provided: <CMD>...")),
        (run(&["--labl", "x"]), see("unexpected argument '--labl' found; tip: a similar argument exists: '--label'")),
        (run(&["--ttl", "30"]), value("30", "--ttl <DURATION>", "it has no unit; write, for example, 30s or 30ms")),
        (run(&["--ttl", "0s"]), value("0s", "--ttl <DURATION>", "it is zero; write, for example, 30s")),
        (run(&["--ttl", "-5s"]), value("-5s", "--ttl <DURATION>", "it is negative; write, for example, 30s")),
        (run(&["--ttl", "1ns"]), value("1ns", "--ttl <DURATION>", DURATION)),
        (run(&["--ttl", "1.5s"]), value("1.5s", "--ttl <DURATION>", DURATION)),
        (run(&["--ttl", "400y"]), value("400y", "--ttl <DURATION>", DURATION)),
        (run(&["-w", "400 years"]), value("400 years", "--wait <DURATION>", DURATION)),
        (run(&["-w", "-1s"]), value("-1s", "--wait <DURATION>", "it is negative; write, for example, 30s")),
        (run(&["-w", "10"]), value("10", "--wait <DURATION>", "it has no unit; write, for example, 10s or 10ms")),
        (run(&["--max-hold", "0s"]), value("0s", "--max-hold <DURATION>", "it is zero; write, for example, 30s")),
        (run(&["--min-hold", "x"]), value("x", "--min-hold <DURATION>", DURATION)),
        (
            run(&["--connect-timeout", "0ms"]),
            value("0ms", "--connect-timeout <DURATION>", "it is zero; write, for example, 30s"),
        ),
        (run(&["--ttl", "3s", "--grace", "2s"]), "--grace is more than half of --ttl; give at most 1500ms".into()),
        (run(&["--grace", "20s"]), "--grace is more than half of --ttl; give at most 15s".into()),
        (run(&["-n", "-w", "5s"]), see("the argument '--no-wait' cannot be used with '--wait <DURATION>'")),
        (run(&["-q", "-v"]), see("the argument '--quiet' cannot be used with '--verbose'")),
        (run(&["-E", "256"]), value("256", "--conflict-exit-code <N>", "256 is not in 0..=255")),
        (
            run(&["--above", "0"]),
            value("0", "--above <TOKEN>", "invalid token \"0\": give a whole number from 1 to 18446744073709551615"),
        ),
        (
            run(&["--above", "-1"]),
            value("-1", "--above <TOKEN>", "invalid token \"-1\": give a whole number from 1 to 18446744073709551615"),
        ),
        (
            run(&["--require", "much"]),
            see("invalid value 'much' for '--require <LEVEL>'; [possible values: tokens, consensus]"),
        ),
        (run(&["--ttl"]), value("x", "--ttl <DURATION>", DURATION)),
        (vec!["status"], see("the following required arguments were not provided: <NAME>")),
        (vec!["status", "x", "y"], see("unexpected argument 'y' found")),
        (vec!["hold", "x"], see("the following required arguments were not provided: --pid <PID>")),
        (vec!["hold", "--pid", "-1", "x"], value("-1", "--pid <PID>", "-1 is not in 1..=2147483647")),
        (vec!["release"], see("the following required arguments were not provided: <HANDLE>")),
        (vec!["release", "gone"], "there is no such handle, give what `fencepost hold` printed: No such file or directory: path=gone".into()),
        (
            vec!["completions", "cmd"],
            see("invalid value 'cmd' for '<SHELL>'; [possible values: bash, elvish, fish, powershell, zsh]"),
        ),
        (vec!["man", "frob"], "there is no such command; `fencepost --help` lists them".into()),
    ];
    for (arguments, line) in long {
        refused(&world, &arguments, 64, &line);
    }
    nothing_was_done(&world);
}

fn urls() {
    let world = World::local();
    for (url, line) in [
        ("", "invalid url: it has no scheme; write, for example, local: or local:/path"),
        ("/a/path", "invalid url: it has no scheme; write, for example, local: or local:/path"),
        (
            "foo:bar",
            "the scheme \"foo\" is not known; this build has: etcd, etcds, local, redis, rediss, zk, zks",
        ),
        (
            "nope://host",
            "the scheme \"nope\" is not known; this build has: etcd, etcds, local, redis, rediss, zk, zks",
        ),
        ("local:a/path", "invalid url: the root must be an absolute path; write local:/path"),
        ("local://host/path", "invalid url: local: takes no host; write local:/path"),
        ("local:/a?sync=1", "the url has an unknown option \"sync\"; local takes: none"),
        ("local:/a?sync", "invalid url: an option after the ? has no value; write key=value"),
        ("local:/a%ff", "invalid url: a %-escape in it is not UTF-8"),
        ("local:/a%00", "invalid url: it contains a NUL byte"),
    ] {
        for command in [
            &["run", "x", "touch", "ran"][..],
            &["status", "x"],
            &["ls"],
            &["watch", "x"],
            &["force-unlock", "x", "--yes"],
            &["hold", "--pid", "1", "x"],
        ] {
            refused(&world, &[&["--url", url], command].concat(), 78, &format!("--url: {line}"));
        }
    }
    let nobody = "lab://127.0.0.1:1?lease=claim";
    refused(
        &world,
        &["--url", nobody, "run", "x", "touch", "ran"],
        69,
        "--url: cannot connect to 127.0.0.1:1: Connection refused",
    );
    nothing_was_done(&world);
}

fn names() {
    let world = World::local();
    let long = "x".repeat(300);
    for (name, why) in [
        ("", "it is empty; give 1 to 255 bytes, such as orders/4821"),
        (&long, "it has 300 bytes; at most 255 fit"),
        ("a\nb", "it contains the control character U+000A; remove it"),
        ("a\u{1b}[31m", "it contains the control character U+001B; remove it"),
        ("..", "\"..\" has the segment \"..\"; use segments other than \"\", \".\" and \"..\""),
        ("a/../b", "\"a/../b\" has the segment \"..\"; use segments other than \"\", \".\" and \"..\""),
        ("a//b", "\"a//b\" has the segment \"\"; use segments other than \"\", \".\" and \"..\""),
        ("/a", "\"/a\" begins or ends with a slash; remove it"),
        ("a/", "\"a/\" begins or ends with a slash; remove it"),
    ] {
        let line = format!("invalid lock name: {why} (fencepost --help shows how)");
        for command in [
            &["run", name, "touch", "ran"][..],
            &["status", name],
            &["watch", name],
            &["force-unlock", name, "--yes"],
            &["hold", "--pid", "1", name],
        ] {
            refused(&world, command, 64, &line);
        }
    }
    let mut command = world.command("run", &[]);
    command.arg(OsStr::from_bytes(b"a\xffb")).args(["touch", "ran"]);
    world.spawn(command).said().says(64, &["invalid lock name: it is not UTF-8"]);
    nothing_was_done(&world);
    // What looks strange and is a name all the same.
    for name in ["a b", "...", "a/.b", "-", "\u{65e5}\u{672c}", "*", "$HOME", "%41"] {
        assert_eq!(world.ask("run --", &[name, "sh", "-c", "printf %s \"$FENCEPOST_LOCK\""]).quiet(0), name);
    }
}

/// Durations of which no clock sees the end are as good as for ever.
fn extremes() {
    let most = "18446744073709551615d";
    for world in [World::local(), World::leased("claim")] {
        for flags in [
            format!("-w {most}"),
            format!("--max-hold {most}"),
            format!("--connect-timeout {most}"),
            "-w 0s".into(),
            "--grace 0s".into(),
            "--min-hold 0s".into(),
            "--ttl 1s --grace 500ms".into(),
        ] {
            assert_eq!(world.ask(&format!("run {flags} x -- echo ran"), &[]).quiet(0), "ran\n", "{flags}");
        }
    }
    World::local().ask(&format!("run --ttl {most} x true"), &[]).quiet(0);
    let world = World::leased("claim");
    for ttl in [most, "1ms"] {
        world
            .ask(&format!("run --ttl {ttl} x touch ran"), &[])
            .says(64, &["ttl", "is out of range; lab takes 50ms to"]);
    }
    assert!(!world.path("ran").exists());
    let world = World::leased("session");
    world.ask("run --ttl 1ms x touch ran", &[]).says(64, &["ttl", "is out of range"]);
}

fn help() {
    let world = World::local();
    for arguments in
        [&["--help"][..], &["help"], &["run", "--help"], &["help", "run"], &["hold", "-h"], &["--version"]]
    {
        let out = world.ask("", arguments).quiet(0);
        assert!(out.contains("fencepost"), "{arguments:?}: {out}");
        assert!(out.lines().all(|line| line.chars().count() <= 110), "{arguments:?}: {out}");
    }
    let out = world.ask("run --help", &[]).quiet(0);
    for part in [
        "Exit status:",
        "75   the lock was not",
        "76   the lock was lost",
        "FENCEPOST_TOKEN",
        "--grace",
        "-E",
    ] {
        assert!(out.contains(part), "no {part} in {out}");
    }
    // Help into a pipe that nobody reads is nobody's loss.
    world.shell("$FENCEPOST --help | true; exit ${PIPESTATUS[0]}").quiet(0);
    nothing_was_done(&world);
}
