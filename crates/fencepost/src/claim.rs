//! A claim: one attempt to get one lock, from before the first byte is sent until its removal is confirmed.
//!
//! Invariants:
//! 1. Every change of a claim's state is one of the transitions in this file, and each is a compare-and-set:
//!    `Waiting -> Held -> Suspect -> Held | Lost -> Released`; what is lost or released stays so.
//! 2. Loss is declared in one place, [`Claim::lose`].
//! 3. Nothing here sends a request or sleeps.

use std::{
    any::Any,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use crate::{
    engine::{REQUEST_MAX, REQUEST_MIN, Schedule},
    host::{Host, Moment},
    lease::Lease,
    meters,
    name::LockName,
    owner::Owner,
    token::Token,
};

/// The random name of a claim: 128 bits, made before the first request. Whoever knows it can release the lock,
/// so it never appears in `Debug`, logs or errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimId(u128);

impl ClaimId {
    pub(crate) fn random(host: &dyn Host) -> Self {
        Self(u128::from(host.random()) << 64 | u128::from(host.random()))
    }

    /// The id as 32 hexadecimal digits, for the backend's eyes only.
    pub fn to_hex(self) -> String {
        format!("{:032x}", self.0)
    }

    /// The id that [`to_hex`](Self::to_hex) wrote.
    #[cfg(feature = "redis")]
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32).map(Self)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimId(..)")
    }
}

/// Where a claim stands, as its guard sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// In line, or not yet entered.
    Waiting,
    /// The holder.
    Held,
    /// The holder, but a renewal failed or is late; the deadline has not passed.
    Suspect,
    /// No longer sure to be the holder.
    Lost(Loss),
    /// Given back by its owner.
    Released,
}

/// Why a holder is no longer sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The deadline passed without a successful renewal.
    Deadline,
    /// The backend no longer has the claim: it was forced out, deleted or wiped.
    Gone,
    /// The lease or session that the claim hung on ended.
    LeaseEnded,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "the lease could not be renewed in time",
            Self::Gone => "the backend no longer has the lock's claim",
            Self::LeaseEnded => "the session that the lock hung on ended",
        })
    }
}

/// A claim's state together with the moment until which it can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Where the claim stands.
    pub state: State,
    /// The local moment after which the lease must be assumed gone; `None` where nothing expires.
    pub deadline: Option<Moment>,
}

impl Hold {
    fn is_over(self) -> bool {
        matches!(self.state, State::Lost(_) | State::Released)
    }

    /// Whether the lock is surely held at `now`.
    pub fn is_held_at(self, now: Moment) -> bool {
        matches!(self.state, State::Held | State::Suspect) && self.deadline.is_none_or(|end| now < end)
    }
}

/// One attempt to get one lock.
pub struct Claim {
    lock: LockName,
    id: ClaimId,
    owner: Owner,
    floor: Option<Token>,
    lease: Arc<Lease>,
    host: Arc<dyn Host>,
    schedule: Weak<Schedule>,
    hold: Mutex<Hold>,
    /// Tells those who follow the hold; made for the first of them, since it is larger than all the rest of a claim.
    watch: OnceLock<watch::Sender<Hold>>,
    poked: Notify,
    seat: Mutex<Option<Box<dyn Any + Send>>>,
    /// Serialises the verbs: a `leave` must not overtake the `enter` that is still on its way.
    pub(crate) verbs: Arc<tokio::sync::Mutex<()>>,
    /// Set for good once the outcome of a verb was unknown: a late request may then still arrive.
    pub(crate) unsure: AtomicBool,
    /// When the last `enter` was sent, in nanoseconds.
    pub(crate) entered: AtomicU64,
    /// The claim's place in the schedule; 0 when it has none. Written under the schedule's lock.
    pub(crate) due: AtomicU64,
    /// Tells claims with the same due moment apart.
    pub(crate) serial: u64,
}

impl Claim {
    #[allow(clippy::too_many_arguments, reason = "one caller, which has the parts at hand")]
    pub(crate) fn new(
        lock: LockName,
        owner: Owner,
        floor: Option<Token>,
        lease: Arc<Lease>,
        host: Arc<dyn Host>,
        schedule: Weak<Schedule>,
        serial: u64,
    ) -> Arc<Self> {
        let claim = Arc::new(Self {
            lock,
            id: ClaimId::random(&*host),
            owner,
            floor,
            lease,
            host,
            schedule,
            hold: Mutex::new(Hold { state: State::Waiting, deadline: None }),
            watch: OnceLock::new(),
            poked: Notify::new(),
            seat: Mutex::new(None),
            verbs: Arc::default(),
            unsure: AtomicBool::new(false),
            entered: AtomicU64::new(0),
            due: AtomicU64::new(0),
            serial,
        });
        claim.lease.enlist(&claim);
        claim
    }

    /// The lock's name.
    pub fn lock(&self) -> &LockName {
        &self.lock
    }

    /// The claim's random id.
    pub fn id(&self) -> ClaimId {
        self.id
    }

    /// Who makes the claim.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The number that the claim's token must exceed.
    pub fn floor(&self) -> Option<Token> {
        self.floor
    }

    /// The lease that keeps the claim alive.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// The host's present moment.
    pub fn now(&self) -> Moment {
        self.host.now()
    }

