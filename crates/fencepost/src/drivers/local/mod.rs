//! The embedded engine: ZooKeeper's lock recipe on a directory, with the kernel as the ensemble.
//!
//! Each claim has a ticket, a file whose lock the kernel drops when its owner ends, however it ends; the lowest live
//! ticket holds the lock. Tokens come from the tickets' counter, when the lock is taken. Nothing expires, so nothing is renewed: a holder that is
//! paused blocks until it resumes, ends or is forced out.
//!
//! Reading order: [`root`] which directory, [`names`] lock name to directory, [`place`] one lock's directory and what
//! is done under its lock, [`ticket`] the tickets, [`turn`] when to look again, [`watch`] being told, [`operate`] what
//! operators ask, [`room`] descriptors.
//!
//! Every verb is done when its future is first polled: these are system calls of some microseconds. A claim is
//! lowest or not by one search upwards from the head, so whoever looks, and not only the next in line, may pass over
//! a lowest ticket that has idled for a second; with only the next in line, two stopped waiters would block all.

mod names;
mod operate;
mod place;
mod room;
mod root;
mod ticket;
mod turn;
mod watch;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::fd::OwnedFd;

use self::{
    place::{Entry, Id, Place},
    root::{Root, Trouble},
    ticket::{Seen, Ticket},
    turn::{Patience, Told},
    watch::{Wake, Watching},
};
use crate::{
    connect::Url,
    driver::{
        About, Claim, Driver, Entered, Fail, Fut, Host, Intent, Lease, LeaseKind, Left, Level, Proclaimed,
        Renewed, Report,
    },
    error::{Error, ErrorKind},
    guard::Guard,
    name::LockName,
    owner::Owner,
    token::{Lineage, Token},
};

/// How many directories a locker keeps open.
const MAX_PLACES: usize = 64;

pub(crate) fn connect(url: Url, host: Arc<dyn Host>) -> Result<Arc<dyn Driver>, Error> {
    url.finish(&[])?;
    let invalid = |why: &str| Err(Error::new(ErrorKind::Invalid, format!("invalid url: {why}")));
    if !url.authority.is_empty() {
        return invalid("local: takes no host; write local:/path");
    }
    let path = match url.path.as_str() {
        "" => default_root()?,
        path if path.starts_with('/') => PathBuf::from(path),
        _ => return invalid("the root must be an absolute path; write local:/path"),
    };
    let lineage = Lineage::new(format!("{:016x}{:016x}", host.random(), host.random()));
    let root = Root::open(&path, lineage).map_err(|trouble| trouble.explain(&path))?;
    Ok(Arc::new(Local { root: Arc::new(root), host, places: Mutex::default() }))
}

/// The root of `local:` without a path: `/var/lib/fencepost` for the root user, otherwise `fencepost` in
/// `$XDG_STATE_HOME` or `~/.local/state`.
///
/// # Errors
///
/// `Invalid` if the environment names neither directory by an absolute path.
pub fn default_root() -> Result<PathBuf, Error> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    root_for(rustix::process::geteuid().as_raw(), var("XDG_STATE_HOME"), var("HOME")).ok_or_else(|| {
        let text = "there is no default root: neither XDG_STATE_HOME nor HOME is an absolute path; write local:/path";
        Error::new(ErrorKind::Invalid, text)
    })
}

fn root_for(user: u32, state: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if user == 0 {
        return Some("/var/lib/fencepost".into());
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = state.filter(absolute).or_else(|| Some(home.filter(absolute)?.join(".local/state")));
    Some(state?.join("fencepost"))
}

/// A copy of the descriptor that keeps `guard`'s lock alive, to be inherited by a child: the lock then stays until the
/// child too has closed it or ended, also if this process is killed. `None` if the guard is not one of `local:`, or
/// if there is no room for another descriptor.
///
/// The copy is closed on exec; clear that in the child alone. Close it here when the child has it: while it is
/// open anywhere, releasing the guard does not free the lock.
pub fn inherit(guard: &Guard) -> Option<OwnedFd> {
    guard.claim().seat_if(|seat: &mut Seat| {
        let copy = seat.ticket.as_ref()?.share().ok()?;
        seat.is_inherited = true;
        Some(copy)
    })?
}

/// The URL of a root. It is used again, by jobs and by those who read it, so it must be parsed to the same path.
fn url_of(path: &str) -> String {
    // What begins with two slashes would be taken for a host.
    let mut url = String::from(if path.starts_with("//") { "local://" } else { "local:" });
    for char in path.chars() {
        if char.is_control() || matches!(char, '%' | '?' | '#') {
            for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                url += &format!("%{byte:02X}");
            }
        } else {
            url.push(char);
        }
    }
    url
}

