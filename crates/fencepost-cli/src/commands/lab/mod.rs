//! `fencepost lab` and `fencepost demo`: failures of locks, played on real servers, and how a gate prevents them.

mod interrupt;
mod screen;

use std::{process::Command, time::Duration};

use fencepost_lab::scenes::{
    self, Cast, DEMO, ORDER, PAUSE, PAUSE_GATED, PAUSE_WRITES_ONLY, SCENES, Scene, Stage, Trouble,
};

use crate::{
    args::{GateOfScene as Gate, Global, Lab, LabScene, Pause},
    exit, report,
};
use interrupt::Interrupt;
use screen::Screen;

/// How long locks last where nothing else was asked for.
const TTL: Duration = Duration::from_secs(2);

pub(crate) fn lab(global: &Global, args: &Lab) -> u8 {
    match &args.scene {
        None | Some(LabScene::List) => list(global),
        Some(LabScene::Order) => play(&ORDER, TTL, global),
        Some(LabScene::Pause(Pause { gate, ttl })) => play(of_gate(*gate), *ttl, global),
        Some(LabScene::Worker) => match scenes::work() {
            Ok(()) => exit::OK,
            Err(why) => report::fail(exit::INTERNAL, why),
        },
    }
}

pub(crate) fn demo(global: &Global) -> u8 {
    play(&DEMO, TTL, global)
}

fn of_gate(gate: Gate) -> &'static Scene {
    match gate {
        Gate::Off => &PAUSE,
        Gate::On => &PAUSE_GATED,
        Gate::WritesOnly => &PAUSE_WRITES_ONLY,
    }
}

fn list(global: &Global) -> u8 {
    let screen = Screen::new(global);
    for scene in SCENES.iter() {
        screen.print(&format!("fencepost lab {:26}{}", scene.name, scene.about));
    }
    screen.print(&format!("fencepost {:30}{}", DEMO.name, DEMO.about));
    exit::OK
}

fn play(scene: &Scene, ttl: Duration, global: &Global) -> u8 {
    if global.url.is_some() {
        return report::fail(exit::USAGE, "--url: a scene starts servers of its own; leave the option away");
    }
    let interrupt = match Interrupt::watch() {
        Ok(interrupt) => interrupt,
        Err(error) => return report::fail(exit::INTERNAL, format_args!("cannot wait for signals: {error}")),
    };
    let screen = Screen::new(global);
    let worker = || {
        // The very program that runs, also if its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.args(["lab", "worker"]);
        command
    };
    let interrupted = || interrupt.number().is_some();
    let cast = Cast { worker: &worker, interrupted: &interrupted, tell: &|text| screen.tell(text) };
    let played = perform(scene, ttl, &cast, &screen);
    screen.clear();
    match (played, interrupt.number()) {
        // What fails then may have been told to end, too.
        (Err(_), Some(signal)) => exit::of_signal(signal),
        (Err(why @ Trouble::Missing(_)), _) => report::fail(exit::UNREACHABLE, why),
        (Err(why), _) => report::fail(exit::INTERNAL, why),
        (Ok(true), _) => exit::OK,
        (Ok(false), _) => report::fail(exit::UNEXPECTED, "the scene did not come out as expected"),
    }
}

/// Plays every act, and answers whether all came out as expected.
fn perform(scene: &Scene, ttl: Duration, cast: &Cast<'_>, screen: &Screen) -> Result<bool, Trouble> {
    let mut stage = Stage::set(scene.acts, cast)?;
    let mut as_expected = true;
    screen.print(&scenes::scene_heading(scene, &screen.style));
    screen.print("");
    for (number, act) in scene.acts.iter().enumerate() {
        screen.print(&scenes::act_heading(scene, number, &screen.style));
        screen.print("");
        let events = scenes::play(act, ttl, &mut stage, cast)?;
        let outcome = scenes::judge(act, &events).map_err(|broken| Trouble::Failed(broken.to_string()))?;
        as_expected &= outcome.surprises.is_empty();
        screen.print(&scenes::result(act, &events, &outcome, ttl, &screen.style));
        screen.print("");
    }
    screen.print(&scenes::moral(scene, &screen.style));
    Ok(as_expected)
}
