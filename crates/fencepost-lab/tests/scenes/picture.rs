//! The picture, of a history that is always the same.

use std::time::Duration;

use fencepost_lab::history::{Event, Kind, Outcome, Phase};
use fencepost_lab::scenes::timeline::{NARROWEST, Style, draw};
use libtest_mimic::{Failed, Trial};

use crate::Test;

const PLAIN: Style = Style { width: 72, colour: false, unicode: false };

pub(super) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 4] = [
        ("picture_is_what_happened", is_what_happened),
        ("picture_fits_every_width", fits_every_width),
        ("picture_has_colour_only_where_asked", colour),
        ("picture_of_little_or_much_is_drawn", little_or_much),
    ];
    tests.into_iter().map(|(name, test)| Trial::test(name, test)).collect()
}

/// A is stopped from 0.5 s to 3 s, with a lease of two.
fn history() -> Vec<Event> {
    let at = |millis: u64, lane: &str, kind| Event {
        lock: Some("x".into()),
        claim: Some(lane.into()),
        ..Event::at(7_000_000_000 + millis * 1_000_000, lane, kind)
    };
    let invoke = |millis, lane, kind| Event { phase: Some(Phase::Invoke), ..at(millis, lane, kind) };
    let ok = |millis, lane, kind| Event {
        phase: Some(Phase::Return),
        outcome: Some(Outcome::Ok),
        ..at(millis, lane, kind)
    };
    let note = |text: &str, event| Event { note: Some(text.into()), ..event };
    let granted = |millis: u64, lane, token| Event {
        token: Some(token),
        deadline_ns: Some(7_000_000_000 + (millis + 2000) * 1_000_000),
        ..ok(millis, lane, Kind::Acquire)
    };
    vec![
        invoke(0, "A", Kind::Acquire),
        granted(0, "A", 1_795_991_502_024_500),
        note("100", ok(20, "A", Kind::Read)),
        note("SIGSTOP", at(500, "A", Kind::Fault)),
        invoke(520, "B", Kind::Acquire),
        granted(2010, "B", 1_795_991_504_033_527),
        note("100", ok(2020, "B", Kind::Read)),
        note("99", invoke(2500, "B", Kind::Write)),
        note("99", ok(2510, "B", Kind::Write)),
        invoke(2520, "B", Kind::Release),
        ok(2530, "B", Kind::Release),
        note("SIGCONT", at(3000, "A", Kind::Fault)),
        note("99", invoke(3010, "A", Kind::Write)),
        note("99", Event { outcome: Some(Outcome::Stale), ..ok(3020, "A", Kind::Write) }),
        invoke(3030, "A", Kind::Release),
        ok(3200, "A", Kind::Release),
    ]
}

fn drawn(style: &Style) -> String {
    draw(&history(), Duration::from_secs(2), style)
}

fn is_what_happened() -> Result<(), Failed> {
    let expected = include_str!("picture.txt");
    let got = drawn(&PLAIN);
    assert_eq!(got.trim_end(), expected.trim_end(), "\n{got}");
    Ok(())
}

fn fits_every_width() -> Result<(), Failed> {
    for width in 0..200 {
        for unicode in [false, true] {
            let text = drawn(&Style { width, unicode, ..PLAIN });
            for line in text.lines() {
                assert!(line.chars().count() <= width.max(NARROWEST), "{width}\n{text}");
                assert!(unicode || line.is_ascii(), "{line}");
            }
            for word in
                ["faults", "worker A", "worker B", "stock", "token", "reads 100", "writes 99", "99 (A)"]
            {
                assert!(text.contains(word), "no {word} at {width}\n{text}");
            }
        }
    }
    Ok(())
}

fn colour() -> Result<(), Failed> {
    assert!(!drawn(&PLAIN).contains('\x1b'));
    let coloured = drawn(&Style { colour: true, ..PLAIN });
    assert!(coloured.contains("\x1b[32m"));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, code)) = rest.split_once('\x1b') {
        plain += before;
        rest = code.split_once('m').expect("the code ends").1;
    }
    assert_eq!(plain + rest, drawn(&PLAIN));
    Ok(())
}

fn little_or_much() -> Result<(), Failed> {
    let lines = |events: &[Event]| draw(events, Duration::from_secs(2), &PLAIN).lines().count();
    assert!(lines(&[]) >= 2);
    assert!(lines(&history()[..1]) >= 2);
    let mut long = history();
    long.iter_mut().for_each(|event| event.t_ns *= 3600);
    assert!(lines(&long) >= 2);
    Ok(())
}
