//! The simulated lock service: a pure state machine. One call, one atomic step at the server.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A lock service that grants in the order of arrival and forgets claims whose time is over.
#[derive(Debug, Default)]
pub(super) struct Service {
    /// Whether claims hang on sessions, or expire one by one.
    pub(super) sessions_only: bool,
    counter: u64,
    lines: BTreeMap<String, Vec<Entry>>,
    /// Claims that left, if they are remembered: a late request must not bring them back.
    left: Option<BTreeSet<String>>,
    sessions: BTreeMap<String, Duration>,
}

#[derive(Debug)]
struct Entry {
    id: String,
    session: String,
    until: Duration,
    token: Option<u64>,
}

/// A claim that was taken away.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) id: String,
    pub(super) token: Option<u64>,
}

impl From<Entry> for Taken {
    fn from(entry: Entry) -> Self {
        Self { id: entry.id, token: entry.token }
    }
}

/// A request to enter.
#[derive(Clone, Debug)]
pub(super) struct Enter {
    /// The claim's id.
    pub(super) id: String,
    /// The lock's name.
    pub(super) lock: String,
    /// The lease it hangs on.
    pub(super) session: String,
    /// How long the claim lives unless it is heard of again.
    pub(super) ttl: Duration,
    /// What the token must exceed.
    pub(super) floor: u64,
    /// Whether it leaves again if it cannot be granted.
    pub(super) only_try: bool,
    /// Whether the claim has been in line before.
    pub(super) again: bool,
}

/// What became of an enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// Holder, with this token.
    Granted(u64),
    /// In line.
    Queued,
    /// Held, and not in line.
    Busy,
    /// It was in line and is no more.
    Gone,
    /// Its session is gone.
    NoSession,
}

impl Service {
    /// An empty service.
    pub(super) fn new(sessions_only: bool, remembers_who_left: bool) -> Self {
        Self { sessions_only, left: remembers_who_left.then(BTreeSet::new), ..Self::default() }
    }

    /// Opens a session, or touches it.
    pub(super) fn open(&mut self, session: &str, ttl: Duration, now: Duration) {
        self.sessions.insert(session.into(), now + ttl);
    }

    /// Prolongs a session that exists.
    pub(super) fn touch(&mut self, session: &str, ttl: Duration, now: Duration) -> bool {
        self.expire(now);
        match self.sessions.get_mut(session) {
            Some(until) => {
                *until = now + ttl;
                true
            }
            None => false,
        }
    }

    /// Ends a session and its claims.
    pub(super) fn close(&mut self, session: &str) {
        self.sessions.remove(session);
        self.drop_if(|entry| entry.session == session);
    }

    /// Makes a claim known, or hears of it again, and says where it stands.
    pub(super) fn enter(&mut self, enter: &Enter, now: Duration) -> Entered {
        self.expire(now);
        if self.sessions_only && !self.sessions.contains_key(&enter.session) {
            return Entered::NoSession;
        }
        if self.left.as_ref().is_some_and(|left| left.contains(&enter.id)) {
            return Entered::Gone;
        }
        let line = self.lines.entry(enter.lock.clone()).or_default();
        let place = match line.iter().position(|entry| entry.id == enter.id) {
            Some(place) => place,
            None if enter.again => return Entered::Gone,
            None if enter.only_try && !line.is_empty() => return Entered::Busy,
            None => {
                let (id, session) = (enter.id.clone(), enter.session.clone());
                line.push(Entry { id, session, until: now + enter.ttl, token: None });
                line.len() - 1
            }
        };
        let entry = &mut line[place];
        entry.until = now + enter.ttl;
        if place == 0 && entry.token.is_none() {
            self.counter = self.counter.max(enter.floor) + 1;
            entry.token = Some(self.counter);
        }
        entry.token.map_or(Entered::Queued, Entered::Granted)
    }

    /// Prolongs a holder that exists.
    pub(super) fn renew(&mut self, lock: &str, id: &str, ttl: Duration, now: Duration) -> bool {
        self.expire(now);
        let holder = self.lines.get_mut(lock).and_then(|line| line.first_mut());
        match holder.filter(|entry| entry.id == id && entry.token.is_some()) {
            Some(entry) => {
                entry.until = now + ttl;
                true
            }
            None => false,
        }
    }

    /// Removes a claim, and says whether it was there.
    pub(super) fn leave(&mut self, id: &str, now: Duration) -> bool {
        self.expire(now);
        if let Some(left) = &mut self.left {
            left.insert(id.into());
        }
        self.drop_if(|entry| entry.id == id) > 0
    }

    /// Takes a lock away from its holder.
    pub(super) fn force_out(&mut self, lock: &str, now: Duration) -> Vec<Taken> {
        self.expire(now);
        let line = self.lines.get_mut(lock).filter(|line| !line.is_empty());
        line.map(|line| line.remove(0).into()).into_iter().collect()
    }

    /// Forgets every claim and session, but not the counter.
    pub(super) fn wipe(&mut self) -> Vec<Taken> {
        self.sessions.clear();
        std::mem::take(&mut self.lines).into_values().flatten().map(Taken::from).collect()
    }

    /// The token of the present holder.
    pub(super) fn holder(&mut self, lock: &str, now: Duration) -> Option<u64> {
        self.expire(now);
        self.lines.get(lock)?.first()?.token
    }

    /// Whether this claim is the holder.
    pub(super) fn is_holder(&mut self, lock: &str, id: &str, now: Duration) -> bool {
        self.expire(now);
        let holder = self.lines.get(lock).and_then(|line| line.first());
        holder.is_some_and(|entry| entry.id == id && entry.token.is_some())
    }

    /// How many stand in line behind the holder.
    pub(super) fn waiting(&mut self, lock: &str, now: Duration) -> usize {
        self.expire(now);
        self.lines.get(lock).map_or(0, |line| line.iter().filter(|entry| entry.token.is_none()).count())
    }

    /// The claims that there are.
    pub(super) fn ids(&mut self, now: Duration) -> Vec<String> {
        self.expire(now);
        self.lines.values().flatten().map(|entry| entry.id.clone()).collect()
    }

    /// The claims whose turn it is and that do not know it yet.
    pub(super) fn heads(&mut self, now: Duration) -> Vec<String> {
        self.expire(now);
        let heads = self.lines.values().filter_map(|line| line.first());
        heads.filter(|entry| entry.token.is_none()).map(|entry| entry.id.clone()).collect()
    }

    fn expire(&mut self, now: Duration) {
        self.sessions.retain(|_, until| now < *until);
        let (sessions_only, sessions) = (self.sessions_only, std::mem::take(&mut self.sessions));
        self.drop_if(
            |entry| {
                if sessions_only { !sessions.contains_key(&entry.session) } else { now >= entry.until }
            },
        );
        self.sessions = sessions;
    }

    fn drop_if(&mut self, gone: impl Fn(&Entry) -> bool) -> usize {
        let mut dropped = 0;
        for line in self.lines.values_mut() {
            let before = line.len();
            line.retain(|entry| !gone(entry));
            dropped += before - line.len();
        }
        dropped
    }
}
