//! What happened in a run: one event per line of JSON, written by every process that took part.
//!
//! ```text
//! {"t_ns":52000,"lane":"p3","kind":"acquire","phase":"invoke","lock":"orders/4821","claim":"c9"}
//! {"t_ns":61000,"lane":"p3","kind":"acquire","phase":"return","lock":"orders/4821","claim":"c9","outcome":"ok","token":"17","deadline_ns":9061000}
//! {"t_ns":70000,"lane":"db","kind":"write","lock":"orders/4821","claim":"c9","outcome":"stale","token":"17","highest":"18","update":"u5"}
//! {"t_ns":90000,"lane":"db","kind":"final","lock":"orders/4821","state":["u1","u4"]}
//! ```
//!
//! - `t_ns` and `deadline_ns` come from one clock, [`crate::clock::now_ns`]. Take the time of an invocation *before*
//!   the call and that of a return *after* it. Equal times count as concurrent.
//! - An operation is two events, `invoke` and `return`; the outcome stands on the return. An event without a phase
//!   is a moment: a fault, a loss, or what a *resource* decided, written by the resource itself.
//! - A lane runs one operation of a kind on a lock at a time, unless the updates have names.
//! - A claim is one attempt to get one lock. Its token stands on the return of `acquire`.
//! - A `write` or `read` carries a token only if the token was shown to a gate.
//! - `update` names a change to the resource; `state` of the `final` event lists those found there in the end.
//! - When an owner is killed, the killer writes the `release` invocation of its claim; no return follows. From then
//!   on the owner believes nothing, and the lock may or may not be free.
//! - Tokens are strings, because a JSON number above 2^53 is not safe in every reader. Absent fields are left out,
//!   unknown fields are ignored.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of the one clock of the run.
    pub t_ns: u64,
    /// Who: a client, a server node, a resource. One row of the picture.
    pub lane: String,
    /// What.
    pub kind: Kind,
    /// Which end of an operation; absent for a moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The lock's name, which is also the name of the resource that it protects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The claim's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// How an operation ended, or what a resource decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The fencing token that was granted, or shown to a gate.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "decimal")]
    pub token: Option<u64>,
    /// The highest token that a gate had seen when it rejected a lower one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "decimal")]
    pub highest: Option<u64>,
    /// The moment after which the holder no longer believes in its claim: on the return of `acquire` and `renew`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// The name of one change to the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<String>,
    /// The changes found in the resource at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<String>>,
    /// A remark for people, such as what a fault did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Event {
    /// An event with no more than its time, lane and kind, to be completed with `..`.
    ///
    /// ```
    /// use fencepost_lab::history::{Event, Kind, Phase};
    ///
    /// let event = Event { phase: Some(Phase::Invoke), lock: Some("a".into()), ..Event::at(7, "p1", Kind::Acquire) };
    /// assert_eq!(event.t_ns, 7);
    /// ```
    #[must_use]
    pub fn at(t_ns: u64, lane: &str, kind: Kind) -> Self {
        Self {
            t_ns,
            lane: lane.into(),
            kind,
            phase: None,
            lock: None,
            claim: None,
            outcome: None,
            token: None,
            highest: None,
            deadline_ns: None,
            update: None,
            state: None,
            note: None,
        }
    }
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A claim asks for its lock.
    Acquire,
    /// A holder gives its lock back.
    Release,
    /// A holder prolongs its lease.
    Renew,
    /// A holder stops being sure.
    Lost,
    /// The run broke or healed something; `note` says what.
    Fault,
    /// A change to the resource.
    Write,
    /// A look at the resource.
    Read,
    /// The resource as it was found at the end, in `state`.
    Final,
}

/// Which end of an operation an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Just before the call.
    Invoke,
    /// Just after it.
    Return,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It took effect.
    Ok,
    /// It certainly did not take effect: the caller's deadline came first.
    Timeout,
    /// It certainly did not take effect: the lock was no longer held.
    Lost,
    /// It may or may not have taken effect.
    Unknown,
    /// It certainly did not take effect: the gate had seen a higher token.
    Stale,
    /// It certainly did not take effect, for another reason.
    Failed,
}

/// Where events go. Clones write to the same place.
#[derive(Clone, Debug)]
pub struct Recorder(Sink);

#[derive(Clone, Debug)]
enum Sink {
    File(Arc<File>),
    Memory(Arc<Mutex<Vec<Event>>>),
}

