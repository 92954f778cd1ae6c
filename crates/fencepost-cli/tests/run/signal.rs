//! Signals: forwarded once to a job, an end to waiting before there is one.

use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use nix::sys::signal::Signal::{self, SIGCONT};

use crate::scene::{Scene, alive, kill, me, trial, until};
use crate::sys;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("signals_are_forwarded_once", forwarded),
        trial("waiting_ends_by_a_signal", waiting),
        trial("waiting_under_nohup_goes_on", nohup),
        trial("job_stopped_from_outside_is_renewed", stopped_from_outside),
        trial("group_members_get_forwarded_signals", group),
    ]
}

fn forwarded() {
    for script in ["ttl=5000 every=100", ""] {
        let me = me();
        let mut scene = Scene::start(script, &[me.to_str().expect("a plain path"), "role:count"]);
        let _: i32 = scene.read("job");
        let mut expected = String::new();
        // Every one that a person or a service manager may send, and a realtime one.
        for signal in [1, 2, 3, 10, 12, 14, 28, 18, 37, 15] {
            sys::kill(scene.read("supervisor"), signal).expect("it runs");
            expected += &format!("{signal} ");
            until("the signal", || (scene.read::<String>("signals") == expected).then_some(()));
        }
        assert_eq!(scene.code(), 9, "{script}");
        assert_eq!(scene.read::<String>("signals"), expected, "{script}");
    }
}

fn waiting() {
    for script in ["ttl=5000 wait=60000", "wait=60000"] {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGHUP] {
            let mut scene = Scene::start(script, &["true"]);
            kill(scene.read("supervisor"), signal);
            assert_eq!(scene.code(), 128 + signal as i32);
            assert_eq!(scene.read::<String>("claim"), "dropped");
        }
    }
}

fn nohup() {
    let mut scene = Scene::new();
    let program = scene.program("ttl=5000 every=100 wait=400", &["true"]);
    let mut nohup = Command::new("nohup");
    nohup.arg(program.get_program()).args(program.get_args());
    scene.spawn(nohup);
    kill(scene.read("supervisor"), Signal::SIGHUP);
    assert_eq!(scene.code(), 0);
}

fn stopped_from_outside() {
    let me = me();
    let mut scene =
        Scene::start("ttl=600 grace=200 every=50", &[me.to_str().expect("plain"), "role:leaf", "job"]);
    let _ = scene.last_stamp("job");
    let before: u64 = scene.read("renewals");
    kill(scene.read("supervisor"), Signal::SIGTSTP);
    let job: i32 = scene.read("job");
    until("the stop", || crate::scene::stat(job).filter(|fields| fields[0] == "T"));
    until("renewals past the first lease", || (scene.read::<u64>("renewals") > before + 20).then_some(()));
    assert!(alive(job));
    kill(scene.read("supervisor"), SIGCONT);
    until("going on", || crate::scene::stat(job).filter(|fields| fields[0] != "T"));
    std::fs::write(scene.path().join("enough"), "").expect("it can be written");
    assert_eq!(scene.code(), 0);
}

fn group() {
    let me = me();
    let shell = format!("trap 'wait; exit 3' USR1; {} role:count & wait; exit 4", me.display());
    let mut scene = Scene::start("ttl=5000 every=100", &["sh", "-c", &shell]);
    let _: i32 = scene.read("job");
    std::thread::sleep(Duration::from_millis(100));
    kill(scene.read("supervisor"), Signal::SIGUSR1);
    until("the signal", || (scene.read::<String>("signals") == "10 ").then_some(()));
    kill(scene.read("job"), Signal::SIGTERM);
    assert_eq!(scene.code(), 3);
}
