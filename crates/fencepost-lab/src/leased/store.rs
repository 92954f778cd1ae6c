//! What the server knows, as a pure machine: requests and the time go in, answers and pushes come out.
//!
//! Invariants:
//! 1. The holder of a lock is the first of its line, and has a token; nobody else in the line has one.
//! 2. A token is minted in the step that makes a claim the holder, above every token before it.
//! 3. Nobody is made the holder whose own lease or session has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fencepost::{Owner, Token};
use serde::{Deserialize, Serialize};

use super::wire::{Answer, Ask, Enter, Holding, Life, Line, LockNameText, Mark, Push};

/// Tells the server's connections apart.
pub(super) type ConnId = u64;

/// Moments are nanoseconds of the lab's clock, which the processes of one machine share.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Store {
    lineage: String,
    last_token: u64,
    lines: BTreeMap<String, Vec<Member>>,
    sessions: BTreeMap<String, Session>,
    /// Claims that were withdrawn before they arrived, and until when they are refused.
    tombstones: BTreeMap<String, u64>,
    #[serde(skip)]
    observers: BTreeSet<(String, ConnId)>,
    #[serde(skip)]
    pushes: Vec<(ConnId, Push)>,
}

#[derive(Serialize, Deserialize)]
struct Member {
    claim: String,
    owner: Owner,
    life: Life,
    /// When its own lease ends; of no meaning on a session.
    until: u64,
    token: Option<Token>,
    conn: ConnId,
    attended: bool,
}

#[derive(Serialize, Deserialize)]
struct Session {
    ttl: Duration,
    until: u64,
    conn: ConnId,
}

impl Store {
    pub(super) fn new(lineage: String) -> Self {
        Self { lineage, ..Self::default() }
    }

    /// The pushes that have come up since the last call.
    pub(super) fn take_pushes(&mut self) -> Vec<(ConnId, Push)> {
        std::mem::take(&mut self.pushes)
    }

    pub(super) fn forget(&mut self, conn: ConnId) {
        self.observers.retain(|(_, observer)| *observer != conn);
    }

    /// Carries out one request.
    pub(super) fn handle(&mut self, now: u64, conn: ConnId, ask: Ask) -> Answer {
        self.sweep(now);
        match ask {
            Ask::Hello { .. } => Answer::Lineage(self.lineage.clone()),
            Ask::Open { session, ttl } => {
                self.sessions.insert(session, Session { ttl, until: after(now, ttl), conn });
                Answer::Done
            }
            Ask::Enter(enter) => self.enter(now, conn, enter),
            Ask::Renew { life, claims } => self.renew(now, conn, &life, &claims),
            Ask::Attend { claims } => {
                for mark in claims {
                    if let Some(holder) = self.holder_mut(&mark) {
                        holder.attended = true;
                    }
                }
                Answer::Done
            }
            Ask::Proclaim { mark, owner } => self.proclaim(&mark, owner),
            Ask::Leave { mark, tombstone } => self.leave(now, mark, tombstone),
            Ask::Close { session } => {
                self.sessions.remove(&session);
                self.sweep(now);
                Answer::Done
            }
            Ask::Inspect { lock } => Answer::Locks(vec![self.line(now, &lock)]),
            Ask::List { prefix } => {
                let found = self.lines.keys().filter(|lock| lock.starts_with(&prefix));
                Answer::Locks(found.map(|lock| self.line(now, lock)).collect())
            }
            Ask::ForceUnlock { lock } => {
                let holder = self.holding(now, &lock);
                self.remove(&lock, |member| member.token.is_some());
                Answer::ForcedOut { holder, token: self.mint(None) }
            }
            Ask::Observe { lock } => {
                self.observers.insert((lock, conn));
                Answer::Done
            }
            Ask::Control(_) => Answer::Done,
        }
    }

    /// Ends what has run out.
    pub(super) fn sweep(&mut self, now: u64) {
        self.tombstones.retain(|_, until| now < *until);
        let pushes = &mut self.pushes;
        self.sessions.retain(|id, session| {
            let lives = now < session.until;
            if !lives {
                pushes.push((session.conn, Push::Ended(id.clone())));
            }
            lives
        });
        let locks: Vec<String> = self.lines.keys().cloned().collect();
        for lock in locks {
            let sessions: BTreeSet<String> = self.sessions.keys().cloned().collect();
            self.remove(&lock, |member| match &member.life {
                Life::Own(_) => now >= member.until,
                Life::Session(id) => !sessions.contains(id),
            });
        }
    }

    /// Ends the leases of some of those who stand at `lock`: of the holder, or of those who wait.
    pub(super) fn expire(&mut self, now: u64, lock: &str, holder: bool) {
        for member in self.lines.get_mut(lock).into_iter().flatten() {
            if member.token.is_some() == holder {
                member.until = now;
                if let Life::Session(id) = &member.life
                    && let Some(session) = self.sessions.get_mut(id)
                {
                    session.until = now;
                }
            }
        }
        self.sweep(now);
    }

    /// Removes the holder as a careless operator would.
    pub(super) fn delete(&mut self, lock: &str) {
        self.remove(lock, |member| member.token.is_some());
    }

