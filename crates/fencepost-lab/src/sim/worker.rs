//! A client of the simulation: it takes locks, works under them, gives them back, and changes its mind.

use std::{sync::Arc, time::Duration};

use fencepost::{Changes, ErrorKind, Guard, Locker, State, Token};

use crate::history::{Event, Kind, Outcome, Phase};

use super::{LOCKS, Sky, TTL, World, host::SimHost};

/// Somebody who may say "held".
pub(super) struct Believer {
    pub(super) lock: String,
    pub(super) token: u64,
    host: Arc<SimHost>,
    changes: Changes,
}

impl Believer {
    /// Whether its process runs and says "held".
    pub(super) fn believes(&self) -> bool {
        let now = fencepost::driver::Host::now(&super::host::Running(self.host.clone()));
        !self.host.is_paused() && self.changes.hold().is_held_at(now)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.changes.hold().state, State::Lost(_) | State::Released)
    }
}

pub(super) async fn worker(
    world: Arc<World>,
    name: String,
    host: Arc<SimHost>,
    locker: Locker,
    until: Duration,
) {
    let mut claims = 0;
    while world.clock.now() < until {
        world.clock.sleep(world.dice.up_to(TTL / 2)).await;
        let lock = LOCKS[world.dice.below(LOCKS.len() as u64) as usize];
        claims += 1;
        let claim = Claimed { lane: name.clone(), claim: format!("{name}-{claims}"), lock: lock.into() };
        if let Some(guard) = take(&world, &host, &locker, &claim).await {
            work(&world, guard, &claim).await;
        }
    }
}

/// Names one attempt in the history.
struct Claimed {
    lane: String,
    claim: String,
    lock: String,
}

impl Claimed {
    fn event(&self, kind: Kind, phase: Phase) -> Event {
        let (lock, claim) = (Some(self.lock.clone()), Some(self.claim.clone()));
        Event { phase: Some(phase), lock, claim, ..Event::at(0, &self.lane, kind) }
    }
}

/// One acquire, sometimes with a time limit, sometimes a try, sometimes dropped half way.
async fn take(world: &Arc<World>, host: &Arc<SimHost>, locker: &Locker, claim: &Claimed) -> Option<Guard> {
    let lock = claim.lock.as_str();
    let began = world.clock.now();
    let before = world.tally().highest_returned.get(lock).copied().unwrap_or(0);
    let wait = world.dice.up_to(TTL * 3);
    let mut wanted = locker.lock(lock).ttl(TTL).wait(wait).patience(TTL * 2);
    let floor = world.dice.chance(10).then(|| before + 1000 * world.dice.below(2));
    if let Some(floor) = floor.and_then(Token::new) {
        wanted = wanted.floor(floor);
    }
    let tries = world.dice.chance(20);
    let attempt = async {
        if tries {
            return wanted.try_acquire().await;
        }
        world.tally().waiting.insert(claim.claim.clone(), (lock.into(), began));
        wanted.acquire().await
    };
    world.record(claim.event(Kind::Acquire, Phase::Invoke));
    let outcome = if world.dice.chance(25) {
        let patience = world.dice.up_to(if world.dice.chance(50) { Duration::from_millis(20) } else { TTL });
        tokio::select! {
            outcome = attempt => Some(outcome),
            () = world.clock.sleep(patience) => None,
        }
    } else {
        Some(attempt.await)
    };
    world.tally().waiting.remove(&claim.claim);
    let outcome = outcome?;
    let took = world.clock.now() - began;
    // A try is bounded by its patience with each answer.
    let limit = if tries { TTL * 4 } else { wait } + Duration::from_millis(50);
    if took > limit && world.sky != Sky::Pauses {
        world.violation(format!("an acquire took {took:?} with wait={wait:?} tries={tries}"));
    }
    match outcome {
        Ok(guard) => {
            let token = Some(guard.token().get());
            let granted = claim.event(Kind::Acquire, Phase::Return);
            world.record(Event { outcome: Some(Outcome::Ok), token, ..granted });
            note_grant(world, host, lock, &guard, floor);
            Some(guard)
        }
        Err(error) => {
            let outcome =
                if error.kind() == ErrorKind::Timeout { Outcome::Timeout } else { Outcome::Unknown };
            world.record(Event { outcome: Some(outcome), ..claim.event(Kind::Acquire, Phase::Return) });
            let expected = match error.kind() {
                ErrorKind::Timeout => true,
                ErrorKind::Unavailable | ErrorKind::Unknown => matches!(world.sky, Sky::Storm | Sky::Freezes),
                _ => false,
            };
            if !expected {
                world.violation(format!("acquire failed in {:?}: {error}", world.sky));
            }
            None
        }
    }
}

