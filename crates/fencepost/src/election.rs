//! Leader election: a lock whose holder leads, and what the leader says of itself.
//!
//! A term is one hold of the lock, and its number is the token: later terms have larger ones, and a gate that has seen one
//! rejects the leader of an earlier term. The backend ends a leader's lease by the leader's own TTL; no candidate's TTL
//! has a say in it. An election is the lock of its name: `lock(name)` and `election(name)` exclude each other.
//!
//! Source: campaign, proclaim, resign and observe are the verbs of etcd's election API.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    claim::Loss,
    driver::{Level, Status},
    error::{Error, ErrorKind},
    guard::Guard,
    lock::{Lock, check_text},
    locker::{Locker, Observer},
    owner::{MAX_VALUE_BYTES, Owner},
    token::Token,
};

/// One election, with the options of the next campaign. Made by [`Locker::election`](crate::Locker::election).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencepost::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let locker = fencepost::Locker::connect(&format!("local:{}", dir.path().display())).await?;
/// let election = locker.election("scheduler").value("10.0.0.7:4000");
/// let leadership = election.campaign().await?;
/// let leader = election.leader().await?.expect("we lead");
/// assert_eq!(leader.value(), Some("10.0.0.7:4000"));
/// assert_eq!(leader.term, Some(leadership.term()));
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "nobody is elected before campaign() is awaited"]
pub struct Election {
    locker: Locker,
    name: String,
    lock: Lock,
}

impl Election {
    pub(crate) fn new(locker: Locker, name: &str) -> Self {
        let lock = locker.lock(name);
        Self { locker, name: name.to_owned(), lock }
    }

