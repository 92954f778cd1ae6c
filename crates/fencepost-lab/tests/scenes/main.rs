//! Every scene comes out as expected, and not as another: on real servers, with real processes.
//!
//! The binary is also the worker of the scenes.

mod picture;

use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::time::Duration;

use fencepost_lab::history::{Event, Kind, Outcome, Phase};
use fencepost_lab::scenes::{Act, Cast, DEMO, Late, SCENES, Stage, Trouble, judge, play, work};
use fencepost_lab::server::{ignored, postgres, redis};
use libtest_mimic::{Arguments, Failed, Trial};

/// Long enough for a busy machine, short enough to wait for.
const TTL: Duration = Duration::from_secs(1);

const WORKER: &str = "role:worker";

type Test = fn() -> Result<(), Failed>;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(WORKER) {
        return match work() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let skip = ignored(&redis::installed()) || ignored(&postgres::installed());
    let tests: [(&str, Test); 4] = [
        ("every_act_comes_out_as_expected", as_expected),
        ("no_act_comes_out_as_another", not_as_another),
        ("a_gate_that_lets_a_stale_write_through_is_caught", let_through),
        ("a_scene_that_is_broken_off_says_so", broken_off),
    ];
    let trials = tests.into_iter().map(|(name, test)| Trial::test(name, test).with_ignored_flag(skip));
    libtest_mimic::run(&Arguments::from_args(), trials.chain(picture::trials()).collect()).exit_code()
}

/// Every act with its history, played once.
fn played() -> &'static Vec<(Act, Vec<Event>)> {
    static PLAYED: OnceLock<Vec<(Act, Vec<Event>)>> = OnceLock::new();
    PLAYED.get_or_init(|| {
        let acts: Vec<Act> = SCENES.iter().chain([&DEMO]).flat_map(|scene| scene.acts).copied().collect();
        with_cast(&|| false, |cast| {
            let mut stage = Stage::set(&acts, cast).expect("the servers start");
            let of = |act: &Act| (*act, play(act, TTL, &mut stage, cast).expect(act.title));
            acts.iter().map(of).collect()
        })
    })
}

fn with_cast<T>(interrupted: &dyn Fn() -> bool, run: impl FnOnce(&Cast<'_>) -> T) -> T {
    let worker = || {
        let mut command = Command::new("/proc/self/exe");
        command.arg(WORKER);
        command
    };
    run(&Cast { worker: &worker, interrupted, tell: &|_| () })
}

fn as_expected() -> Result<(), Failed> {
    for (act, events) in played() {
        let outcome = judge(act, events)?;
        assert!(outcome.surprises.is_empty(), "{}: {:?}\n{}", act.title, outcome.surprises, outcome.verdict);
        let late = outcome.late.map(|late| late.what);
        assert_eq!(late, act.expected.late, "{}", act.title);
    }
    Ok(())
}

/// The verdict of each act can fail: it does on the history of every act that is not expected to end alike.
fn not_as_another() -> Result<(), Failed> {
    let end = |act: &Act| (act.expected.late, act.expected.lost, act.expected.broken, act.lock);
    let mut compared = 0;
    for (act, _) in played() {
        for (other, events) in played().iter().filter(|(other, _)| end(other) != end(act)) {
            let outcome = judge(act, events)?;
            assert!(!outcome.surprises.is_empty(), "{} as {}", other.title, act.title);
            compared += 1;
        }
    }
    assert!(compared >= 12, "{compared}");
    Ok(())
}

fn let_through() -> Result<(), Failed> {
    let gated = played().iter().filter(|(act, _)| act.expected.late == Some(Late::Rejected));
    let mut broken = 0;
    for (act, events) in gated {
        let mut events = events.clone();
        let stale = |event: &&mut Event| event.kind == Kind::Write && event.outcome == Some(Outcome::Stale);
        let write = events.iter_mut().find(stale).expect("it was rejected");
        write.outcome = Some(Outcome::Ok);
        let outcome = judge(act, &events)?;
        assert!(outcome.surprises.iter().any(|text| text.contains("gate")), "{:?}", outcome.surprises);
        broken += 1;
    }
    assert!(broken >= 2);
    Ok(())
}

fn broken_off() -> Result<(), Failed> {
    let history = with_cast(&|| true, |cast| {
        let mut stage = Stage::set(DEMO.acts, cast)?;
        play(&DEMO.acts[0], TTL, &mut stage, cast)
    });
    assert!(matches!(history, Err(Trouble::Interrupted)), "{history:?}");
    let granted = |event: &Event| event.kind == Kind::Acquire && event.phase == Some(Phase::Return);
    assert!(played().iter().any(|(_, events)| events.iter().any(granted)));
    Ok(())
}