/// What this driver keeps for a claim.
#[derive(Default)]
struct Seat {
    ticket: Option<Ticket>,
    /// The directory in which the ticket stands.
    place: Id,
    is_inherited: bool,
    patience: Patience,
    /// The ticket that this claim waits behind, by number, and the watch on it.
    behind: Option<(u64, Option<Watching>)>,
    /// The watch on a holder's own ticket.
    guarded: Option<Watching>,
}

struct Local {
    root: Arc<Root>,
    host: Arc<dyn Host>,
    places: Mutex<HashMap<LockName, Arc<Place>>>,
}

impl Local {
    fn explain(&self, trouble: impl Into<Trouble>) -> Fail {
        trouble.into().explain(self.root.path())
    }

    fn place(&self, lock: &LockName) -> Result<Arc<Place>, Trouble> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(lock) {
            return Ok(place.clone());
        }
        let place = Arc::new(Place::open(&self.root, lock)?);
        if places.len() >= MAX_PLACES {
            places.clear();
        }
        places.insert(lock.clone(), place.clone());
        Ok(place)
    }

    fn forget(&self, lock: &LockName) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(lock);
    }

    /// Says where the claim stands, and first gives it a ticket if it has none.
    fn stand(&self, claim: &Arc<Claim>, seat: &mut Seat, intent: Intent) -> Result<Entered, Trouble> {
        if let Some(ticket) = &seat.ticket
            && let Some(token) = ticket.token
        {
            return Ok(if ticket.is_unlinked()? { Entered::Gone } else { Entered::Granted { token } });
        }
        let floor = claim.floor().map_or(0, Token::get);
        loop {
            let place = self.place(claim.lock())?;
            let mut section = match place.enter()? {
                Entry::Open(section) => section,
                Entry::Busy { retry } => return Ok(Entered::Contended { retry }),
                Entry::Stale => {
                    // Tried again by the engine, whose patience is limited, and not in a loop here.
                    self.forget(claim.lock());
                    return Ok(Entered::Contended { retry: Duration::ZERO });
                }
            };
            if let Some(ticket) = &seat.ticket
                && (seat.place != place.id() || ticket.is_unlinked()?)
            {
                return Ok(Entered::Gone);
            }
            let me = seat.ticket.as_ref().map(|ticket| ticket.number);
            let Some(lowest) = section.lowest(me)? else {
                match &mut seat.ticket {
                    Some(ticket) => section.promote(ticket, floor, claim.owner())?,
                    none => *none = Some(section.issue_held(floor, claim.owner())?),
                }
                seat.behind = None;
                let token = seat.ticket.as_ref().and_then(|ticket| ticket.token);
                return Ok(Entered::Granted { token: token.expect("the ticket was made the holder's") });
            };
            let holder = lowest.read().holder();
            if holder.is_some() {
                seat.patience.renew();
            } else if me.is_some() && seat.patience.is_over(lowest.number, claim.now()) {
                section.remove(&lowest)?;
                continue;
            }
            if intent == Intent::Try && me.is_none() {
                return Ok(Entered::Busy { retry: Duration::ZERO, holder });
            }
            let number = match me {
                Some(number) => number,
                None => {
                    seat.place = place.id();
                    seat.ticket.insert(section.issue_waiting(claim.owner())?).number
                }
            };
            let Some(before) = section.before(number)? else { continue };
            drop(section);
            if let Some(told) = self.watch(claim, seat, &place, &before)? {
                let places = if before.number == lowest.number { 1 } else { number - lowest.number };
                return Ok(Entered::Queued { recheck: seat.patience.recheck(number, places, told), holder });
            }
        }
    }

    /// Watches the ticket `before` this claim; `None` if it ended before the watch was in place.
    fn watch(
        &self,
        claim: &Arc<Claim>,
        seat: &mut Seat,
        place: &Place,
        before: &Seen,
    ) -> Result<Option<Told>, Trouble> {
        let known = seat.behind.as_ref().is_some_and(|(number, watching)| {
            // Without a watch it is tried again each time: the kernel may have room by now.
            *number == before.number && watching.is_some()
        });
        if !known {
            let wake = Wake::Waiter(Arc::downgrade(claim));
            let watching = Watching::begin(&self.host, &place.path_of(before.number), wake);
            seat.behind = Some((before.number, watching));
            if !before.is_live(place.dir())? {
                return Ok(None);
            }
        }
        let watching = seat.behind.as_ref().and_then(|(_, watching)| watching.as_ref());
        if watching.is_some_and(Watching::was_closed) {
            seat.patience.hint();
        }
        Ok(Some(if watching.is_some() { Told::ByEvents } else { Told::ByNobody }))
    }

    /// Writes the holder's record again. No directory lock is needed: a holder's record is its own, and others read a record
    /// until they have read the same twice.
    fn tell(&self, seat: &mut Seat, owner: &Owner) -> Result<Proclaimed, Trouble> {
        match &mut seat.ticket {
            Some(ticket) if ticket.token.is_some() && !ticket.is_unlinked()? => {
                ticket.proclaim(owner)?;
                Ok(Proclaimed::Written)
            }
            _ => Ok(Proclaimed::Lost),
        }
    }

    /// Ends the claim's ticket.
    fn end(&self, seat: &mut Seat) -> Result<Left, Trouble> {
        // Not watched any more before it goes, so that our own removal is not told to us.
        (seat.behind, seat.guarded) = (None, None);
        let Some(ticket) = seat.ticket.take() else { return Ok(Left::WasGone) };
        let was_there = if seat.is_inherited { ticket.disown()? } else { ticket.end()? };
        Ok(if was_there { Left::Removed } else { Left::WasGone })
    }
}

