//! Entering: how a claim asks, and, while it stands in line, when it must ask again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Redis,
    keys::Keys,
    millis,
    record::{Held, flag_of},
    routes::{HEARTBEAT, OFFER, Seat, first_looks_again},
    scripts::ENTER,
    term, unexpected,
};
use crate::{
    claim::Claim,
    driver::{Entered, Fail, Intent},
    redis::{Command, Reply, one},
    token::Token,
};

/// How often those ask who cannot be told.
const POLL: Duration = Duration::from_millis(50);

/// As [`HEARTBEAT`], where a dead one cannot be found out by telling it something.
const POLLERS_HEARTBEAT: Duration = Duration::from_secs(1);

/// Lua's numbers are exact up to here.
const MAX_FLOOR: u64 = 1 << 52;

impl Redis {
    pub(super) async fn ask_to_enter(&self, claim: &Arc<Claim>, intent: Intent) -> Result<Entered, Fail> {
        let keys = self.keys(claim)?;
        if intent == Intent::Wait {
            if let Some(recheck) = self.routes.quiet(keys.lock(), claim, self.heartbeat() / 2) {
                return Ok(Entered::Queued { recheck, holder: None });
            }
            // Before the request: what is pushed may be here before the reply is looked at.
            self.routes.add(keys.lock(), claim);
        }
        let enter = self.enter_command(&keys, claim, intent)?;
        let news = news_of(claim);
        let reply = ENTER.run(&*self.transport, enter.clone()).await?;
        if reply.list().first().and_then(Reply::text) != Some("queued") {
            return self.read(&reply);
        }
        self.stand(&keys, claim, enter, reply, news).await
    }

    fn enter_command(&self, keys: &Keys, claim: &Claim, intent: Intent) -> Result<Command, Fail> {
        let floor = claim.floor().map_or(0, Token::get);
        if floor > MAX_FLOOR {
            let text =
                format!("redis cannot mint a token above floor={floor}; the highest floor is {MAX_FLOOR}");
            return Err(Fail::Invalid(text));
        }
        let owner = serde_json::to_string(claim.owner()).map_err(|e| Fail::Internal(e.to_string()))?;
        let (id, left) = (claim.id().to_hex(), keys.left(claim.id()));
        let flag = flag_of(!self.is_mute.load(Ordering::Relaxed));
        let record = [" ", &self.locker, " ", flag, " ", &owner].concat();
        let ear = if self.is_deaf() { "polls" } else { "hears" };
        let wait = match intent {
            Intent::Try => "try".into(),
            Intent::Wait => format!("{ear} {}", millis(self.heartbeat() * 3)),
        };
        let args = ["enter", &id, &millis(term(claim.lease())), &floor.to_string(), &record, &wait];
        Ok(ENTER.command(&keys.with(&left), &args))
    }

    /// Reads an answer other than `queued`.
    fn read(&self, reply: &Reply) -> Result<Entered, Fail> {
        match reply.list() {
            [word, token, rest @ ..] if word.text() == Some("granted") => {
                if let [is_blank, is_mute] = rest {
                    self.heed(is_mute);
                    if is_blank.int() == Some(1) {
                        self.restore_lineage();
                    }
                }
                let token = token.text().and_then(|text| text.parse().ok());
                token.map(|token| Entered::Granted { token }).ok_or_else(|| unexpected(reply))
            }
            [word, left, held, is_mute] if word.text() == Some("busy") => {
                self.heed(is_mute);
                let holder = Held::read(held, left).map(|held| held.holder);
                Ok(Entered::Busy { retry: POLL, holder })
            }
            [word] if word.text() == Some("gone") => Ok(Entered::Gone),
            _ => Err(unexpected(reply)),
        }
    }

