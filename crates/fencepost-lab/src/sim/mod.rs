//! The engine simulated: real engine, simulated time, tasks, network and server, one seed a run.
//!
//! A run lets a few processes take locks for a while in some kind of [`Sky`], then lets the sky clear and looks at what is
//! left. What it checks, and what each check is for:
//! - *belief*: no process that runs says "held" when the server has given the lock away (deadlines, loss, margins);
//! - *history*: the checker's rules for leased and fenced locks, and for their tokens;
//! - *limits*: an acquire returns within its wait, whatever hangs;
//! - *calm*: without faults, and with single failed renewals, nothing is ever lost;
//! - *residue*: the server never has a claim that its owner has forgotten, and nothing of a locker that was closed;
//! - *wake-ups*: nobody waits for long for a lock that is free;
//! - *liveness*: after the sky has cleared every lock can be taken within two lease lengths;
//! - *ends*: dropped lockers leave no task behind that holds their driver.

mod driver;
mod host;
mod service;
mod worker;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencepost::Locker;

use crate::{
    checker::{self, Rule, Rules},
    history::Event,
};

use driver::{Net, SimDriver, Weather};
pub(crate) use host::Dice;
use host::{Clock, Running, SimHost, spawn};
use service::Service;
use worker::{Believer, worker};

/// What can go wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sky {
    /// Nothing.
    Calm,
    /// Now and then one renewal fails, never two in a row.
    Mild,
    /// Requests and replies are lost, late and refused, and so are the server's hints.
    Storm,
    /// Requests arrive twice, the second time late.
    Echoes,
    /// The server freezes for up to two lease lengths.
    Freezes,
    /// Processes are stopped and continued.
    Pauses,
    /// Locks are taken away by an operator, and the server is wiped.
    Takings,
    /// The server's clock steps forward: two may believe, the tokens still rise.
    Steps,
}

impl Sky {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Calm,
        Self::Mild,
        Self::Storm,
        Self::Echoes,
        Self::Freezes,
        Self::Pauses,
        Self::Takings,
        Self::Steps,
    ];

    fn weather(self) -> Weather {
        match self {
            Self::Mild => Weather { single_renewal: 40, ..Weather::default() },
            Self::Storm => Weather {
                lose_request: 8,
                lose_reply: 8,
                refuse: 5,
                slow: 8,
                lose_push: 20,
                ..Weather::default()
            },
            // Late replies, so that what was counted from one is wrong when the server then falls silent.
            Self::Freezes => Weather { slow: 30, ..Weather::default() },
            Self::Takings => Weather { ambush: 10, ..Weather::default() },
            Self::Echoes => Weather { repeat: 10, ..Weather::default() },
            _ => Weather::default(),
        }
    }

    /// How long a lock may be free while somebody waits; `None` where processes, the server or messages stand still.
    fn patience(self) -> Option<Duration> {
        match self {
            Self::Pauses | Self::Freezes | Self::Storm => None,
            _ => Some(TTL / 2),
        }
    }

    /// Whether a hold may be lost at all.
    fn may_lose(self) -> bool {
        !matches!(self, Self::Calm | Self::Mild | Self::Echoes)
    }
}

/// The lease length of every lock of a run.
const TTL: Duration = Duration::from_secs(3);
const LOCKS: [&str; 2] = ["orders/4821", "stock"];
const PROCESSES: usize = 3;
const WORKERS: usize = 2;
const DURATION: Duration = Duration::from_secs(30);

/// What happened in one run.
#[derive(Debug, Default)]
pub struct Report {
    /// The broken promises, each in a sentence.
    pub violations: Vec<String>,
    /// How many locks were granted.
    pub grants: usize,
    /// How many of them were lost.
    pub losses: usize,
    /// A digest of the history: equal for equal seeds.
    pub digest: u64,
}

/// What the tasks of a run share.
struct World {
    sky: Sky,
    clock: Clock,
    dice: Arc<Dice>,
    net: Arc<Net>,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    report: Report,
    believers: Vec<Believer>,
    history: Vec<Event>,
    highest_returned: BTreeMap<String, u64>,
    over: bool,
    /// Who waits for which lock, since when.
    waiting: BTreeMap<String, (String, Duration)>,
    /// Since when a lock has no holder.
    free_since: BTreeMap<&'static str, Duration>,
    /// Claims that nobody knows any more, since when.
    orphans: BTreeMap<String, Duration>,
    /// When as many stood in line for a lock as wait for it.
    in_order: BTreeMap<&'static str, Duration>,
}

impl World {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn violation(&self, text: String) {
        let at = self.clock.now();
        self.tally().report.violations.push(format!("at {at:?}: {text}"));
    }

