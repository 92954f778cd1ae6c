//! What there is to draw: bars and notes, in time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::row::Ink;
use crate::history::{Event, Kind, Outcome, Phase};
use crate::scenes::words::{CONTINUED, STOPPED};

/// Begins the note of a write that was accepted.
pub(super) const ACCEPTED: char = '●';
/// Begins the note of one that was rejected.
pub(super) const REJECTED: char = '✗';

/// A history as lanes.
pub(super) struct Picture {
    /// The first and the last moment that are drawn.
    pub(super) span: (u64, u64),
    pub(super) faults: Vec<Note>,
    pub(super) clients: Vec<Client>,
    pub(super) stock: Vec<Note>,
}

/// The lane of one client.
pub(super) struct Client {
    pub(super) name: String,
    /// From when to when, in order of time.
    pub(super) bars: Vec<(u64, u64, Bar)>,
    pub(super) notes: Vec<Note>,
}

/// A remark at a moment.
pub(super) struct Note {
    pub(super) at: u64,
    pub(super) text: String,
    pub(super) ink: Ink,
}

/// What a client is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bar {
    Works,
    Waits,
    Holds,
    Stopped,
    StoppedLapsed,
    Lapsed,
}

impl Bar {
    pub(super) const ALL: [Self; 6] =
        [Self::Works, Self::Waits, Self::Holds, Self::Stopped, Self::StoppedLapsed, Self::Lapsed];

    pub(super) fn sign(self, unicode: bool) -> char {
        let [sign, ascii] = match self {
            Self::Works => ['▬', '='],
            Self::Waits => ['╌', '-'],
            Self::Holds => ['█', '#'],
            Self::Stopped => ['▒', ':'],
            Self::StoppedLapsed => ['░', '.'],
            Self::Lapsed => ['▞', '!'],
        };
        if unicode { sign } else { ascii }
    }

    pub(super) fn ink(self) -> Ink {
        match self {
            Self::Works | Self::Holds => Ink::Good,
            Self::Waits | Self::StoppedLapsed => Ink::Dim,
            Self::Stopped => Ink::Warn,
            Self::Lapsed => Ink::Bad,
        }
    }

    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Works => "works without a lock",
            Self::Waits => "waits for the lock",
            Self::Holds => "holds it",
            Self::Stopped => "stopped",
            Self::StoppedLapsed => "stopped, lease over",
            Self::Lapsed => "goes on, lease over",
        }
    }
}

impl Picture {
    pub(super) fn of(events: &[Event], lease: Duration) -> Self {
        let mut events: Vec<&Event> = events.iter().collect();
        events.sort_by_key(|event| event.t_ns);
        let first = events.first().map_or(0, |event| event.t_ns);
        let last = events.last().map_or(0, |event| event.t_ns);
        let tokens = Tokens::of(&events);
        let mut lanes: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in events.iter().filter(|event| event.kind != Kind::Final) {
            lanes.entry(&event.lane).or_default().push(event);
        }
        let traces: Vec<Trace<'_>> =
            lanes.iter().map(|(name, events)| Trace::of(name, events, lease, last)).collect();
        let mut stock = Vec::new();
        let full = events.iter().find(|event| event.kind == Kind::Read && event.phase == Some(Phase::Return));
        stock.extend(full.and_then(|event| event.note.clone()).map(|text| Note {
            at: first,
            text,
            ink: Ink::Plain,
        }));
        let mut answered: Vec<Note> = traces.iter().flat_map(Trace::answers).collect();
        answered.sort_by_key(|note| note.at);
        stock.extend(answered);
        Self {
            // A little room behind the last event, for what is drawn there.
            span: (first, last + (last - first) / 20),
            faults: events.iter().filter_map(|event| fault(event)).collect(),
            clients: traces.iter().map(|trace| trace.client(&tokens)).collect(),
            stock,
        }
    }
}

fn fault(event: &Event) -> Option<Note> {
    let text = match event.note.as_deref().filter(|_| event.kind == Kind::Fault)? {
        STOPPED => format!("▼ {} stopped", event.lane),
        CONTINUED => format!("▲ {} goes on", event.lane),
        other => format!("▼ {} {other}", event.lane),
    };
    Some(Note { at: event.t_ns, text, ink: Ink::Warn })
}

/// What is known about one client, who takes the lock once.
struct Trace<'a> {
    name: &'a str,
    events: &'a [&'a Event],
    /// When it asked for the lock, or began to work without one.
    began: u64,
    granted: Option<u64>,
    lease_end: u64,
    ended: u64,
    stopped: (u64, u64),
}