    /// Settles a claim in line: lets it be told, and finds when it must ask again.
    async fn stand(
        &self,
        keys: &Keys,
        claim: &Arc<Claim>,
        enter: Command,
        mut reply: Reply,
        mut news: u64,
    ) -> Result<Entered, Fail> {
        if self.listens().await? {
            news = news_of(claim);
            // What was published before may be missed.
            reply = ENTER.run(&*self.transport, enter.clone()).await?;
        }
        let tells = |reply: &Reply| match reply.list() {
            [_, left, held, ..] => {
                Held::read(held, left).is_none_or(|held| held.tells && held.holder.expires_in.is_some())
            }
            _ => true,
        };
        let mut is_tracked = false;
        if self.is_first(claim, &reply) && !tells(&reply) && self.transport.tracks() {
            // Nobody will say when this lock is given back; but the server can tell of the key itself.
            news = news_of(claim);
            let caching = Command::new("CLIENT").arg("CACHING").arg("YES");
            reply = one(ENTER.run_all(&*self.transport, vec![enter], Some(&caching)).await?)?.ok()?;
            is_tracked = true;
        }
        let [word, left, held, is_mute, first, is_new, is_late] = reply.list() else {
            return self.read(&reply);
        };
        if word.text() != Some("queued") {
            return Err(unexpected(&reply));
        }
        self.heed(is_mute);
        let now = claim.now();
        let held = Held::read(held, left);
        let is_first = self.is_first(claim, &reply);
        let was_queued = claim.seat(|seat: &mut Seat| std::mem::replace(&mut seat.is_queued, true));
        self.routes.beat(keys.lock(), now);
        if (is_new.int() == Some(1) && was_queued) || is_late.int() == Some(1) {
            self.routes.stir_line(keys.lock(), now);
        } else if !is_first
            && let Some(other) = first.text().and_then(|first| first.strip_prefix(&self.locker))
        {
            self.routes.is_first(other);
        }
        let deaf = self.is_deaf();
        let recheck = match &held {
            // Free, and offered to another, or the scripts had too many dead to look at.
            None if left.int() == Some(1) => Duration::from_millis(1),
            None if deaf => self.jitter(POLL),
            None => OFFER,
            Some(_) if !is_first && deaf => self.jitter(POLLERS_HEARTBEAT / 2),
            Some(_) if !is_first => self.jitter(HEARTBEAT / 2),
            Some(_) if !deaf && (is_tracked || tells(&reply)) => {
                first_looks_again(held.as_ref().and_then(|held| held.holder.expires_in).unwrap_or(HEARTBEAT))
            }
            Some(_) => self.jitter(POLL),
        };
        claim.seat(|seat: &mut Seat| {
            // What was pushed since the request was sent may be later than this answer, and has poked the claim.
            if seat.news == news {
                seat.is_first = is_first;
                seat.leans = !is_first && held.is_some();
                seat.quiet_until = Some(now + recheck);
            }
        });
        Ok(Entered::Queued { recheck, holder: held.map(|held| held.holder) })
    }

    fn is_first(&self, claim: &Claim, reply: &Reply) -> bool {
        let first = reply.list().get(4).and_then(Reply::text).unwrap_or_default();
        first.strip_prefix(&self.locker).is_some_and(|id| id == claim.id().to_hex())
    }

    /// Makes sure that this locker is told; true if it was not until now.
    async fn listens(&self) -> Result<bool, Fail> {
        if self.is_deaf() {
            return Ok(false);
        }
        match self.transport.subscribe(&self.channel).await {
            Err(Fail::Unsupported(why) | Fail::Denied(why)) => {
                if self.deaf_at.swap(self.routes.cuts(), Ordering::Relaxed) == u64::MAX {
                    tracing::warn!(server = %self.transport.name(), %why, "nothing can be told to this locker: waiting for a lock falls back to polling");
                }
                Ok(true)
            }
            subscribed => subscribed,
        }
    }

    /// Whether nothing can be told to this locker, as far as it knows.
    fn is_deaf(&self) -> bool {
        self.deaf_at.load(Ordering::Relaxed) == self.routes.cuts()
    }

    fn heartbeat(&self) -> Duration {
        if self.is_deaf() { POLLERS_HEARTBEAT } else { HEARTBEAT }
    }

    /// Between `base` and twice that.
    fn jitter(&self, base: Duration) -> Duration {
        base + base * (self.host.random() % 1000) as u32 / 1000
    }
}

/// What the claim was told so far. From here on only the answer to the request that follows says what need not be asked.
fn news_of(claim: &Claim) -> u64 {
    claim.seat(|seat: &mut Seat| {
        seat.leans = false;
        seat.quiet_until = None;
        seat.news
    })
}
