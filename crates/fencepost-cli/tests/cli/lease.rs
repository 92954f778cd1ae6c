//! `run` over a lease: whatever happens to the backend or to us, everything of the job is dead before the lease ends.
//!
//! The job, its child and a descendant that left its session and ignores TERM stamp the time for as long as they live.
//! Their last stamp is compared with what was known *outside* of the command: nothing that was sent before the fault
//! can have kept the lease for longer than one `--ttl` after it. What the command itself recorded is judged, too.

use std::io::Read;

use fencepost_lab::checker::{Rule, Rules, judge};
use fencepost_lab::history::Kind;
use fencepost_lab::leased::Control;
use fencepost_lab::server::{Missing, etcd, ignored, redis, zookeeper};
use libtest_mimic::Trial;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};

use crate::scene::{kill, me, until};
use crate::stall;
use crate::sys;
use crate::world::{Running, World, full_pipe, pass};

/// A test that is run on each kind of lease.
type Test = (&'static str, fn(&str));

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [Test; 13] = [
        ("backend_frozen", frozen),
        ("backend_cut", cut),
        ("backend_cut_and_healed", healed),
        ("backend_wiped", wiped),
        ("backend_deletes_the_key", deleted),
        ("backend_expires_the_lease", expired),
        ("lost_before_the_command_starts", lost_before),
        ("forced_out", forced_out),
        ("supervisor_killed", supervisor_killed),
        ("supervisor_stopped", supervisor_stopped),
        ("backend_frozen_from_the_start", frozen_from_the_start),
        ("backend_frozen_while_waiting", frozen_while_waiting),
        ("backend_frozen_at_the_end", frozen_at_the_end),
    ];
    let each = |(name, test): Test| {
        let real = [
            ("redis", redis::installed().map(drop)),
            ("etcd", etcd::installed().map(drop)),
            ("zookeeper", zookeeper::installed().map(drop)),
        ];
        [("claim", Ok(())), ("session", Ok(()))]
            .into_iter()
            .chain(real)
            .map(move |(lease, found)| server(format!("lease_{name}_{lease}"), found, move || test(lease)))
    };
    let majority = [
        server("lease_majority_gone_etcd", etcd::installed().map(drop), etcd_without_a_majority),
        server(
            "lease_majority_gone_zookeeper",
            zookeeper::installed().map(drop),
            zookeeper_without_a_majority,
        ),
    ];
    tests.into_iter().flat_map(each).chain(majority).collect()
}

