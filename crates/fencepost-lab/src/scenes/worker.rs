//! What one client process does: take the lock, read the stock, work, write it back, give the lock back.
//!
//! It is told its part in the first line of its standard input, and that its work is done in the second: between its read
//! and its write it waits, so that the scene can stop it there, and not somewhere else on a slow day. It ends with whoever
//! started it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fencepost::gate::Pass;
use fencepost::{ErrorKind, Guard, Locker, Moment, State};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};

use super::act::{Gate, Lock};
use super::shelf::{Place, Shelf, Stock};
use super::textbook::Textbook;
use crate::clock::now_ns;
use crate::history::{Event, Kind, Outcome, Phase, Recorder};

/// The lock's name, and that of what it protects.
pub(super) const LOCK: &str = "orders/4821";

/// The part of one worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// Its name.
    pub(super) lane: String,
    pub(super) lock: Lock,
    pub(super) gate: Gate,
    pub(super) ttl: Duration,
    /// Where the lock's server is, if there is a lock.
    pub(super) redis: Option<String>,
    pub(super) place: Place,
    pub(super) history: PathBuf,
}

/// Plays the part that is read from standard input, as the whole of a process.
///
/// # Errors
///
/// One sentence, if there is no part or it cannot be played to its end. A rejected write is not an error.
pub fn work() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("a worker cannot start: {error}"))?;
    let done = runtime.block_on(async {
        let mut lines = BufReader::new(stdin()).lines();
        let part = lines.next_line().await?.unwrap_or_default();
        let part: Part = serde_json::from_str(&part)
            .map_err(|_| "a worker has no part by itself, play a scene of `fencepost lab` instead")?;
        let history = Recorder::append(&part.history)?;
        Worker { part, history }.sell(lines).await
    });
    // A read of standard input may still be under way.
    runtime.shutdown_background();
    done.map_err(|error| error.to_string())
}

type Done<T> = Result<T, Box<dyn std::error::Error>>;

struct Worker {
    part: Part,
    history: Recorder,
}

/// What keeps the other away.
enum Hold {
    Nothing,
    Textbook(Textbook),
    Fencepost(Guard),
}

impl Worker {
    async fn sell(&self, mut lines: Lines<BufReader<Stdin>>) -> Done<()> {
        let mut shelf = Shelf::open(&self.part.place).await?;
        let hold = self.acquire().await?;
        let pass = match &hold {
            Hold::Fencepost(guard) => Some(Pass::from(guard)),
            _ => None,
        };
        let stock = self.read(&mut shelf, self.part.gate.for_reads(pass.as_ref())).await?;
        self.until_told(&hold, &mut lines).await?;
        let stock = stock.sell(&self.part.lane);
        self.write(&mut shelf, self.part.gate.for_writes(pass.as_ref()), &stock).await?;
        self.release(hold).await
    }

    async fn acquire(&self) -> Done<Hold> {
        let Some(redis) = &self.part.redis else { return Ok(Hold::Nothing) };
        let (lane, ttl) = (&self.part.lane, self.part.ttl);
        self.invoke(Kind::Acquire, None)?;
        let hold = match self.part.lock {
            Lock::None => return Ok(Hold::Nothing),
            Lock::Textbook => {
                let value = format!("{lane}-{}-{}", std::process::id(), now_ns());
                Hold::Textbook(Textbook::acquire(redis, LOCK, value, ttl)?)
            }
            Lock::Fencepost => {
                let locker = Locker::connect(redis).await?;
                Hold::Fencepost(locker.lock(LOCK).ttl(ttl).label(lane.as_str()).acquire().await?)
            }
        };
        let guard = if let Hold::Fencepost(guard) = &hold { Some(guard) } else { None };
        self.record(Event {
            token: guard.map(|guard| guard.token().get()),
            deadline_ns: guard.and_then(Guard::deadline).map(Moment::as_nanos),
            ..self.returned(Kind::Acquire, Outcome::Ok)
        })?;
        Ok(hold)
    }

