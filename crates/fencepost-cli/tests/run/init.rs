//! As process 1 of a container: nothing has a default action there, and every orphan is ours to reap.

use std::process::Command;

use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::scene::{Scene, children, kill, me, stat, trial, until};

pub(crate) fn trials() -> Vec<Trial> {
    let root = nix::unistd::geteuid().is_root();
    vec![
        trial("init_forwards_and_reaps", forwards_and_reaps).with_ignored_flag(!root),
        trial("init_waiting_ends_by_a_signal", waiting).with_ignored_flag(!root),
        trial("init_status_and_loss", status_and_loss).with_ignored_flag(!root),
    ]
}

/// Starts the program as process 1 of a new namespace, and answers with its id out here.
fn start(script: &str, job: &[&str]) -> (Scene, i32) {
    let mut scene = Scene::new();
    let program = scene.program(script, job);
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    unshare.arg(program.get_program()).args(program.get_args());
    scene.spawn(unshare);
    let inside: i32 = scene.read("supervisor");
    assert_eq!(inside, 1);
    let init = until("process 1", || descend(scene.child_id()));
    (scene, init)
}

/// From `unshare`, or `setsid` before it, down to the first process of the new namespace.
fn descend(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let inside = status.lines().find(|line| line.starts_with("NSpid"))?.ends_with("\t1");
    if inside { Some(pid) } else { descend(*children(pid).first()?) }
}

fn forwards_and_reaps() {
    for script in ["ttl=5000 every=100", ""] {
        // An orphan that ends while the job runs, and then the job, which counts signals.
        let job = format!("(sleep 0.2 & echo) | cat >/dev/null; exec {} role:count", me().display());
        let (mut scene, init) = start(script, &["sh", "-c", &job]);
        let _: i32 = scene.read("job");
        std::thread::sleep(std::time::Duration::from_millis(400));
        let below = |pid: i32| children(pid).into_iter().filter_map(stat).collect::<Vec<_>>();
        let mut all = below(init);
        all.extend(children(init).into_iter().flat_map(below));
        assert!(all.iter().all(|fields| fields[0] != "Z"), "{script}: {all:?}");
        for (signal, seen) in
            [(Signal::SIGUSR1, "10 "), (Signal::SIGINT, "10 2 "), (Signal::SIGTERM, "10 2 15 ")]
        {
            kill(init, signal);
            until(seen, || (scene.read::<String>("signals") == seen).then_some(()));
        }
        assert_eq!(scene.code(), 9, "{script}");
    }
}

fn waiting() {
    for script in ["ttl=5000 wait=60000", "wait=60000"] {
        let (mut scene, init) = start(script, &["true"]);
        kill(init, Signal::SIGTERM);
        assert_eq!(scene.code(), 143, "{script}");
    }
}

fn status_and_loss() {
    assert_eq!(start("ttl=5000 every=100", &["sh", "-c", "sleep 0.5; exit 7"]).0.code(), 7);
    assert_eq!(start("ttl=900 grace=200", &["sh", "-c", "trap '' TERM; sleep 60 & wait; wait"]).0.code(), 76);
}
