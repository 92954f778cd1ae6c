//! A crowd of both sides on one key, in which holders are killed.
//!
//! What is judged is exact. A belief ends at the owner's own deadline, which lies before the server's: two of them never
//! overlap, whoever is killed. Our claims alone have tokens, and those rise whatever the peers do between. A confirmed update
//! of the resource is lost only if a writer wrote late, which no lock prevents: a run that lost one and had such a writer is played again.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{BufRead, BufReader},
    path::Path,
    thread,
    time::Duration,
};

use fencepost_lab::{
    checker::{Rule, Rules, judge},
    clock::now_ns,
    history::{Event, Kind, Outcome, Phase, Recorder, read},
    server::{Process, etcd, home, ignored, redis},
};
use libtest_mimic::{Failed, Trial};

use super::players::{Client, PEERS, Task};

const LOCK: &str = "orders/4821";

/// Short, because after each kill of a holder nobody has the lock for so long.
const TTL_MS: u64 = 1000;

/// How many processes of each side there are.
const SIDE: usize = 4;

/// How often each side must have had the lock, and its holders must have been killed, in one run. Exclusion is promised,
/// fairness is not; this shows that both sides took part.
const FEW: (usize, usize) = (10, 2);

pub(crate) fn trials() -> Vec<Trial> {
    let crowds = PEERS.into_iter().chain([Client::Etcdctl]).map(|peer| (peer, ""));
    let crowds = crowds.chain([(Client::RedisPy, "lock:")]);
    let trial = |(peer, prefix): (Client, &'static str)| {
        let found = peer.found();
        let skip = ignored(&found);
        let prefixed = if prefix.is_empty() { "bare_key" } else { "prefixed_key" };
        let run = move || found.map_err(Failed::from).and_then(|()| crowd(peer, prefix));
        Trial::test(format!("crowd::{}::{prefixed}", peer.name()), run).with_ignored_flag(skip)
    };
    let control = Trial::test("crowd::two_keys_are_found_out", || {
        Client::Rslock.found()?;
        two_keys()
    });
    crowds.map(trial).chain([control.with_ignored_flag(ignored(&Client::Rslock.found()))]).collect()
}

/// The control: two sides that share no key exclude nobody, and whoever judges must see it.
fn two_keys() -> Result<(), Failed> {
    let run = Run::play(Client::Rslock, "", "another/key", Duration::from_secs(6))?;
    let verdict = judge(&run.events, &Rules::from([Rule::Belief, Rule::Updates]))?;
    assert_eq!(verdict.broken(), [Rule::Belief, Rule::Updates].into(), "{verdict}");
    Ok(())
}

fn crowd(peer: Client, prefix: &str) -> Result<(), Failed> {
    let time = env::var("CROWD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    for _ in 0..3 {
        let run = Run::play(peer, prefix, &format!("{prefix}{LOCK}"), Duration::from_secs(time))?;
        run.judge(peer)?;
        match run.judge_updates(peer) {
            Err(_) if run.late > 0 => {
                println!("{}: {} writes were late, played again", peer.name(), run.late)
            }
            verdict => return verdict,
        }
    }
    Err("in three runs a process was kept from running for most of a lease; give the machine less to do"
        .into())
}

/// Where both sides meet.
enum Server {
    Redis(Box<redis::Redis>),
    Etcd(Box<etcd::Etcd>),
}

impl Server {
    fn start(peer: Client) -> Result<Self, Failed> {
        Ok(match peer {
            Client::Etcdctl => Self::Etcd(Box::new(etcd::Etcd::start(etcd::Options::default())?)),
            _ => Self::Redis(Box::new(redis::Redis::start(redis::Options::default())?)),
        })
    }

    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Etcd(server) => server.url(),
        }
    }

    /// Such that the name is the peer's.
    fn our_url(&self, prefix: &str) -> String {
        let option = match self {
            Self::Redis(_) if prefix.is_empty() => "?prefix=",
            Self::Redis(_) => "",
            Self::Etcd(_) => "?names=raw",
        };
        self.url() + option
    }

    /// Leases of etcd are whole seconds, and renewed on both sides.
    fn ttl_ms(&self) -> u64 {
        match self {
            Self::Redis(_) => TTL_MS,
            Self::Etcd(_) => 2 * TTL_MS,
        }
    }
}

