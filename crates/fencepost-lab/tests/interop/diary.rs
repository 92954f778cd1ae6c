//! What a player of this binary writes into the history, and what it does to the resource.

use std::{fs, path::PathBuf, process, thread, time::Duration};

use fencepost::{SystemHost, driver::Host};
use fencepost_lab::{
    clock::now_ns,
    history::{Event, Kind, Outcome, Phase, Recorder},
};

use super::players::Task;

/// One player's diary, and the claim that it is about.
pub(crate) struct Diary {
    recorder: Recorder,
    lane: String,
    lock: String,
    resource: PathBuf,
    count: u64,
    updates: u64,
}

impl Diary {
    pub(crate) fn new(task: &Task, client: &str) -> Self {
        Self {
            recorder: Recorder::append(&task.history).expect("a history"),
            lane: format!("{client}/{}", process::id()),
            lock: task.lock.clone(),
            resource: task.resource.clone(),
            count: 0,
            updates: 0,
        }
    }

    fn event(&self, kind: Kind, phase: Phase) -> Event {
        let claim = format!("{}/{}", self.lane, self.count);
        let about =
            Event { lock: Some(self.lock.clone()), claim: Some(claim), ..Event::at(0, &self.lane, kind) };
        Event { phase: Some(phase), t_ns: now_ns(), ..about }
    }

    fn record(&self, event: Event) {
        self.recorder.record(event).expect("room for a line");
    }

    /// A new claim is about to ask for the lock.
    pub(crate) fn asks(&mut self) {
        self.count += 1;
        self.record(self.event(Kind::Acquire, Phase::Invoke));
    }

    pub(crate) fn granted(&self, deadline_ns: u64, token: Option<u64>) {
        let event = self.event(Kind::Acquire, Phase::Return);
        self.record(Event { outcome: Some(Outcome::Ok), deadline_ns: Some(deadline_ns), token, ..event });
    }

    /// The claim came to nothing.
    pub(crate) fn refused(&self) {
        self.record(Event { outcome: Some(Outcome::Timeout), ..self.event(Kind::Acquire, Phase::Return) });
    }

    pub(crate) fn renewed(&self, deadline_ns: u64) {
        self.record(self.event(Kind::Renew, Phase::Invoke));
        let event = self.event(Kind::Renew, Phase::Return);
        self.record(Event { outcome: Some(Outcome::Ok), deadline_ns: Some(deadline_ns), ..event });
    }

    pub(crate) fn releases(&self) {
        self.record(self.event(Kind::Release, Phase::Invoke));
    }

    pub(crate) fn released(&self, outcome: Outcome) {
        self.record(Event { outcome: Some(outcome), ..self.event(Kind::Release, Phase::Return) });
    }

    /// Adds one update to the resource as no one should without a lock: it reads all, waits, and writes all. An update that
    /// ends after `deadline_ns` is not confirmed.
    pub(crate) fn update(&mut self, deadline_ns: u64) {
        self.updates += 1;
        let update = format!("{}:{}", self.lane, self.updates);
        let event = |phase| Event { update: Some(update.clone()), ..self.event(Kind::Write, phase) };
        self.record(event(Phase::Invoke));
        let before = fs::read_to_string(&self.resource).expect("the resource");
        pause(5);
        let draft = self.resource.with_extension(process::id().to_string());
        fs::write(&draft, format!("{before}{update}\n")).expect("room for a draft");
        let outcome = if now_ns() >= deadline_ns {
            Outcome::Failed
        } else {
            fs::rename(&draft, &self.resource).expect("its place");
            if now_ns() < deadline_ns { Outcome::Ok } else { Outcome::Unknown }
        };
        self.record(Event { outcome: Some(outcome), ..event(Phase::Return) });
    }
}

/// Lets up to so many milliseconds pass.
pub(crate) fn pause(most_ms: u64) {
    thread::sleep(Duration::from_micros(SystemHost.random() % (most_ms * 1000)));
}