    /// How long the backend keeps a leader without hearing from it; as [`Lock::ttl`](crate::Lock::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|lock| lock.ttl(ttl))
    }

    /// How long a campaign waits to be elected (for ever unless set).
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|lock| lock.wait(wait))
    }

    /// How long the backend may fail to answer; as [`Lock::patience`](crate::Lock::patience).
    pub fn patience(self, patience: Duration) -> Self {
        self.with(|lock| lock.patience(patience))
    }

    /// What the candidate is called in the owner record; as [`Lock::label`](crate::Lock::label).
    pub fn label(self, label: impl Into<String>) -> Self {
        self.with(|lock| lock.label(label))
    }

    /// What the candidate tells those who observe once it leads, such as its address: at most 1024 bytes without control
    /// characters. [`Leadership::proclaim`] changes it.
    pub fn value(self, value: impl Into<String>) -> Self {
        self.with(|lock| lock.value(value))
    }

    /// A number that the term must exceed; as [`Lock::floor`](crate::Lock::floor).
    pub fn floor(self, floor: Token) -> Self {
        self.with(|lock| lock.floor(floor))
    }

    /// What the backend must promise; as [`Lock::require`](crate::Lock::require).
    pub fn require(self, level: Level) -> Self {
        self.with(|lock| lock.require(level))
    }

    fn with(mut self, change: impl FnOnce(Lock) -> Lock) -> Self {
        self.lock = change(self.lock);
        self
    }

    /// Stands for election and waits to be elected.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`](crate::Lock::acquire): `Timeout` if another led until the end of [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped campaign withdraws the candidate in the background, also one that was elected in that moment.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        Ok(Leadership { guard: self.lock.acquire().await? })
    }

    /// Runs `work` in each of our terms until it comes to an end: campaigns, runs it while we lead, drops it at its current
    /// await when the term is lost, and campaigns again. Resigns at the end, and answers what the work answered. A work
    /// that hands its leadership on to somebody who keeps it leaves the resignation to them.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), for each campaign.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work` is: dropped, it resigns in the background.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencepost::Error> {
    /// # async fn schedule(_term: fencepost::Token) {}
    /// let locker = fencepost::Locker::connect("local:").await?;
    /// locker.election("scheduler").lead(|leadership| async move { schedule(leadership.term()).await }).await?;
    /// # Ok(()) }
    /// ```
    pub async fn lead<W: Future>(
        &self,
        mut work: impl FnMut(Arc<Leadership>) -> W,
    ) -> Result<W::Output, Error> {
        loop {
            let leadership = Arc::new(self.campaign().await?);
            match leadership.run(work(leadership.clone())).await {
                // The work was done in its term: what becomes of the resignation is the backend's.
                Ok(output) => {
                    if let Some(leadership) = Arc::into_inner(leadership) {
                        let _ = leadership.resign().await;
                    }
                    return Ok(output);
                }
                Err(error) if error.kind() == ErrorKind::Lost => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Who leads at this moment.
    ///
    /// # Errors
    ///
    /// As [`Locker::inspect`](crate::Locker::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(Leader::of(self.locker.inspect(&self.name).await?))
    }

    /// Follows who leads.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that no lock can have.
    pub fn observe(&self) -> Result<Leaders, Error> {
        Ok(Leaders { observer: self.locker.observe(&self.name)?, last: None })
    }
}

/// A term in office. Dropped, it is resigned in the background; [`resign`](Self::resign) waits for the backend's word.
///
/// A leader that was paused past its deadline learns so when it goes on, and not before: what it sends in that moment only a
/// [gate](crate::gate) stops, by the number of the term.
#[must_use = "a leadership that is dropped is resigned at once"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// The number of this term: the token of the lock. Later terms have larger ones.
    pub fn term(&self) -> Token {
        self.guard.token()
    }

    /// Whether we surely lead at this moment; as [`Guard::is_held`].
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// Completes when the term is lost, with the reason; as [`Guard::lost`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) -> Loss {
        self.guard.lost().await
    }

    /// Runs `work` for as long as we lead; as [`Guard::run`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] as soon as the term is lost.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work` is.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        self.guard.run(work).await
    }

    /// Changes what observers are told of us, without an end of the term.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if we no longer lead; the present leader's value is then untouched. `Invalid` for a value that is too long or has control
    /// characters. `Unknown` or `Unavailable` if the backend did not answer: it can be repeated.
    ///
    /// # Cancel safety
    ///
    /// Safe: once polled it goes on to its end in the background.
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<(), Error> {
        let value = value.into();
        check_text("value", &value, MAX_VALUE_BYTES)?;
        self.guard.proclaim(value).await
    }

    /// Ends the term and waits until the backend confirms it; as [`Guard::release`].
    ///
    /// # Errors
    ///
    /// As [`Guard::release`]: `Lost` if the term was lost before, so that what was done since then was not protected.
    ///
    /// # Cancel safety
    ///
    /// Safe: it goes on in the background.
    pub fn resign(self) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        self.guard.release()
    }

    /// The lock that is the office: its token for a gate, its deadline, its changes.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("guard", &self.guard).finish()
    }
}

/// Who leads, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The number of its term, if the backend shows it.
    pub term: Option<Token>,
    /// Who it is, if it left a record that can be read.
    pub owner: Option<Owner>,
}

impl Leader {
    /// What the leader says of itself.
    pub fn value(&self) -> Option<&str> {
        self.owner.as_ref()?.value.as_deref()
    }

    fn of(status: Status) -> Option<Self> {
        status.holder.map(|holder| Self { term: holder.token, owner: holder.owner })
    }
}

/// Follows who leads; made by [`Election::observe`].
pub struct Leaders {
    observer: Observer,
    /// What was answered last; `None` before the first answer.
    last: Option<Option<Leader>>,
}

impl Leaders {
    /// The present leader at the first call; after that, the next one that differs in its term or in what it says, or
    /// `None` when nobody leads. Terms that are over before anybody looks are not told.
    ///
    /// # Errors
    ///
    /// As [`Locker::inspect`](crate::Locker::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: what was not returned is returned by the next call, if it is still so.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            let leader = Leader::of(self.observer.next().await?);
            if self.last.as_ref() != Some(&leader) {
                self.last = Some(leader.clone());
                return Ok(leader);
            }
        }
    }
}
