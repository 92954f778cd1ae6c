//! `elect`: a command that runs in each of our terms, never outside of one, and ends with the last.

use libtest_mimic::Trial;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};

use fencepost_lab::checker::{Rule, Rules, judge};
use fencepost_lab::leased::Control;

use crate::scene::{alive, kill, stat, trial, until};
use crate::sys;
use crate::world::{Running, World, pass};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 11] = [
        ("elect_ends_with_its_command", ends_with_its_command),
        ("elect_leads_again_after_a_loss", leads_again),
        ("elect_leads_again_after_an_outage", leads_again_after_an_outage),
        ("elect_hands_over_to_the_next_candidate", hands_over),
        ("elect_steps_down_after_max_hold", steps_down),
        ("elect_paused_leader_learns_on_resume", paused),
        ("elect_told_to_end_while_it_loses", told_to_end),
        ("elect_guardian_killed", guardian_killed),
        ("elect_keeps_stdout_and_priority_over_terms", keeps_what_the_job_has),
        ("elect_value_is_shown", value_is_shown),
        ("elect_bad_input", bad_input),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

const TTL: u64 = 3_000_000_000;
const ELECT: &str = "elect --ttl 3s --grace 500ms --history history --events events x --";

/// Notes each start of the job and then lives until the note `enough` is there. It does not hear TERM.
const JOB: &str =
    "echo $FENCEPOST_TOKEN $$ >>terms; trap '' TERM; while [ ! -e $SCENE/enough ]; do sleep .01; done";

fn candidate(world: &World) -> Running {
    world.start(ELECT, &["sh", "-c", JOB])
}

/// The token and the process of each term so far, once there are so many.
fn terms(world: &World, count: usize) -> Vec<(u64, i32)> {
    until("terms", || {
        let text = std::fs::read_to_string(world.path("terms")).unwrap_or_default();
        let terms: Option<Vec<_>> = text
            .lines()
            .map(|line| {
                let (token, pid) = line.split_once(' ')?;
                Some((token.parse().ok()?, pid.parse().ok()?))
            })
            .collect();
        terms.filter(|terms| terms.len() >= count)
    })
}

fn enough(world: &World) {
    std::fs::write(world.path("enough"), "").expect("the directory is ours");
}

/// No promise of a lease was broken, and no two believed at once that they led.
fn is_in_order(world: &World, grants: usize) {
    let rules = Rules::from([Rule::Leased, Rule::Tokens, Rule::Belief]);
    let verdict = judge(&world.history(), &rules).expect("a history");
    assert!(verdict.holds() && verdict.grants == grants, "{verdict}");
}

fn each(test: impl Fn(World)) {
    for lease in ["claim", "session"] {
        test(World::leased(lease));
    }
}

fn ends_with_its_command() {
    for world in [World::local(), World::leased("claim"), World::leased("session")] {
        world.ask("elect x --", &["sh", "-c", "exit 7"]).quiet(7);
        world.ask("elect x -- no-such-command", &[]).says(127, &["command not found"]);
        assert!(!world.is_held());
        world.nothing_is_left();
    }
}

fn leads_again() {
    each(|world| {
        let leader = candidate(&world);
        let mut last = 0;
        for round in 1..=3 {
            let (token, pid) = terms(&world, round)[round - 1];
            assert!(token > last, "{token} follows {last}");
            last = token;
            world.control(Control::Delete("x".into()));
            until("the end of the term's job", || (!alive(pid)).then_some(()));
        }
        terms(&world, 4);
        enough(&world);
        let said = leader.said();
        assert_eq!(said.code, 0, "{said:?}");
        let told = "the lock was lost, so the command was stopped: command=sh; standing for election again";
        assert_eq!(said.err.matches(told).count(), 3, "{said:?}");
        is_in_order(&world, 4);
        world.nothing_is_left();
    });
}

/// The outage is longer than the time in which a backend has to answer the first campaign.
fn leads_again_after_an_outage() {
    each(|world| {
        let words = "elect --ttl 3s --connect-timeout 1s --grace 500ms --history history x --";
        let leader = world.start(words, &["sh", "-c", JOB]);
        let (_, pid) = terms(&world, 1)[0];
        world.backend().proxy.cut();
        let fault = sys::now();
        until("the end of the term's job", || (!alive(pid)).then_some(()));
        assert!(sys::now() < fault + TTL, "the job outlived its lease");
        pass(2500);
        until("the port to be free", || world.backend().proxy.heal().ok());
        terms(&world, 2);
        enough(&world);
        assert_eq!(leader.said().code, 0);
        is_in_order(&world, 2);
    });
}

/// A leader that is killed leaves no job behind when the next leads.
fn hands_over() {
    each(|world| {
        let first = candidate(&world);
        let (before, pid) = terms(&world, 1)[0];
        let second = candidate(&world);
        world.waiters(1);
        kill(first.pid(), SIGKILL);
        let (token, _) = terms(&world, 2)[1];
        assert!(token > before && !alive(pid), "the jobs of two terms ran at once");
        enough(&world);
        assert_eq!(second.said().code, 0);
        is_in_order(&world, 2);
    });
}

fn steps_down() {
    let world = World::leased("claim");
    let words = "elect --ttl 3s --grace 100ms --max-hold 500ms x --";
    let leader = world.start(words, &["sh", "-c", JOB]);
    let terms = terms(&world, 3);
    assert!(terms[0].0 < terms[1].0 && terms[1].0 < terms[2].0);
    enough(&world);
    assert_eq!(leader.said().code, 0);
    world.nothing_is_left();
}

fn paused() {
    each(|world| {
        let leader = candidate(&world);
        let (_, pid) = terms(&world, 1)[0];
        kill(leader.pid(), SIGSTOP);
        let fault = sys::now();
        until("the end of the term's job", || (!alive(pid)).then_some(()));
        assert!(sys::now() < fault + TTL, "the job outlived its lease");
        let second = candidate(&world);
        terms(&world, 2);
        kill(leader.pid(), SIGCONT);
        // It finds out, and stands in line.
        world.waiters(1);
        enough(&world);
        assert_eq!(second.said().code, 0);
        assert_eq!(leader.said().code, 0);
        is_in_order(&world, 3);
        world.nothing_is_left();
    });
}

/// Whoever is told to end does not stand for election again.
fn told_to_end() {
    let world = World::leased("claim");
    let leader = candidate(&world);
    let (_, pid) = terms(&world, 1)[0];
    kill(leader.pid(), SIGTERM);
    pass(100);
    assert!(alive(pid), "this job does not hear TERM");
    world.control(Control::Delete("x".into()));
    leader.said().says(76, &["the lock was lost, so the command was stopped: command=sh"]);
    assert_eq!(terms(&world, 1).len(), 1);
    let waiter = world.start("run x --", &["sleep", "60"]);
    until("the holder", || world.is_held().then_some(()));
    let second = candidate(&world);
    world.waiters(1);
    kill(second.pid(), SIGTERM);
    second.said().quiet(143);
    drop(waiter);
}

/// Without what holds the job to its deadline there is no further term.
fn guardian_killed() {
    let world = World::leased("claim");
    let leader = candidate(&world);
    let (_, pid) = terms(&world, 1)[0];
    let guardian: i32 = stat(pid).expect("it lives")[1].parse().expect("a number");
    assert_ne!(guardian, leader.pid());
    kill(guardian, SIGKILL);
    let said = leader.said();
    assert_eq!(said.code, 70, "{said:?}");
    until("the end of the job", || (!alive(pid)).then_some(()));
    world.nothing_is_left();
}

fn keeps_what_the_job_has() {
    let world = World::leased("claim");
    let job = "read line; echo $FENCEPOST_TOKEN $$ >>terms; nice >>nices; echo term; \
               while [ ! -e $SCENE/enough ]; do sleep .01; done";
    let mut command = world.command("elect --ttl 3s --grace 100ms x --", &["sh", "-c", job]);
    std::fs::write(world.path("lines"), "one\ntwo\n").expect("the directory is ours");
    command.stdin(std::fs::File::open(world.path("lines")).expect("it was written"));
    let leader = world.spawn(command);
    terms(&world, 1);
    world.control(Control::Delete("x".into()));
    terms(&world, 2);
    enough(&world);
    let said = leader.said();
    assert_eq!((said.code, said.out.as_str()), (0, "term\nterm\n"), "{said:?}");
    let nices = std::fs::read_to_string(world.path("nices")).expect("it was written");
    let nices: Vec<_> = nices.lines().collect();
    assert!(nices.len() == 2 && nices[0] == nices[1], "the priorities were {nices:?}");
}

fn value_is_shown() {
    for world in [World::local(), World::leased("session")] {
        let leader = world.start("elect --value 10.0.0.7:4000 x --", &["sh", "-c", JOB]);
        terms(&world, 1);
        assert_eq!(world.status()["holder"]["owner"]["value"], "10.0.0.7:4000");
        assert!(world.ask("status x", &[]).quiet(0).contains(", value \"10.0.0.7:4000\""));
        enough(&world);
        leader.said().quiet(0);
    }
}

fn bad_input() {
    let world = World::local();
    let long = "x".repeat(1025);
    world
        .ask("elect", &["--value", &long, "x", "touch", "ran"])
        .says(64, &["the value has 1025 bytes; at most 1024"]);
    world
        .ask("elect", &["--value", "a\nb", "x", "touch", "ran"])
        .says(64, &["the value", "control character"]);
    world.ask("elect x", &[]).says(64, &["CMD"]);
    world.ask("elect --require consensus x -- touch ran", &[]).says(78, &["--require", "level=consensus"]);
    assert!(!world.path("ran").exists());
}
