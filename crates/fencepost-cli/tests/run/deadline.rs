//! The promise: whatever happens to us, nothing of the job lives when the deadline passes.

use libtest_mimic::Trial;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP};

use crate::scene::{Scene, TREE, alive, kill, me, trial, until};
use crate::sys;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("deadline_without_renewals", || without_renewals("")),
        trial("deadline_without_renewals_stubborn", || without_renewals("stubborn")),
        trial("deadline_without_a_grace", without_grace),
        trial("deadline_supervisor_killed", || supervisor_killed("")),
        trial("deadline_supervisor_killed_stubborn", || supervisor_killed("stubborn")),
        trial("deadline_supervisor_stopped", || supervisor_stopped("")),
        trial("deadline_supervisor_stopped_stubborn", || supervisor_stopped("stubborn")),
        trial("deadline_supervisors_group_killed", supervisors_group_killed),
        trial("renewals_keep_the_job_alive", renewals_keep_it_alive),
        trial("lost_kills_everything_first", lost),
        trial("guardian_killed", guardian_killed),
        trial("guardian_stopped_is_continued", guardian_stopped),
        trial("guardian_stopped_then_supervisor_killed", guardian_stopped_then_supervisor_killed),
        trial("guardian_and_supervisor_killed_at_once_spare_not_the_job", both_killed),
        trial("a_mistake_of_ours_ends_the_job", mistake),
        trial("survivors_are_left_alone", survivors),
        trial("max_hold_guarded", || max_hold("max=300 ttl=5000 every=50")),
        trial("max_hold_without_expiry", || max_hold("max=300")),
        trial("stopped_job_dies_in_time", stopped_job),
        trial("deadline_renewed_after_term", renewed_after_term),
        trial("deadline_of_a_job_that_always_forks", always_forks).with_ignored_flag(!perl()),
        trial("deadline_guardian_frozen", guardian_frozen).with_ignored_flag(freezer().is_none()),
    ]
}

fn tree(script: &str, how: &str) -> Scene {
    let me = me();
    let scene = Scene::start(script, &[me.to_str().expect("a plain path"), "role:tree", how]);
    scene.tree_is_up();
    scene
}

/// The last deadline that the program was given, once nothing of the job is left.
fn dead_before_the_deadline(scene: &Scene) {
    let died = scene.tree_is_dead();
    let deadline: u64 = scene.read("deadline");
    assert!(died < deadline, "alive {} ms after the deadline", (died - deadline) / 1_000_000);
}

fn without_renewals(how: &str) {
    let mut scene = tree("ttl=1200 grace=400 every=100 renewals=3", how);
    dead_before_the_deadline(&scene);
    // Not a moment too early either: a job that hears TERM has until the deadline less the grace.
    let grace = if how == "stubborn" { 150_000_000 } else { 450_000_000 };
    assert!(scene.last_stamp("job") + grace > scene.read::<u64>("deadline"));
    assert_eq!(scene.code(), 76);
}

fn without_grace() {
    let mut scene = tree("ttl=1200 grace=0 every=100 renewals=3", "stubborn");
    dead_before_the_deadline(&scene);
    assert_eq!(scene.code(), 76);
}

fn supervisor_killed(how: &str) {
    let scene = tree("ttl=3000 grace=300 every=100", how);
    let killed = sys::now();
    kill(scene.read("supervisor"), SIGKILL);
    dead_before_the_deadline(&scene);
    let took = (scene.last_stamp("daemon").saturating_sub(killed)) / 1_000_000;
    assert!(took < 350, "the job lived on for {took} ms");
}

fn supervisors_group_killed() {
    let scene = tree("ttl=3000 grace=300 every=100", "stubborn");
    kill(-scene.read::<i32>("supervisor"), SIGKILL);
    dead_before_the_deadline(&scene);
}

fn supervisor_stopped(how: &str) {
    let mut scene = tree("ttl=1000 grace=300 every=100", how);
    kill(scene.read("supervisor"), SIGSTOP);
    dead_before_the_deadline(&scene);
    kill(scene.read("supervisor"), SIGCONT);
    assert_eq!(scene.code(), 76);
}

fn renewals_keep_it_alive() {
    let mut scene = tree("ttl=400 grace=150 every=50", "");
    until("six lives", || (scene.read::<u64>("renewals") > 48).then_some(()));
    assert!(TREE.iter().all(|name| alive(scene.read(name))));
    std::fs::write(scene.path().join("enough"), "").expect("it can be written");
    assert_eq!(scene.code(), 0);
}

fn lost() {
    for how in ["", "half", "stubborn"] {
        for script in ["ttl=5000 every=100 lose=500 grace=300", "lose=500 grace=300"] {
            let mut scene = tree(script, how);
            let died = scene.tree_is_dead();
            assert!(died < scene.read("over"), "{script}: reported before the job was dead");
            assert_eq!(scene.code(), 76, "{script}");
        }
    }
}

fn guardian_killed() {
    let mut scene = tree("ttl=5000 grace=300 every=100", "stubborn");
    kill(scene.guardian(), SIGKILL);
    let died = scene.tree_is_dead();
    assert!(died < scene.read("over"));
    assert_eq!(scene.code(), 70);
}