/// What happened in one run.
struct Run {
    events: Vec<Event>,
    kills: BTreeMap<&'static str, usize>,
    late: usize,
}

impl Run {
    fn play(peer: Client, prefix: &str, key: &str, time: Duration) -> Result<Self, Failed> {
        let server = Server::start(peer)?;
        let home = home("interop")?;
        fs::write(home.path().join("resource"), "")?;
        let task = |url: String, key: String| Task::new(home.path(), LOCK, url, key, server.ttl_ms());
        let ours = server.our_url(prefix);
        let tasks = BTreeMap::from([
            (Client::Fencepost.name(), (Client::Fencepost, task(ours, LOCK.into()))),
            (peer.name(), (peer, task(server.url(), key.into()))),
        ]);
        let mut scene = Scene::new(home.path())?;
        for (client, task) in tasks.values() {
            for _ in 0..SIDE {
                scene.add(*client, task)?;
            }
        }
        let end = now_ns() + time.as_nanos() as u64;
        let mut sides = tasks.values().cycle();
        let mut kills = BTreeMap::new();
        while now_ns() < end {
            thread::sleep(Duration::from_millis(2500));
            let (client, task) = sides.next().expect("two sides");
            if let Some(holder) = scene.holder(*client, end) {
                scene.kill(&holder)?;
                scene.add(*client, task)?;
                *kills.entry(client.name()).or_default() += 1;
            }
        }
        let players: Vec<String> = scene.players.keys().cloned().collect();
        players.iter().try_for_each(|player| scene.kill(player))?;
        scene.finish(&home.path().join("resource"), kills)
    }

    fn judge(&self, peer: Client) -> Result<(), Failed> {
        let verdict = judge(&self.events, &Rules::from([Rule::Belief]))?;
        if !verdict.holds() {
            return Err(format!("beliefs overlap: {verdict}").into());
        }
        let mine = |event: &&Event| event.lane.starts_with(Client::Fencepost.name());
        let ours: Vec<Event> = self.events.iter().filter(mine).cloned().collect();
        let verdict = judge(&ours, &Rules::from([Rule::Leased, Rule::Tokens]))?;
        if !verdict.holds() {
            return Err(format!("our tokens do not rise: {verdict}").into());
        }
        let (grants, kills) = FEW;
        for client in [Client::Fencepost, peer] {
            let (had, killed) = (self.grants(client), self.kills.get(client.name()).copied().unwrap_or(0));
            println!("{} beside {}: {had} grants, {killed} holders killed", client.name(), peer.name());
            if had < grants || killed < kills {
                return Err(format!("too few for {}: {had} grants, {killed} kills", client.name()).into());
            }
        }
        Ok(())
    }

    fn judge_updates(&self, peer: Client) -> Result<(), Failed> {
        let verdict = judge(&self.events, &Rules::from([Rule::Updates]))?;
        println!("{}: {} updates confirmed, {} lost", peer.name(), verdict.acknowledged, verdict.lost);
        if verdict.holds() { Ok(()) } else { Err(verdict.to_string().into()) }
    }

    fn grants(&self, client: Client) -> usize {
        let lane = format!("{}/", client.name());
        let granted = |event: &&Event| {
            event.kind == Kind::Acquire && event.outcome == Some(Outcome::Ok) && event.lane.starts_with(&lane)
        };
        self.events.iter().filter(granted).count()
    }
}

/// The players, and the history as far as it is read.
struct Scene {
    players: BTreeMap<String, Process>,
    history: BufReader<fs::File>,
    recorder: Recorder,
    events: Vec<Event>,
    /// The claims that have not come to their end, by the lane of their owner; true if granted.
    open: BTreeMap<String, BTreeMap<String, bool>>,
}

impl Scene {
    fn new(home: &Path) -> Result<Self, Failed> {
        let path = home.join("history");
        let recorder = Recorder::append(&path)?;
        let history = BufReader::new(fs::File::open(path)?);
        Ok(Self { players: BTreeMap::new(), history, recorder, events: Vec::new(), open: BTreeMap::new() })
    }