/// Tells a held claim whose ticket is no longer there.
fn verify(claim: &Arc<Claim>) {
    if claim.seat(|seat: &mut Seat| is_lost(seat)) {
        claim.gone();
    }
}

fn is_lost(seat: &Seat) -> bool {
    // A ticket that cannot be looked at is not known to be gone.
    seat.ticket.as_ref().is_some_and(|ticket| ticket.is_unlinked().unwrap_or(false))
}

impl Driver for Local {
    fn about(&self) -> About {
        About {
            scheme: "local",
            backend: url_of(&self.root.path().to_string_lossy()),
            lineage: self.root.lineage().clone(),
            lease: LeaseKind::None,
            ttl: Duration::ZERO..=Duration::MAX,
            decides: "kernel file locks on one machine",
            fifo: true,
            level: Some(Level::Tokens),
            caveat: "a paused holder blocks until it resumes or is forced out",
            leave_is_final: false,
            notice: None,
        }
    }

    fn open<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<Duration, Fail>> {
        Box::pin(async { Ok(lease.ttl()) })
    }

    fn enter<'a>(&'a self, claim: &'a Arc<Claim>, intent: Intent) -> Fut<'a, Result<Entered, Fail>> {
        Box::pin(async move {
            claim.seat(|seat| self.stand(claim, seat, intent)).map_err(|trouble| self.explain(trouble))
        })
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Arc<Lease>,
        claims: &'a [Arc<Claim>],
        report: Report<'a>,
    ) -> Fut<'a, Result<(), Fail>> {
        Box::pin(async move {
            for (index, claim) in claims.iter().enumerate() {
                let lost = claim.seat(|seat: &mut Seat| is_lost(seat));
                report(index, if lost { Renewed::Lost } else { Renewed::Extended(lease.ttl()) });
            }
            Ok(())
        })
    }

    fn attend(&self, claims: &[Arc<Claim>]) {
        for claim in claims {
            claim.seat(|seat: &mut Seat| {
                let path: Option<&Path> = seat.ticket.as_ref().map(Ticket::path);
                let wake = Wake::Holder(Arc::downgrade(claim));
                seat.guarded = path.and_then(|path| Watching::begin(&self.host, path, wake));
            });
            // It may have gone before the watch was in place.
            verify(claim);
        }
    }

    fn proclaim<'a>(&'a self, claim: &'a Arc<Claim>, owner: &'a Owner) -> Fut<'a, Result<Proclaimed, Fail>> {
        Box::pin(
            async move { claim.seat(|seat| self.tell(seat, owner)).map_err(|trouble| self.explain(trouble)) },
        )
    }

    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>> {
        Box::pin(async move { claim.seat(|seat| self.end(seat)).map_err(|trouble| self.explain(trouble)) })
    }

    fn close<'a>(&'a self, _lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>> {
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_root_is_parsed_to_the_same_root() {
        for path in ["/tmp/r", "/tmp/r%41", "/a?b=c", "/a#b", "/é \n\u{85}", "//a//b", "/%", "/a&b=c"] {
            let url: Url = url_of(path).parse().unwrap();
            assert_eq!((url.scheme.as_str(), url.path.as_str()), ("local", path));
            assert!(url.authority.is_empty());
            url.finish(&[]).unwrap();
        }
        assert_eq!(url_of("/var/lib/é x"), "local:/var/lib/é x");
    }

    #[test]
    fn the_default_root_follows_the_user_and_only_absolute_paths() {
        let root = |user, state: &str, home: &str| {
            let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
            root_for(user, path(state), path(home)).map(|root| root.display().to_string())
        };
        assert_eq!(root(0, "/s", "/h").unwrap(), "/var/lib/fencepost");
        assert_eq!(root(7, "/s", "/h").unwrap(), "/s/fencepost");
        assert_eq!(root(7, "s", "/h").unwrap(), "/h/.local/state/fencepost");
        assert_eq!(root(7, "", "/h").unwrap(), "/h/.local/state/fencepost");
        assert_eq!(root(7, "s", ""), None);
        assert_eq!(root(7, "", "h"), None);
    }
}