fn guardian_stopped() {
    let mut scene = tree("ttl=1500 grace=600 every=100 renewals=4", "");
    kill(scene.guardian(), SIGSTOP);
    assert_eq!(scene.code(), 76);
    ended_by_term(&scene);
}

/// KILL, of whoever, would have come at most 100 ms before the deadline.
fn ended_by_term(scene: &Scene) {
    assert!(scene.read::<u64>("over") + 200_000_000 < scene.read("deadline"));
}

fn guardian_stopped_then_supervisor_killed() {
    let scene = tree("ttl=2000 grace=300 every=100", "stubborn");
    let (guardian, supervisor) = (scene.guardian(), scene.read("supervisor"));
    kill(supervisor, SIGSTOP);
    kill(guardian, SIGSTOP);
    kill(supervisor, SIGKILL);
    dead_before_the_deadline(&scene);
}

fn both_killed() {
    // Nobody is left to hold the job to anything: the kernel still kills its first process.
    let scene = tree("ttl=1000 grace=300 every=100", "stubborn");
    let (guardian, supervisor, job) = (scene.guardian(), scene.read("supervisor"), scene.read("job"));
    kill(supervisor, SIGSTOP);
    kill(guardian, SIGKILL);
    until("death", || (!alive(job)).then_some(()));
    kill(supervisor, SIGKILL);
}

fn mistake() {
    for script in ["panic=300", "ttl=5000 every=100 panic=300"] {
        let mut scene = tree(script, "stubborn");
        assert!(scene.tree_is_dead() < scene.read("over"), "{script}");
        assert_eq!(scene.code(), 70, "{script}");
    }
}

fn survivors() {
    for script in ["ttl=5000 every=100", "grace=200"] {
        let mut scene = Scene::new();
        let command = format!("{} role:leaf background >/dev/null 2>&1 & exit 5", me().display());
        let program = scene.program(script, &["sh", "-c", &command]);
        scene.spawn(program);
        assert_eq!(scene.code(), 5, "{script}");
        assert!(alive(scene.read("background")), "{script}");
    }
}

fn renewed_after_term() {
    let mut scene = tree("ttl=1000 grace=600 every=50", "stubborn");
    kill(scene.read("supervisor"), SIGSTOP);
    let deadline: u64 = scene.read("deadline");
    until("TERM", || (sys::now() > deadline - 500_000_000).then_some(()));
    kill(scene.read("supervisor"), SIGCONT);
    let died = scene.tree_is_dead();
    assert!(scene.read::<u64>("deadline") > deadline, "it was renewed again");
    assert!(died < deadline);
    assert_eq!(scene.code(), 76);
}

fn perl() -> bool {
    std::process::Command::new("perl").arg("-v").output().is_ok()
}

/// No process of it lives for more than a moment: each forks the next one and exits. A mistake of ours must not leave
/// that behind for ever, so it ends after some seconds.
fn always_forks() {
    let mut scene = Scene::new();
    let job = "perl -e 'fork and exit while time < $^T + 8'; exec sleep 60";
    let program = scene.program("ttl=800 grace=300", &["sh", "-c", job]);
    scene.spawn(program);
    assert_eq!(scene.code(), 76);
    assert!(scene.read::<u64>("over") < scene.read("deadline"));
    assert_eq!(scene.processes(), Vec::<i32>::new());
}

/// A cgroup v2 tree in which this user may make a group, to freeze a process in.
fn freezer() -> Option<std::path::PathBuf> {
    let group = format!("fencepost-test-{}", std::process::id());
    ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].iter().find_map(|root| {
        let group = std::path::Path::new(root).join(&group);
        std::fs::create_dir(&group).ok()?;
        let usable = group.join("cgroup.freeze").exists();
        std::fs::remove_dir(&group).ok()?;
        usable.then_some(group)
    })
}

/// A guardian that cannot run at all, and that no signal but KILL moves: the supervisor does its work.
fn guardian_frozen() {
    let mut scene = tree("ttl=1000 grace=300 every=100 renewals=3", "stubborn");
    let group = freezer().expect("the test is ignored without");
    std::fs::create_dir(&group).expect("it could be made before");
    std::fs::write(group.join("cgroup.procs"), scene.guardian().to_string()).expect("it exists");
    std::fs::write(group.join("cgroup.freeze"), "1").expect("it exists");
    dead_before_the_deadline(&scene);
    assert_eq!(scene.code(), 76);
    std::fs::remove_dir(&group).expect("it is empty");
}

fn max_hold(script: &str) {
    let mut scene = tree(&format!("{script} grace=300"), "stubborn");
    scene.tree_is_dead();
    assert_eq!(scene.code(), 76);
}

fn stopped_job() {
    let mut scene = tree("ttl=1000 grace=600 every=100 renewals=2", "");
    TREE.iter().for_each(|name| kill(scene.read(name), SIGSTOP));
    assert_eq!(scene.code(), 76);
    ended_by_term(&scene);
}