    fn add(&mut self, client: Client, task: &Task) -> Result<(), Failed> {
        let process = task.start(client)?;
        self.players.insert(format!("{}/{}", client.name(), process.id()), process);
        Ok(())
    }

    /// Waits for a holder of this side.
    fn holder(&mut self, client: Client, end: u64) -> Option<String> {
        let side = format!("{}/", client.name());
        while now_ns() < end {
            self.read_on();
            let holds = |(_, claims): &(&String, &BTreeMap<String, bool>)| claims.values().any(|held| *held);
            let of_side = |(lane, _): &(&String, &BTreeMap<String, bool>)| lane.starts_with(&side);
            if let Some((lane, _)) = self.open.iter().filter(of_side).find(holds) {
                return Some(lane.clone());
            }
            thread::sleep(Duration::from_micros(500));
        }
        None
    }

    /// Kills a player, and notes for it that it believes in nothing any more.
    fn kill(&mut self, lane: &str) -> Result<(), Failed> {
        let mut process = self.players.remove(lane).ok_or("it is among the players")?;
        // Fails, with the last lines of its log, if it has ended by itself.
        process.pause()?;
        process.kill()?;
        self.read_on();
        for claim in self.open.remove(lane).unwrap_or_default().into_keys() {
            let about = Event {
                lock: Some(LOCK.into()),
                claim: Some(claim),
                ..Event::at(now_ns(), lane, Kind::Release)
            };
            self.recorder.record(Event { phase: Some(Phase::Invoke), ..about })?;
        }
        Ok(())
    }

    /// Takes in what was written since the last time, whole lines only.
    fn read_on(&mut self) {
        let mut line = String::new();
        while self.history.read_line(&mut line).is_ok_and(|read| read > 0) {
            if !line.ends_with('\n') {
                let back = -(line.len() as i64);
                self.history.seek_relative(back).expect("the history is a file");
                return;
            }
            for event in read(line.as_bytes()) {
                self.take_in(event.expect("an event"));
            }
            line.clear();
        }
    }

    fn take_in(&mut self, event: Event) {
        if let Some(claim) = &event.claim {
            let claims = self.open.entry(event.lane.clone()).or_default();
            match (event.kind, event.phase, event.outcome) {
                (Kind::Acquire, Some(Phase::Invoke), _) => {
                    claims.insert(claim.clone(), false);
                }
                (Kind::Acquire, _, Some(Outcome::Ok)) => {
                    claims.insert(claim.clone(), true);
                }
                (Kind::Acquire | Kind::Release, ..) => {
                    claims.remove(claim);
                }
                _ => {}
            }
        }
        self.events.push(event);
    }

    fn finish(mut self, resource: &Path, kills: BTreeMap<&'static str, usize>) -> Result<Run, Failed> {
        self.read_on();
        let state = fs::read_to_string(resource)?.lines().map(Into::into).collect();
        let end = Event {
            lock: Some(LOCK.into()),
            state: Some(state),
            ..Event::at(now_ns(), "resource", Kind::Final)
        };
        self.events.push(end);
        let late = late(&self.events);
        Ok(Run { events: self.events, kills, late })
    }
}

/// How many writes may have ended after their owner's deadline: those whose writer says so, and those whose writer was
/// killed in the midst of it, later than its deadline.
fn late(events: &[Event]) -> usize {
    let (mut deadlines, mut writing, mut late) = (BTreeMap::new(), BTreeSet::new(), 0);
    for event in events {
        let claim = event.claim.as_deref().unwrap_or_default();
        match (event.kind, event.phase) {
            (Kind::Acquire | Kind::Renew, Some(Phase::Return)) => {
                deadlines.extend(event.deadline_ns.map(|deadline| (claim, deadline)));
            }
            (Kind::Write, Some(Phase::Invoke)) => {
                writing.insert(claim);
            }
            (Kind::Write, Some(Phase::Return)) => {
                writing.remove(claim);
                late += usize::from(event.outcome == Some(Outcome::Unknown));
            }
            (Kind::Release, Some(Phase::Invoke)) => {
                let killed = writing.remove(claim);
                late += usize::from(killed && deadlines.get(claim).is_some_and(|end| event.t_ns >= *end));
            }
            _ => {}
        }
    }
    late
}
