//! `--events` and `--history`.

use std::fs::File;

use fencepost_lab::checker::{Rules, judge};
use fencepost_lab::leased::Control;
use libtest_mimic::Trial;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal::SIGTERM;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::scene::{kill, trial, until};
use crate::world::{World, fill};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 6] = [
        ("events_of_a_run", run),
        ("events_of_a_loss", loss),
        ("events_to_a_descriptor", descriptor),
        ("events_that_cannot_be_written", unwritable),
        ("events_to_a_pipe_that_nobody_reads", full),
        ("history_of_many_runs", history),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

fn run() {
    let world = World::leased("claim");
    world.ask("run --ttl 1500ms --events events x --", &["sh", "-c", "sleep 1; exit 3"]).quiet(3);
    // On a machine that stood still for a moment a renewal may be late.
    let names: Vec<String> = world.event_names().into_iter().filter(|name| name != "suspect").collect();
    assert_eq!(names[..3], ["waiting", "acquired", "renewed"], "{names:?}");
    assert_eq!(names[names.len() - 2..], ["ended", "released"], "{names:?}");
    let events = world.events();
    let find = |name: &str| events.iter().find(|event| event["event"] == name).expect("it was found above");
    assert!(find("acquired")["token"].as_str().is_some_and(|token| token.parse::<u64>().is_ok()));
    for name in ["acquired", "renewed"] {
        assert!(find(name)["left_ms"].as_u64().is_some_and(|left| (1..=1500).contains(&left)), "{events:?}");
    }
    assert_eq!(find("ended")["status"], 3);
    assert_eq!(find("released")["outcome"], "ok");
    for event in &events {
        assert_eq!(event["lock"], "x");
        assert!(event["at"].as_str().is_some_and(|at| at.len() == 24 && at.ends_with('Z')), "{event}");
    }
    let world = World::local();
    world.ask("run --events events x true", &[]).quiet(0);
    assert_eq!(world.event_names(), ["waiting", "acquired", "ended", "released"]);
    world.ask("run --events events x -- ./missing", &[]).says(127, &[]);
    assert_eq!(world.events()[6]["status"], 127);
}

fn loss() {
    let world = World::leased("claim");
    let first = world.start("run --ttl 2s --events events x sleep 60", &[]);
    world.event("acquired");
    world.ask("run -n --events other x true", &[]).says(75, &[]);
    until("the job", || world.is_held().then_some(()));
    world.control(Control::Delete("x".into()));
    // A command that itself ends with 76 is told apart by this.
    assert_eq!(first.said().code, 76);
    let names: Vec<String> = world.event_names().into_iter().filter(|name| name != "renewed").collect();
    assert_eq!(names, ["waiting", "acquired", "lost", "ended", "released"]);
    let events = world.events();
    let lost = events.iter().find(|event| event["event"] == "lost").expect("it was found above");
    assert!(lost["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{lost}");
    let last = events.last().expect("an event");
    assert_eq!((&last["event"], &last["outcome"]), (&"released".into(), &"lost".into()));
    let other = std::fs::read_to_string(world.path("other")).expect("it was written");
    assert!(other.contains("not_acquired") && other.contains("is held by pid"), "{other}");
}

fn descriptor() {
    let world = World::local();
    let out = world.shell("$FENCEPOST run --events-fd 7 x echo job 7>events | cat").quiet(0);
    assert_eq!(out, "job\n");
    assert_eq!(world.event_names(), ["waiting", "acquired", "ended", "released"]);
    let piped =
        world.shell("{ $FENCEPOST run --events-fd 3 x true 3>&1 >/dev/null; } | grep -c event").quiet(0);
    assert_eq!(piped, "4\n");
    world.ask("run --events-fd 9 x true", &[]).says(64, &["--events-fd: cannot write"]);
    world.ask("run --events-fd -1 x true", &[]).says(64, &["--events-fd"]);
}

fn unwritable() {
    let world = World::local();
    for flag in ["--events", "--history"] {
        let said = world.ask("run", &[flag, "missing/file", "x", "touch", "ran"]);
        said.says(64, &[&format!("{flag}: cannot write"), "path=missing/file"]);
    }
    assert!(!world.path("ran").exists());
    // A disk that becomes full must not stop the job.
    world.ask("run --events /dev/full --history /dev/full x true", &[]).quiet(0);
}

fn full() {
    let world = World::local();
    mkfifo(&world.path("pipe"), Mode::S_IRWXU).expect("the directory is ours");
    let mut pipe = File::options().read(true).write(true).open(world.path("pipe")).expect("it was made");
    fill(&mut pipe);
    for (number, run) in ["run --events pipe", "run --events-fd 0"].into_iter().enumerate() {
        let mut command =
            world.command(&format!("{run} x -- sh -c"), &[&format!(": >up-{number}; exec sleep 60")]);
        command.stdin(pipe.try_clone().expect("a descriptor"));
        let running = world.spawn(command);
        until("the job", || world.path(&format!("up-{number}")).exists().then_some(()));
        kill(running.pid(), SIGTERM);
        running.said().quiet(143);
    }
    let flags = fcntl(&pipe, FcntlArg::F_GETFL).expect("it is open");
    assert!(!OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK), "the caller's own flags changed");
    world.nothing_is_left();
}

fn history() {
    for (world, rules) in [
        (World::local(), Rules::all()),
        (World::leased("claim"), Rules::all()),
        (World::leased("session"), Rules::all()),
    ] {
        let script = "while [ ! -e enough ]; do sleep .01; done";
        let first = world.start("run --history history x --", &["sh", "-c", script]);
        until("the first", || world.is_held().then_some(()));
        world.ask("run -n --history history x true", &[]).says(75, &[]);
        let line: Vec<_> = (0..8).map(|_| world.start("run --history history x sleep .02", &[])).collect();
        std::fs::write(world.path("enough"), "").expect("the directory is ours");
        first.said().quiet(0);
        for run in line {
            run.said().quiet(0);
        }
        let verdict = judge(&world.history(), &rules).expect("a history");
        assert!(verdict.holds() && verdict.overlaps.is_empty() && verdict.grants == 9, "{verdict}");
    }
}
