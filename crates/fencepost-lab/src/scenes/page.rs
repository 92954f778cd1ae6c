//! What a person reads of a scene, piece by piece.

use std::time::Duration;

use super::act::Act;
use super::outcome::Outcome;
use super::programme::Scene;
use super::timeline::{Ink, Style, draw, wrap};
use super::words;
use crate::history::Event;

/// What the scene is about.
#[must_use]
pub fn scene_heading(scene: &Scene, style: &Style) -> String {
    wrap(scene.setting, style).join("\n")
}

/// What is about to be played: the `number`th of the scene's acts.
#[must_use]
pub fn act_heading(scene: &Scene, number: usize, style: &Style) -> String {
    let act = &scene.acts[number];
    let count = if scene.acts.len() > 1 { format!("{}. ", number + 1) } else { String::new() };
    let mut lines = vec![style.paint(&format!("{count}{}", act.title), Ink::Bold)];
    lines.extend(wrap(act.plan, style));
    lines.join("\n")
}

/// What was played: the picture, what came out, and whether that was expected.
#[must_use]
pub fn result(act: &Act, events: &[Event], outcome: &Outcome, ttl: Duration, style: &Style) -> String {
    let mut lines = vec![draw(events, ttl, style), String::new()];
    let harm = if outcome.verdict.lost > 0 { Ink::Bad } else { Ink::Good };
    for text in words::came_out(act, outcome) {
        lines.extend(wrap(&text, style).iter().map(|line| style.paint(line, harm)));
    }
    let expected = format!("Expected: {}. ", act.expected.text);
    if outcome.surprises.is_empty() {
        lines.extend(wrap(&(expected + "It came out so."), style));
    } else {
        let text = format!("{expected}It came out DIFFERENTLY: {}.", outcome.surprises.join("; "));
        lines.extend(wrap(&text, style).iter().map(|line| style.paint(line, Ink::Bad)));
        lines.extend(outcome.verdict.to_string().lines().map(str::to_owned));
    }
    lines.join("\n")
}

/// What to take home.
#[must_use]
pub fn moral(scene: &Scene, style: &Style) -> String {
    wrap(scene.moral, style).join("\n")
}
