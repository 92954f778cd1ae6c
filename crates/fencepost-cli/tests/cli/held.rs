//! `held`, asked by the command that runs and from beside it.

use fencepost_lab::leased::Control;
use libtest_mimic::Trial;
use nix::sys::signal::Signal::SIGSTOP;

use crate::scene::{kill, me, trial, until};
use crate::sys;
use crate::world::{Said, World, files_in};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 5] = [
        ("held_until_the_deadline", until_the_deadline),
        ("held_after_a_loss", after_a_loss),
        ("held_left", left),
        ("held_on_local", on_local),
        ("held_outside_of_a_run", outside),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

/// Asks as the command that runs would.
fn ask(world: &World, handle: &str, words: &str) -> Said {
    let mut command = world.command(words, &[]);
    command.env("FENCEPOST_HANDLE", handle);
    world.spawn(command).said()
}

fn handle(world: &World) -> String {
    let folder = world.path("run/fencepost");
    let name = until("a handle", || files_in(&folder).into_iter().find(|name| !name.ends_with(".new")));
    folder.join(name).to_str().expect("plain").to_owned()
}

fn until_the_deadline() {
    let world = World::leased("claim");
    let me = me().display().to_string();
    let first = world.start("run --ttl 1500ms --history history x --", &[&me, "role:leaf", "job"]);
    let handle = handle(&world);
    // Nobody tells any more how the lock stands: the deadline that was published last has to be enough.
    kill(first.pid(), SIGSTOP);
    let deadline = world.history().iter().filter_map(|event| event.deadline_ns).max().expect("a lease");
    let mut yes = 0;
    loop {
        let asked = sys::now();
        let said = ask(&world, &handle, "held");
        if said.code == 0 {
            assert!(asked < deadline, "held {} ns after the deadline", asked - deadline);
            yes += 1;
            continue;
        }
        assert!(sys::now() > deadline, "not held before the deadline: {said:?}");
        said.says(76, &["lock=x is no longer held"]);
        break;
    }
    assert!(yes > 0);
}

/// A job that does not hear TERM, and asks until the answer is no.
const UNTIL_LOST: &str = "trap '' TERM; : >up; code=0
    while [ $code = 0 ]; do $FENCEPOST held 2>no; code=$?; sleep .02; done; echo $code >code; sleep 9";

fn after_a_loss() {
    for lease in ["claim", "session"] {
        let world = World::leased(lease);
        let first = world.start("run --ttl 2s --grace 1s x --", &["sh", "-c", UNTIL_LOST]);
        until("up", || world.path("up").exists().then_some(()));
        let handle = handle(&world);
        world.control(Control::Delete("x".into()));
        first.said().says(76, &["the lock was lost"]);
        assert_eq!(std::fs::read_to_string(world.path("code")).expect("it turned before the kill"), "76\n");
        let no = std::fs::read_to_string(world.path("no")).expect("it was written");
        assert_eq!(no, "fencepost: lock=x is no longer held\n");
        ask(&world, &handle, "held").says(76, &["its handle is gone"]);
    }
}

fn left() {
    let world = World::leased("claim");
    let out = world.ask("run --ttl 5s x --", &["sh", "-c", "$FENCEPOST held --left"]).quiet(0);
    assert!(out.starts_with("4s ") && out.trim_end().ends_with("ms"), "{out}");
    let out = World::local().ask("run x --", &["sh", "-c", "$FENCEPOST held --left"]).quiet(0);
    assert_eq!(out, "forever\n");
}

fn on_local() {
    let world = World::local();
    let first = world.start("run --ttl 2s --grace 1s x --", &["sh", "-c", UNTIL_LOST]);
    until("up", || world.path("up").exists().then_some(()));
    world.ask("force-unlock -q --yes x", &[]).quiet(0);
    first.said().says(76, &["the lock was lost"]);
    assert_eq!(std::fs::read_to_string(world.path("code")).expect("it turned before the kill"), "76\n");
}

fn outside() {
    let world = World::local();
    world.ask("held", &[]).says(64, &["FENCEPOST_HANDLE is not set", "fencepost run"]);
    ask(&world, "", "held").says(64, &["FENCEPOST_HANDLE is not set"]);
    std::fs::write(world.path("text"), "no handle").expect("the directory is ours");
    for path in ["text", "missing", "/"] {
        ask(&world, path, "held").says(76, &["no longer held", &format!("path={path}")]);
    }
}