    /// Gives `f` the driver's private state of this claim, made by `Default` at first use.
    ///
    /// The state survives a dropped future and dies with the claim.
    pub fn seat<S: Default + Send + 'static, R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        with_seat(&self.seat, f)
    }

    /// As [`seat`](Self::seat), but `None` if the claim's driver keeps no state of this type.
    #[cfg(feature = "local")]
    pub(crate) fn seat_if<S: 'static, R>(&self, f: impl FnOnce(&mut S) -> R) -> Option<R> {
        let mut seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        seat.as_mut()?.downcast_mut().map(f)
    }

    /// From the driver, a hint: it may be this claim's turn, or this holder should verify its lock now.
    pub fn poke(self: &Arc<Self>) {
        match self.hold().state {
            State::Waiting => self.poked.notify_one(),
            State::Held | State::Suspect if self.lease.is_shared() => self.lease.doubt(),
            State::Held | State::Suspect => {
                if let Some(schedule) = self.schedule.upgrade() {
                    schedule.hasten(self);
                }
            }
            State::Lost(_) | State::Released => {}
        }
    }

    /// From the driver, a fact: the backend no longer has this claim.
    pub fn gone(&self) {
        self.lose(Loss::Gone);
    }

    /// The present state and deadline.
    pub fn hold(&self) -> Hold {
        *self.present()
    }

    fn present(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Hold> {
        // Under the lock, so that no change falls between what is read and who is told.
        let hold = self.present();
        self.watch.get_or_init(|| watch::Sender::new(*hold)).subscribe()
    }

    /// Completes at the next poke, also one that came before the call.
    pub(crate) async fn poked(&self) {
        self.poked.notified().await;
    }

    /// `Waiting -> Held`; false if the claim was lost before its grant arrived.
    pub(crate) fn grant(&self, deadline: Option<Moment>) -> bool {
        self.turn(|hold| (hold.state == State::Waiting).then_some(Hold { state: State::Held, deadline }))
    }

    /// A renewal succeeded: `Held | Suspect -> Held` with a later deadline. A reply that arrives at or after the
    /// old deadline revives nothing.
    pub(crate) fn extend(&self, deadline: Moment, now: Moment) -> bool {
        self.turn(|hold| {
            let later = hold.deadline.max(Some(deadline));
            hold.is_held_at(now).then_some(Hold { state: State::Held, deadline: later })
        })
    }

    /// A renewal failed or is late: `Held -> Suspect`.
    pub(crate) fn suspect(&self) {
        self.turn(|hold| (hold.state == State::Held).then_some(Hold { state: State::Suspect, ..hold }));
    }

    /// The one place that declares loss.
    pub(crate) fn lose(&self, loss: Loss) {
        if !self.end(State::Lost(loss)).is_over() {
            tracing::warn!(lock = %self.lock, %loss, "lock lost");
            self.poked.notify_one();
        }
    }

    /// The owner gives the lock back; answers the hold that it ends.
    pub(crate) fn release(&self) -> Hold {
        self.end(State::Released)
    }

    /// Ends a claim that is not over yet; answers the hold that was.
    fn end(&self, state: State) -> Hold {
        let mut before = self.hold();
        self.turn(|hold| {
            before = hold;
            (!hold.is_over()).then_some(Hold { state, ..hold })
        });
        if matches!(before.state, State::Held | State::Suspect)
            && let Some(schedule) = self.schedule.upgrade()
        {
            // The enter that was sent last is the one that was granted.
            let since = Moment::from_nanos(self.entered.load(Ordering::Relaxed));
            meters::ended(schedule.backend(), state, || self.now().since(since));
        }
        before
    }

    /// Whether the lock is surely held; a deadline found passed here is a loss at once, also when the keepalive
    /// has not come round to it.
    pub(crate) fn is_held(&self) -> bool {
        let (hold, now) = (self.hold(), self.now());
        if matches!(hold.state, State::Held | State::Suspect) && !hold.is_held_at(now) {
            self.expire(now);
        }
        hold.is_held_at(now)
    }

    /// Declares the loss of a claim whose deadline has passed; a renewal that was quicker wins.
    pub(crate) fn expire(&self, now: Moment) {
        if self.hold().deadline.is_some_and(|deadline| now >= deadline) {
            self.lose(Loss::Deadline);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.hold().is_over()
    }

    /// How long one verb may take.
    pub(crate) fn patience(&self) -> Duration {
        self.lease.term().map_or(REQUEST_MAX, |term| (term / 2).clamp(REQUEST_MIN, REQUEST_MAX))
    }

    fn turn(&self, next: impl FnOnce(Hold) -> Option<Hold>) -> bool {
        let mut hold = self.present();
        let Some(new) = next(*hold) else { return false };
        *hold = new;
        drop(hold);
        if let Some(watch) = self.watch.get() {
            // Read again: whoever tells last tells the latest.
            watch.send_modify(|told| *told = self.hold());
        }
        true
    }

    pub(crate) fn mark_unsure(&self) {
        self.unsure.store(true, Ordering::Relaxed);
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.lease.discharge(self.serial);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("lock", &self.lock).field("hold", &self.hold()).finish_non_exhaustive()
    }
}

/// The driver's private state in `seat`, made at first use.
pub(crate) fn with_seat<S: Default + Send + 'static, R>(
    seat: &Mutex<Option<Box<dyn Any + Send>>>,
    f: impl FnOnce(&mut S) -> R,
) -> R {
    let mut seat = seat.lock().unwrap_or_else(PoisonError::into_inner);
    let state = seat.get_or_insert_with(|| Box::new(S::default()));
    f(state.downcast_mut().expect("one driver, one type of seat"))
}