    /// Records what a worker does at this moment.
    fn record(&self, event: Event) {
        let t_ns = self.clock.now().as_nanos() as u64;
        self.tally().history.push(Event { t_ns, ..event });
    }

    /// Hands the history to the checker, and folds it into a digest (FNV-1a).
    fn judge(&self) {
        let history = std::mem::take(&mut self.tally().history);
        for byte in history.iter().flat_map(|event| format!("{event:?}").into_bytes()) {
            let digest = &mut self.tally().report.digest;
            *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        match checker::judge(&history, &Rules::from([Rule::Leased, Rule::Tokens])) {
            Ok(verdict) => {
                verdict.findings.into_iter().for_each(|finding| self.violation(finding.to_string()))
            }
            Err(malformed) => self.violation(malformed.to_string()),
        }
    }

    /// Asks every running process that says "held" whether the server agrees.
    fn check_beliefs(&self) {
        let mut tally = self.tally();
        tally.believers.retain(|believer| !believer.is_over());
        let mut wrong = Vec::new();
        for believer in tally.believers.iter().filter(|believer| believer.believes()) {
            let holder = self.net.at_server(|service, at| service.holder(&believer.lock, at));
            let excused = self.sky == Sky::Steps || self.net.is_excused(believer.token);
            if holder != Some(believer.token) && !excused {
                wrong.push(format!(
                    "{} is believed held by {} but belongs to {holder:?}",
                    believer.lock, believer.token
                ));
            }
        }
        drop(tally);
        wrong.extend(self.forgotten());
        wrong.into_iter().for_each(|text| self.violation(text));
    }
}

impl World {
    /// The claims at the server that their owners forgot. What a server carries out after a long frozen time, an owner was
    /// right to forget; and what hangs on a session whose end did not arrive goes when the session runs out.
    fn forgotten(&self) -> Option<String> {
        let bound = match self.sky {
            Sky::Freezes => return None,
            Sky::Storm if self.net.has_sessions() => TTL * 2,
            _ => Duration::ZERO,
        };
        let (now, orphans) = (self.clock.now(), self.net.orphans());
        let mut tally = self.tally();
        let since = std::mem::take(&mut tally.orphans);
        tally.orphans =
            orphans.into_iter().map(|id| (id.clone(), since.get(&id).copied().unwrap_or(now))).collect();
        let old = tally.orphans.values().filter(|since| now >= **since + bound).count();
        (old > 0).then(|| format!("the server has {old} claims that their owners forgot"))
    }

