//! The director: starts the workers, stops one where it hurts, and records what everybody did.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::act::{Act, Turn};
use super::shelf::{Place, Shelf};
use super::stage::{Actor, Cast, Stage, Trouble, wait};
use super::words;
use super::worker::{LOCK, Part};
use crate::clock::now_ns;
use crate::history::{self, Event, Kind, Phase, Recorder};

/// How often the history is looked at.
const POLL: Duration = Duration::from_millis(5);

/// How long a worker may take for a step, beside the time to live of a lock that it waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Plays one act and answers its history. `ttl` is how long the locks last; the rest of the act keeps pace with it.
///
/// # Errors
///
/// When it is not played to its end: then there is nothing to judge. No process of it is left either way.
pub fn play(act: &Act, ttl: Duration, stage: &mut Stage, cast: &Cast<'_>) -> Result<Vec<Event>, Trouble> {
    let (place, history) = stage.next(act)?;
    let mut play = Play { act, ttl, stage, cast, place, history, told: 0 };
    match act.turn {
        Turn::Together => play.together()?,
        Turn::AfterTheOther => play.after_the_other()?,
        Turn::BeforeTheOther => play.before_the_other()?,
    }
    play.count()?;
    play.events()
}

struct Play<'a> {
    act: &'a Act,
    ttl: Duration,
    stage: &'a Stage,
    cast: &'a Cast<'a>,
    place: Place,
    history: PathBuf,
    /// How many events the caller was told of.
    told: usize,
}

impl Play<'_> {
    fn together(&mut self) -> Result<(), Trouble> {
        let (mut a, mut b) = (self.start("A")?, self.start("B")?);
        self.until_read(&mut a)?;
        self.until_read(&mut b)?;
        self.beat()?;
        self.finish(&mut a)?;
        self.beat()?;
        self.finish(&mut b)
    }

    fn after_the_other(&mut self) -> Result<(), Trouble> {
        let mut a = self.stopped_after_its_read()?;
        let mut b = self.start("B")?;
        self.until_read(&mut b)?;
        self.beat()?;
        self.finish(&mut b)?;
        self.beat()?;
        self.go_on(&mut a)
    }

    fn before_the_other(&mut self) -> Result<(), Trouble> {
        let mut a = self.stopped_after_its_read()?;
        let mut b = self.start("B")?;
        self.until_read(&mut b)?;
        self.beat()?;
        self.go_on(&mut a)?;
        self.beat()?;
        self.finish(&mut b)
    }

    fn stopped_after_its_read(&mut self) -> Result<Actor, Trouble> {
        let mut a = self.start("A")?;
        self.until_read(&mut a)?;
        self.beat()?;
        a.process.pause()?;
        self.fault(&a, words::STOPPED)?;
        // It hears of it when it goes on, and then does the next thing that it would have done.
        a.finish()?;
        Ok(a)
    }

    fn go_on(&mut self, a: &mut Actor) -> Result<(), Trouble> {
        self.fault(a, words::CONTINUED)?;
        a.process.resume()?;
        self.until_over(a)
    }

    fn finish(&mut self, actor: &mut Actor) -> Result<(), Trouble> {
        actor.finish()?;
        self.until_over(actor)
    }

    fn start(&self, lane: &str) -> Result<Actor, Trouble> {
        let part = Part {
            lane: lane.into(),
            lock: self.act.lock,
            gate: self.act.gate,
            ttl: self.ttl,
            redis: self.stage.redis(self.act),
            place: self.place.clone(),
            history: self.history.clone(),
        };
        Ok(Actor::start((self.cast.worker)(), &part, &self.stage.path(&format!("worker-{lane}.log")))?)
    }

    /// What the picture calls a moment: a quarter of a lease.
    fn beat(&mut self) -> Result<(), Trouble> {
        let end = now_ns() + (self.ttl / 4).as_nanos() as u64;
        while now_ns() < end {
            self.look()?;
        }
        Ok(())
    }

    fn until_read(&mut self, actor: &mut Actor) -> Result<(), Trouble> {
        let has_read = |event: &Event| event.kind == Kind::Read && event.phase == Some(Phase::Return);
        let end = now_ns() + (self.ttl * 2 + PATIENCE).as_nanos() as u64;
        while !self.events()?.iter().any(|event| event.lane == actor.name && has_read(event)) {
            if actor.process.exited()?.is_some() {
                return Err(actor.failure());
            }
            self.look_until(end, actor)?;
        }
        Ok(())
    }

    fn until_over(&mut self, actor: &mut Actor) -> Result<(), Trouble> {
        let end = now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            match actor.process.exited()? {
                Some(status) if status.success() => return self.look(),
                Some(_) => return Err(actor.failure()),
                None => self.look_until(end, actor)?,
            }
        }
    }

    fn look_until(&mut self, end_ns: u64, actor: &Actor) -> Result<(), Trouble> {
        if now_ns() >= end_ns {
            return Err(Trouble::Failed(format!("worker {} did not get on", actor.name)));
        }
        self.look()
    }

    /// Lets a few milliseconds pass, and hands on what happened.
    fn look(&mut self) -> Result<(), Trouble> {
        if (self.cast.interrupted)() {
            return Err(Trouble::Interrupted);
        }
        thread::sleep(POLL);
        let events = self.events()?;
        events.iter().skip(self.told).filter_map(words::moment).for_each(|text| (self.cast.tell)(&text));
        self.told = events.len();
        Ok(())
    }

    fn fault(&self, actor: &Actor, what: &str) -> Result<(), Trouble> {
        let event = Event { note: Some(what.into()), ..Event::at(now_ns(), &actor.name, Kind::Fault) };
        Ok(Recorder::append(&self.history)?.record(event)?)
    }

    /// Records what lies there in the end.
    fn count(&self) -> Result<(), Trouble> {
        let stock = wait(async { Shelf::open(&self.place).await?.read(None).await })??;
        let (note, state) = (Some(stock.left.to_string()), Some(stock.sold));
        let event =
            Event { lock: Some(LOCK.into()), note, state, ..Event::at(now_ns(), "stock", Kind::Final) };
        Ok(Recorder::append(&self.history)?.record(event)?)
    }

    fn events(&self) -> Result<Vec<Event>, Trouble> {
        let text = fs::read(&self.history)?;
        // The last line may still be on its way.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let events: Result<Vec<Event>, _> = history::read(&text[..whole]).collect();
        events.map_err(|broken| Trouble::Failed(broken.to_string()))
    }
}
