//! Sixteen processes take and give back a few locks as fast as they can while random ones are killed, judged by the checker.
//!
//! `PAIRS` sets how many pairs of acquire and release there are: 20,000 as a rule, a million before a release. They are judged
//! round by round, so that no history grows beyond memory.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use fencepost_lab::checker::{Rule, Rules, judge};
use fencepost_lab::clock::now_ns;
use fencepost_lab::history::{Event, Kind, Phase, Recorder, read};
use fencepost_lab::server::ignored;
use fencepost_lab::server::redis::{Redis, installed};
use libtest_mimic::Trial;

use crate::player::Player;
use crate::process::Client;
use crate::scene::{LONG, locker, ms, nothing_is_left, now, pass, server};

const PROCESSES: usize = 16;
const LOCKS: u64 = 8;
const TTL: Duration = ms(500);
const KILL_EVERY: Duration = ms(150);

/// What four events take, more or less.
const BYTES_OF_A_PAIR: u64 = 600;

/// How many pairs are judged at once.
const ROUND: usize = 50_000;

pub(crate) fn trials() -> Vec<Trial> {
    let found = installed();
    let skip = ignored(&found);
    let run = move || {
        found?;
        let pairs = std::env::var("PAIRS").map_or(20_000, |pairs| pairs.parse().expect("a number"));
        storm(pairs);
        Ok(())
    };
    vec![Trial::test("storm::sixteen_processes_and_random_kills", run).with_ignored_flag(skip)]
}

fn storm(pairs: usize) {
    let server = server();
    let (started, mut grants, mut kills) = (now(), 0, 0);
    while grants < pairs {
        let (more, killed) = round(&server, ROUND.min(pairs - grants), grants as u64);
        grants += more;
        kills += killed;
        println!("{grants} pairs, {kills} kills, {:.0?}", now().since(started));
    }
    // What is known of those who were killed in line ends by itself.
    nothing_is_left(&server, ms(60_000));
}

/// Plays until there are so many pairs, and judges them. Answers the grants and the kills.
fn round(server: &Redis, pairs: usize, seed: u64) -> (usize, usize) {
    let home = tempfile::tempdir().expect("a directory");
    let history = |lane: &str| home.path().join(lane);
    let start = |number: usize, life: usize| {
        let lane = format!("p{number}-{life}");
        let task =
            format!("storm {} {lane} {} {}", server.url(), history(&lane).display(), seed + number as u64);
        (lane, Client::start(&task))
    };
    let mut clients: Vec<(String, Client)> = (0..PROCESSES).map(|number| start(number, 0)).collect();
    let mut random = seed ^ 0x9E37_79B9_7F4A_7C15;
    let (mut kills, deadline) = (0, now() + LONG * 30);
    while written(home.path()) < pairs as u64 * BYTES_OF_A_PAIR {
        assert!(now() < deadline, "the storm is becalmed");
        pass(KILL_EVERY);
        random = next(random);
        let victim = (random % PROCESSES as u64) as usize;
        let (lane, client) = &mut clients[victim];
        let at = now_ns();
        client.kill();
        end_of(&history(lane), lane, at);
        kills += 1;
        clients[victim] = start(victim, kills);
    }
    for (lane, client) in &mut clients {
        let at = now_ns();
        client.kill();
        end_of(&history(lane), lane, at);
    }
    drop(clients);
    let files = std::fs::read_dir(home.path()).expect("a directory");
    let events: Vec<Event> = files.flat_map(|file| events_of(&file.expect("a file").path())).collect();
    let rules = Rules::from([Rule::Leased, Rule::Tokens, Rule::Belief]);
    let verdict = judge(&events, &rules).expect("a history");
    assert!(verdict.holds(), "{verdict}");
    (verdict.grants, kills)
}

/// How much history there is: the checker counts the pairs in the end.
fn written(home: &Path) -> u64 {
    let files = std::fs::read_dir(home).expect("a directory");
    files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len()).sum()
}

fn events_of(path: &Path) -> Vec<Event> {
    let file = BufReader::new(File::open(path).expect("it was written"));
    read(file).map(|event| event.expect("an event")).collect()
}

/// A killed process believes nothing from then on: its killer writes that down.
fn end_of(path: &Path, lane: &str, at: u64) {
    if !path.exists() {
        return;
    }
    let events = events_of(path);
    let Some(last) = events.iter().rfind(|event| event.kind == Kind::Acquire) else { return };
    let is_released = events.iter().any(|event| event.kind == Kind::Release && event.claim == last.claim);
    if last.phase == Some(Phase::Return) && last.token.is_some() && !is_released {
        let end = Event {
            phase: Some(Phase::Invoke),
            lock: last.lock.clone(),
            claim: last.claim.clone(),
            ..Event::at(at.max(last.t_ns + 1), lane, Kind::Release)
        };
        Recorder::append(path).and_then(|recorder| recorder.record(end)).expect("the history takes it");
    }
}

/// What one of the processes does until it is killed.
pub(crate) fn work(url: &str, lane: &str, history: &Path, seed: u64) {
    let recorder = Recorder::append(history).expect("a file");
    let player = Player::new(lane, locker(url), &recorder);
    let mut random = seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
    loop {
        random = next(random);
        let lock = format!("storm-{}", random % LOCKS);
        // A machine that stands still for a lease loses the lock; that is no fault, and the checker sees the rest.
        if let Ok(held) = player.acquire(&lock, TTL, LONG) {
            let _ = player.release(held);
        }
    }
}

/// Marsaglia's xorshift.
fn next(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ (x << 17)
}
