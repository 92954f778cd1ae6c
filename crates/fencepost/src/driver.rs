//! The contract between the engine and the code that speaks one backend's protocol.
//!
//! A driver knows its protocol: keys, scripts, its map of errors. It has no retry loop, no timer, no deadline
//! arithmetic and no clock of its own; waiting, renewing, declaring loss and cleaning up are the engine's.
//!
//! Rules that every driver keeps, and the conformance suite checks:
//! 1. Every verb is idempotent for the same claim: the engine repeats it after an unknown outcome.
//! 2. A verb that is sent may be carried out late, twice or never; the claim's id makes all three harmless.
//! 3. [`Driver::renew`] never creates what is missing: missing is [`Renewed::Lost`].
//! 4. A token is minted in the same atomic step that makes the claim the holder.
//! 5. State of the protocol lives in the claim's seat ([`Claim::seat`]) and dies with the claim.

use std::{any::Any, fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::{
    error::{Error, ErrorKind},
    name::LockName,
    owner::Owner,
    token::{Lineage, Token},
};

pub use crate::{
    claim::{Claim, ClaimId},
    connect::connect,
    host::{Fut, Host, Moment},
    lease::Lease,
};

/// What the engine asks of a backend.
///
/// Every method may be called from any thread, for several claims at once; the verbs on one claim
/// ([`enter`](Self::enter), [`proclaim`](Self::proclaim), [`leave`](Self::leave)) come one after the other.
pub trait Driver: Operator {
    /// What this backend promises.
    fn about(&self) -> About;

    /// Opens a lease and answers the term that the backend granted. No I/O where leases are per claim.
    fn open<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<Duration, Fail>>;

    /// Makes the claim known and says where it stands. Where claims expire one by one, entering again renews the claim, a
    /// holder's too: the engine counts its deadline from the request that was answered.
    fn enter<'a>(&'a self, claim: &'a Arc<Claim>, intent: Intent) -> Fut<'a, Result<Entered, Fail>>;

    /// Renews a lease and the held claims on it, and reports each one's fate by its index as soon as it is known. An error
    /// speaks for the claims that were not reported.
    fn renew<'a>(
        &'a self,
        lease: &'a Arc<Lease>,
        claims: &'a [Arc<Claim>],
        report: Report<'a>,
    ) -> Fut<'a, Result<(), Fail>>;

    /// Begins to watch held claims, so that one deleted behind our back is told by [`Claim::gone`]. Called in
    /// batches, up to a second after the grant. Does nothing where the backend cannot tell.
    fn attend(&self, claims: &[Arc<Claim>]);

    /// Writes the holder's owner record again, as `owner` says it: how a leader makes its value known. Never creates what is
    /// missing, and changes neither the token nor the lease. The record keeps its time of the grant.
    fn proclaim<'a>(&'a self, claim: &'a Arc<Claim>, owner: &'a Owner) -> Fut<'a, Result<Proclaimed, Fail>>;

    /// Removes the claim, waiting or holding.
    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>>;

    /// Ends a lease and with it every claim that hangs on it.
    fn close<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>>;
}

/// What an operator asks of a backend.
pub trait Operator: Send + Sync + 'static {
    /// Who holds and who waits for one lock.
    fn inspect<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<Status, Fail>>;

    /// The locks that are held or waited for and whose names begin with `prefix`, in the order of their names.
    fn list<'a>(&'a self, prefix: &'a str) -> Fut<'a, Result<Vec<Status>, Fail>>;

    /// Takes the lock away from its holder and mints a token higher than the holder's, so that a gate can be
    /// raised with it.
    fn force_unlock<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<ForcedOut, Fail>>;

    /// Notifies `hint` when the lock's state may have changed, until the returned value is dropped. A backend
    /// that cannot tell returns `None`; the engine then only asks again from time to time.
    fn observe(&self, lock: &LockName, hint: Arc<Notify>) -> Option<Box<dyn Any + Send>>;
}

/// Reports one claim's renewal: the claim's index in the batch, and its fate.
pub type Report<'a> = &'a (dyn Fn(usize, Renewed) + Send + Sync);

/// How a claim asks for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Now or never: answered [`Entered::Busy`] if held, and then nothing of the claim is left behind.
    Try,
    /// Stay in line.
    Wait,
}

/// The answer to [`Driver::enter`].
#[derive(Debug)]
pub enum Entered {
    /// The claim is the holder, with this token. The same answer again if it already was.
    Granted {
        /// The holder's fencing token.
        token: Token,
    },
    /// The claim stands in line. The driver [pokes](Claim::poke) it when it may be its turn; without a poke the
    /// engine asks again after `recheck`.
    Queued {
        /// How long to wait for a poke.
        recheck: Duration,
        /// The holder, if the answer told.
        holder: Option<Holder>,
    },
    /// Somebody else holds the lock and the claim stands in no line; a waiting claim asks again after `retry`.
    Busy {
        /// How long to wait before the next attempt.
        retry: Duration,
        /// The holder, if the answer told.
        holder: Option<Holder>,
    },
    /// No verdict: the backend was busy for a moment. Ask again after `retry`, whatever the intent.
    Contended {
        /// How long to wait before the next attempt.
        retry: Duration,
    },
    /// The claim was in line and no longer is: somebody removed it, or its lease died. It is of no use any more.
    Gone,
}