    /// Nobody may wait for a lock that has been free for long.
    fn check_waiters(&self) {
        let Some(bound) = self.sky.patience() else { return };
        let now = self.clock.now();
        let mut tally = self.tally();
        for lock in LOCKS {
            if self.net.at_server(|service, at| service.holder(lock, at)).is_some() {
                tally.free_since.insert(lock, now);
            }
            let waiting = tally.waiting.values().filter(|(name, _)| name == lock).count();
            if waiting <= self.net.at_server(|service, at| service.waiting(lock, at)) {
                tally.in_order.insert(lock, now);
            }
        }
        let free_since = |lock: &str| tally.free_since.get(lock).copied().unwrap_or_default();
        let stranded = |(lock, since): &(String, Duration)| now > free_since(lock).max(*since) + bound;
        let stranded: Vec<_> =
            tally.waiting.iter().filter(|(_, wait)| stranded(wait)).map(|(who, _)| who.clone()).collect();
        let forgotten =
            LOCKS.iter().filter(|lock| now > tally.in_order.get(*lock).copied().unwrap_or_default() + bound);
        let forgotten: Vec<_> = forgotten.collect();
        drop(tally);
        forgotten
            .into_iter()
            .for_each(|lock| self.violation(format!("more wait for {lock} than stand in line")));
        stranded.into_iter().for_each(|who| self.violation(format!("{who} waits for a lock that is free")));
    }
}

/// Runs one seed.
pub fn run(seed: u64, sky: Sky, sessions_only: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(simulate(seed, sky, sessions_only))
}

async fn simulate(seed: u64, sky: Sky, sessions_only: bool) -> Report {
    let (clock, dice) = (Clock::start(), Dice::new(seed));
    // Requests that come twice are the backend's to make harmless: see the rules of the driver contract.
    let net = Net::new(Service::new(sessions_only, sky == Sky::Echoes), clock, dice.clone());
    net.set_weather(sky.weather());
    let world = Arc::new(World { sky, clock, dice, net, tally: Mutex::default() });

    let hosts: Vec<_> = (0..PROCESSES).map(|_| SimHost::new(clock, world.dice.clone())).collect();
    let drivers: Vec<_> = hosts.iter().map(|_| SimDriver::new(world.net.clone())).collect();
    let weak: Vec<_> = drivers.iter().map(Arc::downgrade).collect();
    let lockers: Vec<_> = hosts
        .iter()
        .zip(drivers)
        .map(|(host, driver)| Locker::from_parts(driver, Arc::new(Running(host.clone()))))
        .collect();

    let mut workers = Vec::new();
    for (process, (host, locker)) in hosts.iter().zip(&lockers).enumerate() {
        for number in 0..WORKERS {
            let name = format!("p{process}w{number}");
            let (done, ended) = tokio::sync::oneshot::channel();
            let task = worker(world.clone(), name, host.clone(), locker.clone(), DURATION);
            spawn(host.process(Box::pin(async move {
                task.await;
                let _ = done.send(());
            })));
            workers.push(ended);
        }
    }
    spawn(observe(world.clone()));
    spawn(misfortunes(world.clone(), hosts.clone()));

    for ended in workers {
        tokio::select! {
            ended = ended => if ended.is_err() { world.violation("a worker died".into()) },
            () = clock.sleep(DURATION + TTL * 20) => world.violation("a worker hangs".into()),
        }
    }
    world.tally().over = true;
    aftermath(&world, lockers, sessions_only).await;
    for driver in weak {
        if driver.upgrade().is_some() {
            world.violation("a driver outlives its locker".into());
        }
    }
    world.judge();
    let mut report = std::mem::take(&mut world.tally().report);
    report.violations.truncate(20);
    report
}

/// The sky clears; everything that was given up must go, and every lock must be free.
async fn aftermath(world: &Arc<World>, lockers: Vec<Locker>, sessions_only: bool) {
    world.net.set_weather(Weather::default());
    for locker in lockers {
        tokio::select! {
            () = locker.close() => {}
            () = world.clock.sleep(TTL * 5) => world.violation("closing a locker hangs".into()),
        }
    }
    // What a frozen server carries out late lives for one lease length.
    if world.sky == Sky::Freezes {
        world.clock.sleep(TTL * 2).await;
    }
    let left = world.net.at_server(|service, now| service.ids(now)).len();
    if left != 0 {
        world.violation(format!("{left} claims are left at the server (sessions_only={sessions_only})"));
    }
    let host = SimHost::new(world.clock, world.dice.clone());
    let locker = Locker::from_parts(SimDriver::new(world.net.clone()), Arc::new(Running(host)));
    for lock in LOCKS {
        match locker.lock(lock).ttl(TTL).wait(TTL * 2).acquire().await {
            Ok(guard) => {
                if let Err(error) = guard.release().await {
                    world.violation(format!("the last release failed: {error}"));
                }
            }
            Err(error) => world.violation(format!("{lock} cannot be taken in the end: {error}")),
        }
    }
    locker.close().await;
    // Tasks that are about to end get the time to do so.
    world.clock.sleep(TTL * 2).await;
}

/// Looks at every belief and every waiter every few milliseconds.
async fn observe(world: Arc<World>) {
    while !world.tally().over {
        world.clock.sleep(Duration::from_micros(7300)).await;
        world.check_beliefs();
        world.check_waiters();
    }
}

/// What happens to processes and the server from outside.
async fn misfortunes(world: Arc<World>, hosts: Vec<Arc<SimHost>>) {
    while world.clock.now() < DURATION {
        world.clock.sleep(world.dice.up_to(TTL * 2)).await;
        if world.tally().over {
            return;
        }
        match world.sky {
            Sky::Freezes => world.net.freeze(world.dice.up_to(TTL * 2)),
            Sky::Steps => world.net.step_clock(world.dice.up_to(TTL * 2)),
            Sky::Pauses => {
                let host = &hosts[world.dice.below(hosts.len() as u64) as usize];
                host.pause();
                world.clock.sleep(world.dice.up_to(TTL * 2)).await;
                host.resume();
                // Whatever it believes at the very moment of its return must be true.
                world.check_beliefs();
            }
            Sky::Takings => take_away(&world),
            Sky::Calm | Sky::Mild | Sky::Storm | Sky::Echoes => {}
        }
    }
}

/// Takes locks away behind their holders' backs. Half of the time the server tells those concerned at once; otherwise
/// their next renewal does.
fn take_away(world: &Arc<World>) {
    let lock = LOCKS[world.dice.below(LOCKS.len() as u64) as usize];
    let wipe = world.dice.chance(10);
    let taken =
        world.net.at_server(|service, now| if wipe { service.wipe() } else { service.force_out(lock, now) });
    let tells = world.dice.chance(50);
    let excuse = if tells { Duration::from_millis(20) } else { TTL / 2 };
    taken.into_iter().for_each(|taken| world.net.taken(taken, tells, excuse));
}