impl Recorder {
    /// Appends to the file at `path`, which other processes may append to at the same time.
    ///
    /// # Errors
    ///
    /// Whatever opening the file reports.
    pub fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Sink::File(Arc::new(file))))
    }

    /// Keeps the events in memory, in the list that is returned beside the recorder.
    #[must_use]
    pub fn memory() -> (Self, Arc<Mutex<Vec<Event>>>) {
        let events = Arc::new(Mutex::new(Vec::new()));
        (Self(Sink::Memory(Arc::clone(&events))), events)
    }

    /// Adds one event. It is handed to the kernel in one `write`, so lines of several processes never mix.
    ///
    /// # Errors
    ///
    /// When the file does not take the whole line. The history is then of no use.
    pub fn record(&self, event: Event) -> io::Result<()> {
        match &self.0 {
            Sink::Memory(events) => events.lock().unwrap_or_else(PoisonError::into_inner).push(event),
            Sink::File(file) => {
                let mut line = serde_json::to_vec(&event)?;
                line.push(b'\n');
                let written = (&mut &**file).write(&line)?;
                if written < line.len() {
                    return Err(io::Error::other(
                        "the history took only part of a line; free some disk space",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Reads a history line by line, without holding it all in memory.
pub fn read(input: impl BufRead) -> impl Iterator<Item = Result<Event, BrokenLine>> {
    (1..).zip(input.lines()).map(|(line, text)| {
        let text = text.map_err(|error| BrokenLine { line, reason: error.to_string() })?;
        serde_json::from_str(&text).map_err(|error| BrokenLine { line, reason: error.to_string() })
    })
}

/// A line of a history that is not an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenLine {
    /// Its number, counted from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for BrokenLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the history is not an event, record the run again: {}", self.line, self.reason)
    }
}

impl std::error::Error for BrokenLine {}

/// Tokens as decimal strings.
mod decimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(token: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match token {
            Some(token) => to.collect_str(token),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(|_| D::Error::custom(format!("token `{text}` is not a u64"))))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Event {
        Event {
            phase: Some(Phase::Return),
            lock: Some("orders/4821".into()),
            claim: Some("c9".into()),
            outcome: Some(Outcome::Stale),
            token: Some(u64::MAX),
            highest: Some((1 << 53) + 1),
            deadline_ns: Some(9),
            update: Some("u\n1".into()),
            state: Some(vec!["u1".into()]),
            note: Some("é".into()),
            ..Event::at(u64::MAX, "p3", Kind::Write)
        }
    }

    fn read_all(text: &str) -> Result<Vec<Event>, BrokenLine> {
        read(text.as_bytes()).collect()
    }

    #[test]
    fn a_token_is_a_string_and_keeps_every_digit() {
        let line = serde_json::to_string(&full()).unwrap();
        assert!(line.contains(r#""token":"18446744073709551615""#), "{line}");
        assert!(line.contains(r#""highest":"9007199254740993""#), "{line}");
        assert_eq!(read_all(&line), Ok(vec![full()]));
    }

    #[test]
    fn absent_fields_are_left_out() {
        let line = serde_json::to_string(&Event::at(5, "p1", Kind::Fault)).unwrap();
        assert_eq!(line, r#"{"t_ns":5,"lane":"p1","kind":"fault"}"#);
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let line = r#"{"t_ns":5,"lane":"p1","kind":"fault","colour":{"r":1}}"#;
        assert_eq!(read_all(line), Ok(vec![Event::at(5, "p1", Kind::Fault)]));
    }

    #[test]
    fn a_broken_line_is_named_by_its_number() {
        let good = r#"{"t_ns":5,"lane":"p1","kind":"fault"}"#;
        for bad in [
            r#"{"t_ns":5,"#,
            r#"{"t_ns":5,"lane":"p1","kind":"dance"}"#,
            r#"{"t_ns":5,"lane":"p1","kind":"write","token":7}"#,
            r#"{"t_ns":5,"lane":"p1","kind":"write","token":"-7"}"#,
            "",
        ] {
            let broken = read_all(&format!("{good}\n{bad}\n{good}\n")).unwrap_err();
            assert_eq!(broken.line, 2, "{bad}");
            assert!(broken.to_string().starts_with("line 2 of the history is not an event"), "{broken}");
        }
    }

    #[test]
    fn lines_of_several_writers_never_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        std::thread::scope(|scope| {
            for lane in ["p1", "p2", "p3", "p4"] {
                let recorder = Recorder::append(&path).unwrap();
                scope.spawn(move || {
                    (0..500).try_for_each(|t| recorder.record(Event::at(t, lane, Kind::Fault))).unwrap();
                });
            }
        });
        let events = read_all(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for lane in ["p1", "p2", "p3", "p4"] {
            let times: Vec<u64> = events.iter().filter(|e| e.lane == lane).map(|e| e.t_ns).collect();
            assert_eq!(times, (0..500).collect::<Vec<_>>(), "{lane}");
        }
    }

    #[test]
    fn clones_share_the_memory() {
        let (recorder, events) = Recorder::memory();
        recorder.clone().record(full()).unwrap();
        recorder.record(Event::at(1, "p1", Kind::Lost)).unwrap();
        assert_eq!(*events.lock().unwrap(), [full(), Event::at(1, "p1", Kind::Lost)]);
    }
}