fn note_grant(world: &Arc<World>, host: &Arc<SimHost>, lock: &str, guard: &Guard, floor: Option<u64>) {
    let (token, now) = (guard.token().get(), guard.now());
    let changes = guard.changes();
    let (mut tally, mut wrong) = (world.tally(), Vec::new());
    tally.report.grants += 1;
    if floor.is_some_and(|floor| token <= floor) {
        wrong.push(format!("token {token} of {lock} is not above its floor {floor:?}"));
    }
    let highest = tally.highest_returned.entry(lock.into()).or_default();
    *highest = token.max(*highest);
    if !changes.hold().is_held_at(now) && !matches!(world.sky, Sky::Pauses | Sky::Takings | Sky::Steps) {
        wrong.push(format!("a guard of {lock} was returned that is not held"));
    }
    tally.believers.push(Believer { lock: lock.into(), token, host: host.clone(), changes });
    drop(tally);
    wrong.into_iter().for_each(|text| world.violation(text));
}

/// Works under the lock for a while, and gives it back in one of the ways that people do.
async fn work(world: &Arc<World>, guard: Guard, claim: &Claimed) {
    let long = if world.dice.chance(30) { TTL * 4 } else { TTL / 2 };
    let outcome = guard.run(world.clock.sleep(world.dice.up_to(long))).await;
    let lost = outcome.is_err();
    if lost && guard.is_held() {
        world.violation("a lost guard is held again".into());
    }
    if lost {
        world.tally().report.losses += 1;
        if !world.sky.may_lose() {
            world.violation(format!("{} was lost in {:?}", guard.lock(), world.sky));
        }
    }
    world.record(claim.event(Kind::Release, Phase::Invoke));
    match world.dice.below(3) {
        0 => drop(guard),
        1 => {
            let token = guard.token().get();
            let lock = guard.lock().to_string();
            let released = guard.release().await;
            let outcome = match &released {
                Ok(()) => Outcome::Ok,
                Err(error) if error.kind() == ErrorKind::Lost => Outcome::Lost,
                Err(_) => Outcome::Unknown,
            };
            world.record(Event { outcome: Some(outcome), ..claim.event(Kind::Release, Phase::Return) });
            match released {
                Ok(()) if lost => world.violation("a lost guard was released without an error".into()),
                Ok(()) => {
                    let holder = world.net.at_server(|service, now| service.holder(&lock, now));
                    if holder == Some(token) && world.sky != Sky::Storm {
                        world.violation(format!("{lock} was released and is still held by {token}"));
                    }
                }
                Err(error) => {
                    let expected = match error.kind() {
                        ErrorKind::Lost => lost || world.sky.may_lose(),
                        ErrorKind::Unknown => matches!(world.sky, Sky::Storm | Sky::Freezes),
                        _ => false,
                    };
                    if !expected {
                        world.violation(format!("release failed in {:?}: {error}", world.sky));
                    }
                }
            }
        }
        _ => {
            // A release that is dropped at once goes on in the background.
            let release = guard.release();
            tokio::select! {
                biased;
                _ = release => {}
                () = world.clock.sleep(world.dice.up_to(Duration::from_millis(3))) => {}
            }
        }
    }
}
