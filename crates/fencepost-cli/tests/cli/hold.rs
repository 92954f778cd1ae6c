//! `hold` and `release`: a lock across the commands of a script.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use fencepost_lab::leased::Control;
use libtest_mimic::Trial;
use nix::sys::signal::Signal::{SIGINT, SIGKILL, SIGTERM};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::scene::{alive, children, kill, trial, until};
use crate::sys;
use crate::world::{Running, Said, World, pass};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 13] = [
        ("hold_in_a_script", script),
        ("hold_while_a_process_lives", while_it_lives),
        ("hold_released_twice", released_twice),
        ("hold_killed", killed),
        ("hold_lost", lost),
        ("hold_lost_before_it_stays", lost_before),
        ("hold_that_is_being_released", being_released),
        ("hold_lost_and_not_to_be_published", unpublished),
        ("hold_whose_caller_dies_at_the_grant", caller_dies),
        ("hold_that_cannot_be_asked_to_end", cannot_be_asked),
        ("hold_keeps_nothing_open", keeps_nothing_open),
        ("hold_interrupted_while_it_waits", interrupted),
        ("hold_of_a_process_that_ends_while_it_waits", watched_ends),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

/// A process to hold for.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("60").spawn().expect("it starts"))
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn hold(world: &World, sleeper: &Sleeper) -> Said {
    world.ask(&format!("hold --ttl 1s --pid {} x", sleeper.0.id()), &[])
}

/// The handle in what `hold` printed.
fn handle(out: &str) -> String {
    let line = out.lines().find_map(|line| line.strip_prefix("export FENCEPOST_HANDLE='"));
    line.and_then(|line| line.strip_suffix('\'')).unwrap_or_else(|| panic!("no handle in {out}")).to_owned()
}

fn holder(handle: &str) -> i32 {
    let text = std::fs::read(handle).expect("the handle is there");
    let value: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    value["pid"].as_i64().expect("a number") as i32
}

fn free(world: &World) {
    until("the lock to be free", || (!world.is_held()).then_some(()));
}

fn script() {
    for world in [World::local(), World::leased("claim"), World::leased("session")] {
        // The command substitution ends although the holder lives on: it has let go of the pipe.
        let script = r#"
            set -e
            variables=$($FENCEPOST hold --pid $$ "it's/x")
            eval "$variables"
            $FENCEPOST held
            sh -c 'echo "$FENCEPOST_TOKEN"; $FENCEPOST held'
            $FENCEPOST run -n "it's/x" true && exit 1
            $FENCEPOST release "$FENCEPOST_HANDLE"
            $FENCEPOST run -n "it's/x" true
        "#;
        let said = world.shell(script);
        assert!(said.out.trim().parse::<u64>().is_ok(), "{said:?}");
        said.says(0, &["lock=it's/x is held by pid"]);
        world.nothing_is_left();
    }
}

fn while_it_lives() {
    for world in [World::local(), World::leased("claim"), World::leased("session")] {
        let mut sleeper = Sleeper::new();
        hold(&world, &sleeper).quiet(0);
        // Longer than its lease, so that it has to be renewed.
        pass(1500);
        assert!(world.is_held());
        sleeper.end();
        free(&world);
        world.nothing_is_left();
    }
}

fn released_twice() {
    for world in [World::local(), World::leased("claim")] {
        let sleeper = Sleeper::new();
        let out = hold(&world, &sleeper).quiet(0);
        let handle = handle(&out);
        let pid = holder(&handle);
        world.ask("release", &[&handle]).quiet(0);
        assert!(!alive(pid) && !world.is_held());
        world.ask("release", &[&handle]).says(64, &["there is no such handle", &format!("path={handle}")]);
        world.nothing_is_left();
    }
}

fn killed() {
    for world in [World::local(), World::leased("claim")] {
        let sleeper = Sleeper::new();
        let handle = handle(&hold(&world, &sleeper).quiet(0));
        kill(holder(&handle), SIGKILL);
        world.ask("release", &[&handle]).says(76, &["the holder of lock=x was killed"]);
        free(&world);
        // The next one cleans up after it.
        world.ask("run x true", &[]).quiet(0);
        world.nothing_is_left();
    }
}

fn lost() {
    let world = World::leased("claim");
    let sleeper = Sleeper::new();
    let handle = handle(&hold(&world, &sleeper).quiet(0));
    world.control(Control::Delete("x".into()));
    until("the loss to be told", || {
        let mut held = world.command("held", &[]);
        held.env("FENCEPOST_HANDLE", &handle);
        (world.spawn(held).said().code == 76).then_some(())
    });
    world.ask("release", &[&handle]).says(76, &["lock=x was lost before its release"]);
    world.nothing_is_left();
}

/// A holder that has the lock and stands still where it publishes that: its handle, which it cannot open before we do.
fn granted(world: &World, sleeper: &Sleeper) -> (Running, PathBuf) {
    let script = [
        "sh",
        "-c",
        "printf $FENCEPOST_TOKEN >draft; mv draft token; until [ -e enough ]; do sleep .01; done",
    ];
    let first = world.start("run x --", &script);
    let token: u64 = world.scene.read("token");
    let caller = world.start(&format!("hold --ttl 9s --pid {} x", sleeper.0.id()), &[]);
    world.waiters(1);
    let pid = children(caller.pid())[0];
    let handle = world.path(&format!("run/fencepost/{pid}-{}", token + 1));
    mkfifo(&handle.with_extension("new"), Mode::S_IRWXU).expect("the directory is ours");
    std::fs::write(world.path("enough"), "").expect("the directory is ours");
    first.said().quiet(0);
    until("the grant", || {
        let next = (token + 1).to_string();
        (world.status()["holder"]["token"] == next.as_str()).then_some(())
    });
    (caller, handle)
}

/// Lets the holder go on.
fn go_on(handle: &Path) {
    std::fs::read(handle.with_extension("new")).expect("the holder writes to it");
}

fn lost_before() {
    let world = World::leased("claim");
    let sleeper = Sleeper::new();
    let (caller, handle) = granted(&world, &sleeper);
    world.control(Control::Delete("x".into()));
    // The loss is told at once, or by a renewal after a third of the lease.
    pass(3500);
    go_on(&handle);
    assert_eq!(caller.said().code, 0);
    until("the loss to be told", || {
        let is_file = std::fs::symlink_metadata(&handle).ok()?.is_file();
        (is_file && std::fs::read_to_string(&handle).ok()?.contains("\"lost\"")).then_some(())
    });
    world.ask("release", &[handle.to_str().expect("plain")]).says(76, &["lock=x was lost"]);
    world.nothing_is_left();
}

fn being_released() {
    let world = World::leased("claim");
    let sleeper = Sleeper::new();
    let out = world.ask(&format!("hold --ttl 60s --pid {} x", sleeper.0.id()), &[]).quiet(0);
    let handle = handle(&out);
    world.backend().pause();
    let asked = sys::now();
    kill(holder(&handle), SIGTERM);
    until("the end of the hold", || {
        std::fs::read_to_string(&handle).ok()?.contains("\"unknown\"").then_some(())
    });
    assert!(sys::now() < asked + 2_000_000_000, "told only when the backend was given up");
}

fn unpublished() {
    let world = World::leased("claim");
    let sleeper = Sleeper::new();
    let out = world.ask(&format!("hold --ttl 9s --pid {} x", sleeper.0.id()), &[]).quiet(0);
    let handle = PathBuf::from(handle(&out));
    std::fs::create_dir(handle.with_extension("new")).expect("the directory is ours");
    let lost = sys::now();
    world.control(Control::Delete("x".into()));
    until("the loss to be told", || (!handle.exists()).then_some(()));
    // By then its deadline would have said nothing.
    assert!(sys::now() < lost + 5_000_000_000);
}

fn caller_dies() {
    let world = World::leased("claim");
    let sleeper = Sleeper::new();
    let (caller, handle) = granted(&world, &sleeper);
    kill(caller.pid(), SIGKILL);
    assert_eq!(caller.said().code, -9);
    go_on(&handle);
    let began = sys::now();
    free(&world);
    assert!(sys::now() < began + 3_000_000_000, "free only by the end of the lease");
    world.nothing_is_left();
}

fn cannot_be_asked() {
    let world = World::local();
    let sleeper = Sleeper::new();
    let handle = handle(&hold(&world, &sleeper).quiet(0));
    // Enough to read the handle, and too few to look at the holder.
    let few = world.shell(&format!("ulimit -n 4; exec $FENCEPOST release '{handle}'"));
    few.says(70, &["cannot ask the holder to end"]);
    assert!(world.is_held() && alive(holder(&handle)));
    world.ask("release", &[&handle]).quiet(0);
    world.nothing_is_left();
}

fn keeps_nothing_open() {
    let world = World::local();
    let sleeper = Sleeper::new();
    let hold = format!("exec $FENCEPOST hold --pid {} x 3>mine 9>mine 200>mine", sleeper.0.id());
    let handle = handle(&world.shell(&hold).quiet(0));
    let open = std::fs::read_dir(format!("/proc/{}/fd", holder(&handle))).expect("it runs");
    let mine = world.path("mine");
    assert!(!open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).any(|file| file == mine));
    world.ask("release", &[&handle]).quiet(0);
    world.nothing_is_left();
}

