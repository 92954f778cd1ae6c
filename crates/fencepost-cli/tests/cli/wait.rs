//! Waiting for a lock, and no longer waiting.

use libtest_mimic::Trial;
use nix::sys::signal::Signal::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::scene::{kill, trial, until};
use crate::sys;
use crate::world::{Running, World};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 6] = [
        ("wait_in_line", in_line),
        ("wait_not_at_all", not_at_all),
        ("wait_for_a_time", for_a_time),
        ("wait_withdrawn_by_a_signal", withdrawn),
        ("wait_withdrawn_on_a_lease", withdrawn_on_a_lease),
        ("wait_label_and_position", label),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

/// A holder that keeps lock `x` until the note `enough` is there.
fn holder(world: &World) -> Running {
    let script = "while [ ! -e $SCENE/enough ]; do sleep .01; done";
    let running = world.start("run --label nightly x --", &["sh", "-c", script]);
    until("the holder", || world.is_held().then_some(()));
    running
}

fn enough(world: &World) {
    std::fs::write(world.path("enough"), "").expect("the directory is ours");
}

fn in_line() {
    for world in [World::local(), World::leased("claim"), World::leased("session")] {
        let first = holder(&world);
        let mut line = Vec::new();
        for number in 1..=5 {
            line.push(world.start("run x --", &["sh", "-c", &format!("echo {number} >>order; sleep .05")]));
            world.waiters(number);
        }
        enough(&world);
        first.said().quiet(0);
        for waiter in line {
            waiter.said().quiet(0);
        }
        assert_eq!(std::fs::read_to_string(world.path("order")).expect("it was written"), "1\n2\n3\n4\n5\n");
        world.nothing_is_left();
    }
}

fn not_at_all() {
    for world in [World::local(), World::leased("claim")] {
        let first = holder(&world);
        let who = format!("lock=x is held by pid {}", first.pid());
        world.ask("run -n x -- touch ran", &[]).says(75, &[&who, "(nightly)", " for "]);
        world.ask("run -n -E 9 x -- touch ran", &[]).says(9, &[&who]);
        world.ask("run -n -q x -- touch ran", &[]).quiet(75);
        world.ask("hold -n --pid 1 x", &[]).says(75, &[&who]);
        world.ask("hold -n -E 8 --pid 1 x", &[]).says(8, &[&who]);
        assert!(!world.path("ran").exists());
        assert_eq!(world.status()["waiters"].as_array().map(Vec::len), Some(0));
        enough(&world);
        first.said().quiet(0);
        world.ask("run -n x true", &[]).quiet(0);
    }
}

fn for_a_time() {
    for world in [World::local(), World::leased("claim")] {
        let first = holder(&world);
        let began = sys::now();
        let who = format!("lock=x is held by pid {}", first.pid());
        let said = world.ask("run -w 400ms x -- touch ran", &[]);
        said.says(75, &[&who, "(nightly)", "gave up after 400ms"]);
        let waited = sys::now() - began;
        assert!((400_000_000..3_000_000_000).contains(&waited), "{waited}");
        world.ask("run -w 1500ms -E 0 x -- touch ran", &[]).says(0, &["gave up after 1500ms"]);
        world.ask("run -w 0s x -- touch ran", &[]).says(75, &[&who]);
        assert!(!world.path("ran").exists());
        enough(&world);
        first.said().quiet(0);
        world.ask("run -w 0s x true", &[]).quiet(0);
        world.nothing_is_left();
    }
}

fn withdraw(world: &World, signal: Signal) {
    let waiter = world.start("run x -- touch ran", &[]);
    world.waiters(1);
    let asked = sys::now();
    kill(waiter.pid(), signal);
    waiter.said().quiet(128 + signal as i32);
    assert!(sys::now() - asked < 2_000_000_000, "{signal}");
    assert_eq!(world.status()["waiters"].as_array().map(Vec::len), Some(0), "{signal}");
}

fn withdrawn() {
    let world = World::local();
    let first = holder(&world);
    for signal in [SIGINT, SIGTERM, SIGQUIT, SIGHUP] {
        withdraw(&world, signal);
    }
    // One that nohup has taught to ignore SIGHUP goes on waiting.
    let mut nohup = world.command("", &[]);
    nohup = {
        let mut command = std::process::Command::new("setsid");
        command.args(["nohup"]).args(nohup.get_args()).args(["run", "x", "true"]).env_clear();
        command.envs(nohup.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    };
    let mut waiter = world.spawn(nohup);
    world.waiters(1);
    kill(waiter.pid(), SIGHUP);
    crate::world::pass(200);
    assert!(waiter.is_running());
    enough(&world);
    first.said().quiet(0);
    assert_eq!(waiter.said().code, 0);
    assert!(!world.path("ran").exists());
    world.nothing_is_left();
}

fn withdrawn_on_a_lease() {
    for lease in ["claim", "session"] {
        let world = World::leased(lease);
        let first = holder(&world);
        for signal in [SIGINT, SIGTERM] {
            withdraw(&world, signal);
        }
        enough(&world);
        first.said().quiet(0);
        world.nothing_is_left();
    }
}

fn label() {
    let world = World::local();
    let first = holder(&world);
    let waiter = world.start("run --label hourly x true", &[]);
    world.waiters(1);
    let status = world.status();
    assert_eq!(status["holder"]["owner"]["label"], "nightly");
    assert_eq!(status["waiters"][0]["label"], "hourly");
    assert_eq!(status["waiters"][0]["pid"], waiter.pid());
    let text = world.ask("status x", &[]).quiet(0);
    assert!(
        text.contains("(nightly) for ") && text.contains("waiting: ") && text.contains("(hourly) for "),
        "{text}"
    );
    let long = "l".repeat(256);
    world.ask("run x --label", &[&long, "true"]).says(64, &["label", "256 bytes"]);
    world.ask("run x --label", &["two\nlines", "true"]).says(64, &["label", "control character"]);
    enough(&world);
    first.said().quiet(0);
    waiter.said().quiet(0);
}