    async fn read(&self, shelf: &mut Shelf, pass: Option<&Pass>) -> Done<Stock> {
        let token = pass.map(|pass| pass.token.get());
        self.invoke(Kind::Read, token)?;
        let stock = shelf.read(pass).await?;
        let note = Some(stock.left.to_string());
        self.record(Event { token, note, ..self.returned(Kind::Read, Outcome::Ok) })?;
        Ok(stock)
    }

    /// Works, which takes as long as the scene says.
    async fn until_told(&self, hold: &Hold, lines: &mut Lines<BufReader<Stdin>>) -> Done<()> {
        let Hold::Fencepost(guard) = hold else {
            lines.next_line().await?;
            return Ok(());
        };
        let mut changes = guard.changes();
        loop {
            let hold = tokio::select! {
                // Its work is done, and it goes on to write. A loss that comes to light in the same moment comes too late:
                // however often a worker asks, it can be stopped after it has asked.
                biased;
                line = lines.next_line() => return Ok(line.map(drop)?),
                hold = changes.changed() => hold,
            };
            match hold.state {
                State::Held => {
                    self.invoke(Kind::Renew, None)?;
                    let deadline_ns = hold.deadline.map(Moment::as_nanos);
                    self.record(Event { deadline_ns, ..self.returned(Kind::Renew, Outcome::Ok) })?;
                }
                State::Lost(_) => self.record(self.event(Kind::Lost))?,
                _ => {}
            }
        }
    }

    async fn write(&self, shelf: &mut Shelf, pass: Option<&Pass>, stock: &Stock) -> Done<()> {
        let token = pass.map(|pass| pass.token.get());
        let details = |event: Event| {
            let (update, note) = (Some(self.part.lane.clone()), Some(stock.left.to_string()));
            Event { token, update, note, ..event }
        };
        self.record(details(Event { phase: Some(Phase::Invoke), ..self.event(Kind::Write) }))?;
        let (outcome, highest) = match shelf.write(pass, stock).await {
            Ok(()) => (Outcome::Ok, None),
            Err(error) => match error.stale() {
                Some(stale) => (Outcome::Stale, Some(stale.highest.get())),
                None => return Err(error.into()),
            },
        };
        Ok(self.record(Event { highest, ..details(self.returned(Kind::Write, outcome)) })?)
    }

    async fn release(&self, hold: Hold) -> Done<()> {
        if self.part.lock != Lock::None {
            self.invoke(Kind::Release, None)?;
        }
        let was_held = match hold {
            Hold::Nothing => return Ok(()),
            Hold::Textbook(lock) => lock.release()?,
            Hold::Fencepost(guard) => match guard.release().await {
                Ok(()) => true,
                Err(error) if error.kind() == ErrorKind::Lost => false,
                Err(error) => return Err(error.into()),
            },
        };
        let outcome = if was_held { Outcome::Ok } else { Outcome::Lost };
        Ok(self.record(self.returned(Kind::Release, outcome))?)
    }

    /// An event of this worker, now.
    fn event(&self, kind: Kind) -> Event {
        let lane = &self.part.lane;
        // Each worker takes the lock once, so that its name is also that of its claim.
        let claim = (self.part.lock != Lock::None).then(|| lane.clone());
        Event { lock: Some(LOCK.into()), claim, ..Event::at(now_ns(), lane, kind) }
    }

    fn returned(&self, kind: Kind, outcome: Outcome) -> Event {
        Event { phase: Some(Phase::Return), outcome: Some(outcome), ..self.event(kind) }
    }

    fn invoke(&self, kind: Kind, token: Option<u64>) -> io::Result<()> {
        self.record(Event { phase: Some(Phase::Invoke), token, ..self.event(kind) })
    }

    fn record(&self, event: Event) -> io::Result<()> {
        self.history.record(event)
    }
}