impl<'a> Trace<'a> {
    fn of(name: &'a str, events: &'a [&'a Event], lease: Duration, last: u64) -> Self {
        let find =
            |kind, phase| events.iter().find(move |event| event.kind == kind && event.phase == Some(phase));
        let at = |kind, phase| find(kind, phase).map(|event| event.t_ns);
        let fault = |what: &str| {
            events.iter().find(|event| event.note.as_deref() == Some(what)).map(|event| event.t_ns)
        };
        let granted = find(Kind::Acquire, Phase::Return).filter(|event| event.outcome == Some(Outcome::Ok));
        let asked = at(Kind::Acquire, Phase::Invoke);
        let deadlines = events.iter().filter_map(|event| event.deadline_ns);
        let from_granting = granted.map(|event| event.t_ns.saturating_add(lease.as_nanos() as u64));
        let stopped = fault(STOPPED).unwrap_or(u64::MAX);
        Self {
            name,
            events,
            began: asked.or(at(Kind::Read, Phase::Invoke)).unwrap_or(last),
            granted: granted.map(|event| event.t_ns),
            lease_end: deadlines.max().or(from_granting).unwrap_or(u64::MAX),
            ended: at(Kind::Release, Phase::Invoke).or(at(Kind::Write, Phase::Return)).unwrap_or(last),
            stopped: (stopped, fault(CONTINUED).unwrap_or(last)),
        }
    }

    fn client(&self, tokens: &Tokens) -> Client {
        Client { name: self.name.into(), bars: self.bars(), notes: self.notes(tokens) }
    }

    fn bars(&self) -> Vec<(u64, u64, Bar)> {
        let Some(granted) = self.granted else {
            return vec![(self.began, self.ended, if self.waits() { Bar::Waits } else { Bar::Works })];
        };
        let mut bars = vec![(self.began, granted, Bar::Waits)];
        let mut borders = vec![granted, self.lease_end, self.stopped.0, self.stopped.1, self.ended];
        borders.retain(|at| (granted..=self.ended).contains(at));
        borders.sort_unstable();
        for pair in borders.windows(2).filter(|pair| pair[0] < pair[1]) {
            let stopped = (self.stopped.0..self.stopped.1).contains(&pair[0]);
            let bar = match (stopped, pair[0] >= self.lease_end) {
                (false, false) => Bar::Holds,
                (true, false) => Bar::Stopped,
                (true, true) => Bar::StoppedLapsed,
                (false, true) => Bar::Lapsed,
            };
            bars.push((pair[0], pair[1], bar));
        }
        bars
    }

    fn waits(&self) -> bool {
        self.events.iter().any(|event| event.kind == Kind::Acquire)
    }

    fn notes(&self, tokens: &Tokens) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut note = |at, text, ink| notes.push(Note { at, text, ink });
        for event in self.events {
            let value = event.note.as_deref().unwrap_or_default();
            match (event.kind, event.phase) {
                (Kind::Acquire, Some(Phase::Return)) => {
                    let token = event.token.map(|token| format!("token {}", tokens.short(token)));
                    token.into_iter().for_each(|text| note(event.t_ns, text, Ink::Plain));
                }
                (Kind::Read, Some(Phase::Return)) => note(event.t_ns, format!("reads {value}"), Ink::Plain),
                (Kind::Write, Some(Phase::Invoke)) => note(event.t_ns, format!("writes {value}"), Ink::Plain),
                _ => {}
            }
        }
        if self.lease_end < self.ended {
            note(self.lease_end, "lease over".into(), Ink::Dim);
        }
        notes.sort_by_key(|note| note.at);
        notes
    }

    /// What became of its writes, as the stock sees them.
    fn answers(&self) -> impl Iterator<Item = Note> {
        let writes = self
            .events
            .iter()
            .filter(|event| event.kind == Kind::Write && event.phase == Some(Phase::Return));
        writes.filter_map(|event| {
            let (name, value) = (self.name, event.note.as_deref().unwrap_or_default());
            let late = event.t_ns >= self.lease_end;
            let (text, ink) = match event.outcome? {
                Outcome::Ok => {
                    (format!("{ACCEPTED} {value} ({name})"), if late { Ink::Bad } else { Ink::Good })
                }
                Outcome::Stale => (format!("{REJECTED} {value} ({name})"), Ink::Good),
                _ => return None,
            };
            Some(Note { at: event.t_ns, text, ink })
        })
    }
}

/// Tokens without the digits that all of them begin with.
struct Tokens {
    common: usize,
}

impl Tokens {
    fn of(events: &[&Event]) -> Self {
        let texts: Vec<String> =
            events.iter().filter_map(|event| event.token).map(|token| token.to_string()).collect();
        let common = texts.first().map_or(0, |first| {
            let shared = |text: &String| {
                first.bytes().zip(text.bytes()).take_while(|(one, other)| one == other).count()
            };
            let same_length = texts.iter().all(|text| text.len() == first.len());
            if same_length { texts.iter().map(shared).min().unwrap_or(0) } else { 0 }
        });
        // A few digits more than differ, so that it still looks like a number.
        Self { common: common.saturating_sub(2) }
    }

    fn short(&self, token: u64) -> String {
        let text = token.to_string();
        match self.common {
            0..=3 => text,
            common => format!("…{}", &text[common.min(text.len() - 3)..]),
        }
    }
}