fn interrupted() {
    for world in [World::local(), World::leased("claim")] {
        let first = world.start("run x sleep 60", &[]);
        until("the first", || world.is_held().then_some(()));
        let sleeper = Sleeper::new();
        let waiter = world.start(&format!("hold --pid {} x", sleeper.0.id()), &[]);
        world.waiters(1);
        kill(waiter.pid(), SIGINT);
        assert_eq!(waiter.said().code, -2);
        world.waiters(0);
        kill(first.pid(), nix::sys::signal::Signal::SIGTERM);
        first.said().quiet(143);
        world.nothing_is_left();
    }
}

fn watched_ends() {
    let world = World::local();
    let first = world.start("run x sleep 60", &[]);
    until("the first", || world.is_held().then_some(()));
    let mut sleeper = Sleeper::new();
    let waiter = world.start(&format!("hold --pid {} x", sleeper.0.id()), &[]);
    world.waiters(1);
    sleeper.end();
    waiter.said().says(75, &["--pid", "ended"]);
    world.waiters(0);
    world.ask("hold --pid 999999999 x", &[]).says(64, &["--pid: there is no such process", "$$"]);
    world.ask("hold --pid 0 x", &[]).says(64, &["--pid"]);
    world.ask("hold x", &[]).says(64, &["--pid <PID>"]);
    std::fs::write(world.path("text"), "no handle").expect("the directory is ours");
    world.ask("release text", &[]).says(64, &["there is no such handle", "it is something else: path=text"]);
    drop(first);
}