/// A test that needs a server, and is ignored where that is not installed.
fn server(
    name: impl Into<String>,
    found: Result<(), Missing>,
    test: impl FnOnce() + Send + 'static,
) -> Trial {
    let skip = ignored(&found);
    let run = move || {
        found?;
        test();
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(skip)
}

/// The job is dead before what its lock hangs on can end: the ensemble, which nobody can ask any more, may have a majority again
/// at that moment, and give the lock to another.
fn without_a_majority(url: String, pause: impl FnOnce()) {
    let world = World::at_url(url);
    let first = stubborn(&world, RUN);
    pause();
    let fault = sys::now();
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    died_in_time(&world, fault);
    is_in_order(&world, 1);
}

fn etcd_without_a_majority() {
    let options = etcd::Options { members: 3, ..etcd::Options::default() };
    let mut cluster = etcd::Etcd::start(options).expect("it starts");
    without_a_majority(cluster.url(), || {
        for member in [0, 1] {
            cluster.pause(member).expect("it runs");
        }
    });
}

fn zookeeper_without_a_majority() {
    let mut ensemble = zookeeper::Ensemble::start(&zookeeper::Options::default()).expect("it starts");
    without_a_majority(ensemble.url(), || {
        for server in [0, 1] {
            ensemble.server(server).pause().expect("it runs");
        }
    });
}

const TTL: u64 = 3_000_000_000;
const RUN: &str = "run --ttl 3s --history history --events events x --";

/// A lease so long that a job that ends soon after a loss was ended neither by its deadline nor by the next renewal.
const LONG: &str = "run --ttl 9s --grace 500ms --history history --events events x --";
const SOON: u64 = 2_500_000_000;

/// Starts a job that does not hear TERM. A renewal has moved the deadline, so that it is not the acquire's that ends it.
fn stubborn(world: &World, words: &str) -> Running {
    let running = world.start(words, &[me().to_str().expect("plain"), "role:tree", "stubborn"]);
    world.scene.tree_is_up();
    world.event("renewed");
    running
}

/// Starts a command that waits for the same lock, and notes when it runs.
fn next(world: &World) -> Running {
    let running = world.start(RUN, &[me().to_str().expect("plain"), "role:now", "next"]);
    world.waiters(1);
    running
}

/// The last deadline that the first run believed in.
fn deadline(world: &World) -> u64 {
    let history = world.history();
    let lane = &history.first().expect("it was recorded").lane;
    history
        .iter()
        .filter(|event| event.lane == *lane)
        .filter_map(|event| event.deadline_ns)
        .max()
        .expect("a lease")
}

/// When the last renewal of the first run that succeeded came back.
fn last_renewal(world: &World) -> u64 {
    let history = world.history();
    let lane = &history.first().expect("it was recorded").lane;
    let renewals = history.iter().filter(|event| event.lane == *lane && event.kind == Kind::Renew);
    renewals.filter(|event| event.deadline_ns.is_some()).map(|event| event.t_ns).max().expect("a renewal")
}

/// The job died in time after a fault that was in force at `fault`: answers when.
fn died_in_time(world: &World, fault: u64) -> u64 {
    let dead = world.scene.tree_is_dead();
    is_before(dead, fault + TTL, "end of the lease", fault);
    is_before(dead, last_renewal(world) + TTL, "lease's last renewal and its length", fault);
    is_before(dead, deadline(world), "deadline", fault);
    dead
}

/// The job died before a moment, or at most so long after it as the machine stood still since the fault.
fn is_before(dead: u64, end: u64, what: &str, fault: u64) {
    let (late, stalled) = (dead.saturating_sub(end) / 1_000_000, stall::since(fault) / 1_000_000);
    assert!(
        dead < end || late < stalled,
        "alive {late} ms after the {what}; the machine stood still for {stalled} ms"
    );
}

/// No promise of a lease was broken, and no two believed at once that they held the lock.
fn is_in_order(world: &World, grants: usize) {
    let rules = Rules::from([Rule::Leased, Rule::Tokens, Rule::Belief]);
    let verdict = judge(&world.history(), &rules).expect("a history");
    assert!(verdict.holds() && verdict.grants == grants, "{verdict}");
}

fn frozen(lease: &str) {
    let world = World::leased(lease);
    let first = stubborn(&world, RUN);
    let fault = freeze(&world);
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    died_in_time(&world, fault);
    is_in_order(&world, 1);
    world.nothing_is_left();
}

fn cut(lease: &str) {
    let world = World::leased(lease);
    let first = stubborn(&world, RUN);
    world.backend().proxy.cut();
    let fault = sys::now();
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    let dead = died_in_time(&world, fault);
    heal(&world);
    world.start(RUN, &[me().to_str().expect("plain"), "role:now", "next"]).said().quiet(0);
    assert!(world.scene.read::<u64>("next") > dead);
    is_in_order(&world, 2);
    world.nothing_is_left();
}

/// A process that is being started may hold a copy of the closed listener for a moment.
fn heal(world: &World) {
    until("the port to be free", || world.backend().proxy.heal().ok());
}

fn healed(lease: &str) {
    let world = World::leased(lease);
    let mut first = stubborn(&world, RUN);
    world.backend().proxy.cut();
    let fault = sys::now();
    world.event("suspect");
    heal(&world);
    until("a deadline past the fault's lease", || (deadline(&world) > fault + TTL).then_some(()));
    for name in ["job", "child", "daemon"] {
        until("a life past the fault's lease", || (world.scene.last_stamp(name) > fault + TTL).then_some(()));
    }
    assert!(first.is_running());
    std::fs::write(world.path("enough"), "").expect("the directory is ours");
    first.said().quiet(0);
    is_in_order(&world, 1);
}

fn wiped(lease: &str) {
    let world = World::leased(lease);
    let first = stubborn(&world, RUN);
    world.control(Control::Wipe);
    let fault = sys::now();
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    died_in_time(&world, fault);
    is_in_order(&world, 1);
    world.nothing_is_left();
}

fn deleted(lease: &str) {
    let world = World::leased(lease);
    let first = stubborn(&world, LONG);
    world.control(Control::Delete("x".into()));
    let fault = sys::now();
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    stopped_at_once(&world, fault);
}

/// A loss that the backend tells leaves the job no more than its grace.
fn stopped_at_once(world: &World, fault: u64) {
    let dead = world.scene.tree_is_dead();
    is_before(dead, fault + SOON, "loss, though it was told,", fault);
    assert_eq!(world.event_names().last().map(String::as_str), Some("released"));
    world.nothing_is_left();
}

fn expired(lease: &str) {
    let world = World::leased(lease);
    let first = stubborn(&world, LONG);
    world.control(Control::ExpireHolder("x".into()));
    let fault = sys::now();
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    stopped_at_once(&world, fault);
}

/// A reader of our stderr that is slow holds us up between the grant and the start of the command.
fn lost_before(lease: &str) {
    let world = World::leased(lease);
    let (mut reader, writer) = full_pipe();
    let mut command = world.command("run -v --ttl 9s --events events x -- touch ran", &[]);
    let mut first = command.stderr(writer).spawn().expect("setsid of util-linux is installed");
    drop(command);
    world.event("acquired");
    world.control(Control::Delete("x".into()));
    // The loss is told at once, or by a renewal after a third of the lease.
    pass(3500);
    std::thread::spawn(move || reader.read_to_end(&mut Vec::new()));
    assert_eq!(until("exit", || first.try_wait().expect("it is our child")).code(), Some(76));
    assert!(!world.path("ran").exists());
    assert_eq!(world.event_names(), ["waiting", "acquired", "lost", "ended", "released"]);
    world.nothing_is_left();
}

fn forced_out(lease: &str) {
    let world = World::leased(lease);
    let first = stubborn(&world, LONG);
    let held: u64 = world.status()["holder"]["token"].as_str().expect("a string").parse().expect("a token");
    let forced = world.ask("force-unlock -q --yes x", &[]).quiet(0);
    let fault = sys::now();
    assert!(forced.trim().parse::<u64>().expect("a token") > held);
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    stopped_at_once(&world, fault);
}

fn supervisor_killed(lease: &str) {
    let world = World::leased(lease);
    let first = stubborn(&world, RUN);
    let next = next(&world);
    kill(first.pid(), SIGKILL);
    let fault = sys::now();
    assert_eq!(first.said().code, -9);
    let dead = died_in_time(&world, fault);
    next.said().quiet(0);
    is_before(dead, world.scene.read("next"), "start of the next command", fault);
    is_in_order(&world, 2);
    until("no process", || (world.scene.processes().len() == world.backend().processes()).then_some(()));
}

fn supervisor_stopped(lease: &str) {
    let world = World::leased(lease);
    let first = stubborn(&world, RUN);
    let next = next(&world);
    kill(first.pid(), SIGSTOP);
    let fault = sys::now();
    let dead = died_in_time(&world, fault);
    next.said().quiet(0);
    is_before(dead, world.scene.read("next"), "start of the next command", fault);
    kill(first.pid(), SIGCONT);
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    is_in_order(&world, 2);
    world.nothing_is_left();
}

fn freeze(world: &World) -> u64 {
    world.backend().pause();
    sys::now()
}

fn frozen_from_the_start(lease: &str) {
    let world = World::leased(lease);
    let fault = freeze(&world);
    let said = world.ask("run --connect-timeout 500ms x -- touch ran", &[]);
    said.says(69, &["FENCEPOST_URL: the backend did not answer within 500ms"]);
    assert!(sys::now() < fault + 2_500_000_000 && !world.path("ran").exists());
}

/// The lease is long: whoever asks us to end must not have to wait for it, or for a backend that does not answer.
fn frozen_while_waiting(lease: &str) {
    let world = World::leased(lease);
    let _first = world.start("run --ttl 60s x sleep 60", &[]);
    until("the first", || world.is_held().then_some(()));
    let waiter = world.start("run --ttl 60s x -- touch ran", &[]);
    world.waiters(1);
    let fault = freeze(&world);
    kill(waiter.pid(), SIGTERM);
    waiter.said().quiet(143);
    assert!(sys::now() < fault + 3_000_000_000 && !world.path("ran").exists());
}

fn frozen_at_the_end(lease: &str) {
    let world = World::leased(lease);
    let job = ["sh", "-c", ": >up; while [ ! -e enough ]; do sleep .01; done; exit 5"];
    let first = world.start("run --ttl 60s --connect-timeout 1s --events events x --", &job);
    until("the job", || world.path("up").exists().then_some(()));
    let fault = freeze(&world);
    std::fs::write(world.path("enough"), "").expect("the directory is ours");
    first.said().says(5, &["the release of lock=x is not confirmed"]);
    assert!(sys::now() < fault + 5_000_000_000);
    assert_eq!(world.events().last().expect("an event")["outcome"], "unknown");
}