/// One claim's fate in a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The claim lives for this long, counted from just before the request was sent.
    Extended(Duration),
    /// The backend no longer has this claim as holder.
    Lost,
    /// It may or may not have been renewed.
    Unknown,
}

/// The answer to [`Driver::proclaim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proclaimed {
    /// Others see the new record.
    Written,
    /// The backend no longer has this claim as holder.
    Lost,
}

/// The answer to [`Driver::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The claim was there and is removed.
    Removed,
    /// The claim was not there.
    WasGone,
}

/// Why a verb failed.
#[derive(Clone, Debug)]
pub enum Fail {
    /// It may or may not have been carried out: a time-out, a cut connection.
    Unknown(String),
    /// It was not carried out, and may be later.
    Unavailable(String),
    /// Authentication or permission.
    Denied(String),
    /// The lease that the claim hangs on is gone.
    NoLease,
    /// The request cannot be right on this backend; the text names the fix.
    Invalid(String),
    /// This backend cannot do it.
    Unsupported(String),
    /// A bug, or a backend that breaks its protocol.
    Internal(String),
}

impl Fail {
    /// Whether asking again can help.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Unavailable(_))
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLease => f.write_str("the lease is gone"),
            Self::Unknown(why)
            | Self::Unavailable(why)
            | Self::Denied(why)
            | Self::Invalid(why)
            | Self::Unsupported(why)
            | Self::Internal(why) => f.write_str(why),
        }
    }
}

impl From<Fail> for Error {
    fn from(fail: Fail) -> Self {
        let kind = match fail {
            Fail::Unknown(_) => ErrorKind::Unknown,
            Fail::Unavailable(_) | Fail::NoLease => ErrorKind::Unavailable,
            Fail::Denied(_) => ErrorKind::Denied,
            Fail::Invalid(_) => ErrorKind::Invalid,
            Fail::Unsupported(_) => ErrorKind::Unsupported,
            Fail::Internal(_) => ErrorKind::Internal,
        };
        Self::new(kind, fail.to_string())
    }
}

/// What one backend promises: the data behind the README's table, `--require` and `doctor`.
#[derive(Clone, Debug)]
pub struct About {
    /// The URL scheme, such as `local`.
    pub scheme: &'static str,
    /// The backend as messages name it, without credentials, such as `local:/var/lib/fencepost`.
    pub backend: String,
    /// Within which tokens compare.
    pub lineage: Lineage,
    /// What a claim's life hangs on.
    pub lease: LeaseKind,
    /// The shortest and the longest TTL that the backend takes.
    pub ttl: RangeInclusive<Duration>,
    /// Who decides, such as "kernel file locks on one machine".
    pub decides: &'static str,
    /// Whether waiting claims are served in the order of their arrival.
    pub fifo: bool,
    /// The strongest level that the backend reaches; `None` if it mints no tokens.
    pub level: Option<Level>,
    /// Whether a [`leave`](Driver::leave) that was answered also stops an `enter` of the same claim that arrives after it.
    /// Otherwise the engine repeats it until the lease that could carry such a claim is over.
    pub leave_is_final: bool,
    /// What can still go wrong.
    pub caveat: &'static str,
    /// What is worse in this deployment than it could be, and the fix; told once to whoever connects.
    pub notice: Option<&'static str>,
}

impl About {
    /// Whether the backend reaches `level`.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with what it reaches and why it is no more.
    pub fn require(&self, level: Level) -> Result<(), Error> {
        if self.level.is_some_and(|reached| reached >= level) {
            return Ok(());
        }
        let reaches = self.level.map_or("no level".into(), |reached| format!("level={reached}"));
        let (scheme, decides, caveat) = (self.scheme, self.decides, self.caveat);
        let text = format!("{scheme}: reaches {reaches}, not level={level}: decided by {decides}; {caveat}");
        Err(Error::new(ErrorKind::Unsupported, text))
    }
}

/// What a caller can require of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every later holder has a larger token.
    Tokens,
    /// As `Tokens`, and the order of holders is decided by consensus.
    Consensus,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens => "tokens",
            Self::Consensus => "consensus",
        })
    }
}

/// What a claim's life hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// Nothing expires: a claim lives as long as its process. There are no deadlines.
    None,
    /// Each claim expires on its own; entering renews it.
    PerClaim,
    /// Claims hang on a lease (a session) that expires as a whole; entering renews nothing.
    Shared,
}

/// The claim that owns a lock, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its token, if the backend shows it.
    pub token: Option<Token>,
    /// Who it is, if it left a record that can be read.
    pub owner: Option<Owner>,
    /// How long the backend will keep it if it is not renewed; `None` if it never expires or is not shown.
    pub expires_in: Option<Duration>,
}

/// One lock, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The lock's name.
    pub lock: LockName,
    /// The holder, if there is one.
    pub holder: Option<Holder>,
    /// Those who wait, next in line first where the backend keeps an order. A record that cannot be read is
    /// `None`.
    pub waiters: Vec<Option<Owner>>,
}

/// The result of a forced unlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedOut {
    /// Who was forced out, if anybody held the lock.
    pub holder: Option<Holder>,
    /// A token higher than every token handed out for this lock before.
    pub token: Token,
}