    fn enter(&mut self, now: u64, conn: ConnId, enter: Enter) -> Answer {
        let Enter { mark, life, owner, floor, wait } = enter;
        if self.tombstones.contains_key(&mark.claim) {
            return Answer::Gone;
        }
        let until = match &life {
            Life::Own(ttl) => after(now, *ttl),
            Life::Session(id) if self.sessions.contains_key(id) => u64::MAX,
            Life::Session(_) => return Answer::NoLease,
        };
        let line = self.lines.entry(mark.lock.clone()).or_default();
        let known = line.iter().position(|member| member.claim == mark.claim);
        let place = known.unwrap_or(line.len());
        if let Some(member) = line.get_mut(place) {
            (member.until, member.conn) = (until, conn);
        } else if place == 0 || wait {
            let claim = mark.claim;
            line.push(Member { claim, owner, life, until, token: None, conn, attended: false });
            self.changed(&mark.lock);
        }
        if place > 0 {
            return Answer::Held(self.holding(now, &mark.lock));
        }
        let holder = &self.lines[&mark.lock][0];
        if let Some(token) = holder.token {
            return Answer::Granted(token);
        }
        let token = self.mint(floor);
        self.lines.get_mut(&mark.lock).expect("it was found above")[0].token = Some(token);
        self.changed(&mark.lock);
        Answer::Granted(token)
    }

    fn renew(&mut self, now: u64, conn: ConnId, life: &Life, claims: &[Mark]) -> Answer {
        if let Life::Session(id) = life {
            let Some(session) = self.sessions.get_mut(id) else { return Answer::NoLease };
            (session.until, session.conn) = (after(now, session.ttl), conn);
        }
        let renewed = claims.iter().map(|mark| match (self.holder_mut(mark), life) {
            (None, _) => false,
            (Some(holder), Life::Session(_)) => {
                holder.conn = conn;
                true
            }
            (Some(holder), Life::Own(ttl)) => {
                (holder.until, holder.conn) = (after(now, *ttl), conn);
                true
            }
        });
        Answer::Renewed(renewed.collect())
    }

    fn proclaim(&mut self, mark: &Mark, owner: Owner) -> Answer {
        let Some(holder) = self.holder_mut(mark) else { return Answer::Proclaimed(false) };
        holder.owner = owner;
        self.changed(&mark.lock);
        Answer::Proclaimed(true)
    }

    fn leave(&mut self, now: u64, mark: Mark, tombstone: Duration) -> Answer {
        let was_there = self.remove(&mark.lock, |member| member.claim == mark.claim);
        if !was_there {
            self.tombstones.insert(mark.claim, after(now, tombstone));
        }
        Answer::Left(was_there)
    }

    /// Removes members of a line, tells a holder among them, and wakes the one whose turn it now is.
    fn remove(&mut self, lock: &str, mut out: impl FnMut(&Member) -> bool) -> bool {
        let Some(line) = self.lines.get_mut(lock) else { return false };
        let before = line.len();
        let pushes = &mut self.pushes;
        line.retain(|member| {
            let goes = out(member);
            if goes && member.attended {
                pushes.push((member.conn, Push::Gone(member.claim.clone())));
            }
            !goes
        });
        if line.len() == before {
            return false;
        }
        match line.first() {
            Some(head) if head.token.is_none() => pushes.push((head.conn, Push::Poke(head.claim.clone()))),
            Some(_) => {}
            None => drop(self.lines.remove(lock)),
        }
        self.changed(lock);
        true
    }

    fn changed(&mut self, lock: &str) {
        for (_, conn) in self.observers.iter().filter(|(observed, _)| observed == lock) {
            self.pushes.push((*conn, Push::Changed(lock.to_owned())));
        }
    }

    /// A floor that nothing can exceed is not obeyed; the client then refuses the grant.
    fn mint(&mut self, floor: Option<Token>) -> Token {
        let above_floor = floor.and_then(|floor| floor.get().checked_add(1)).unwrap_or(0);
        self.last_token = above_floor.max(self.last_token + 1);
        Token::new(self.last_token).expect("a counter that was incremented is not 0")
    }

    fn holder_mut(&mut self, mark: &Mark) -> Option<&mut Member> {
        let first = self.lines.get_mut(&mark.lock)?.first_mut()?;
        (first.claim == mark.claim && first.token.is_some()).then_some(first)
    }

    fn holding(&self, now: u64, lock: &str) -> Option<Holding> {
        let first = self.lines.get(lock)?.first()?;
        let until = match &first.life {
            Life::Own(_) => first.until,
            Life::Session(id) => self.sessions.get(id)?.until,
        };
        let expires_in = Duration::from_nanos(until.saturating_sub(now));
        Some(Holding { token: first.token?, owner: first.owner.clone(), expires_in })
    }

    fn line(&self, now: u64, lock: &str) -> Line {
        let members = self.lines.get(lock).into_iter().flatten();
        Line {
            lock: LockNameText(lock.parse().expect("only legal names are sent")),
            holder: self.holding(now, lock),
            waiters: members.filter(|member| member.token.is_none()).map(|m| m.owner.clone()).collect(),
        }
    }
}

fn after(now: u64, ttl: Duration) -> u64 {
    now.saturating_add(u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX))
}
