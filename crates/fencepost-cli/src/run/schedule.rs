//! When the job must be told to end, and when it is made to. Pure arithmetic on `CLOCK_BOOTTIME` nanoseconds.
//!
//! Invariants:
//! 1. Once an ending began nothing takes it back: a deadline that arrives later does not save the job.
//! 2. KILL comes at least `lead` before the deadline, so that its work is done when the deadline passes.

use serde::{Deserialize, Serialize};

/// Why the job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// It ended by itself.
    Itself,
    /// Its deadline came near, and no later one had arrived.
    Deadline,
    /// It was to be stopped: the lock was lost, or the supervisor is gone.
    Stop,
    /// It ran for as long as it was allowed to.
    MaxHold,
}

/// What there is to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Term,
    Kill,
}

/// The deadlines of one job.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    grace: u64,
    lead: u64,
    /// How much of the usual lead it has.
    share: u64,
    deadline: Option<u64>,
    until: Option<u64>,
    ending: Option<(Cause, u64)>,
}

/// How long before the deadline KILL is sent: finding and killing a job takes milliseconds, on a busy machine tens.
const LEAD: u64 = 100_000_000;

impl Schedule {
    /// The schedule of the job's parent: `deadline` is the lease's, `until` that of `--max-hold`.
    pub(crate) fn new(grace: u64, deadline: Option<u64>, until: Option<u64>, now: u64) -> Self {
        let mut new = Self { grace, lead: LEAD.min(grace / 4), share: 1, deadline, until, ending: None };
        new.lead(now);
        new
    }

    /// The schedule of somebody who steps in only when the job's parent did not keep its own.
    pub(crate) fn backstop(grace: u64, deadline: Option<u64>, until: Option<u64>, now: u64) -> Self {
        let inner = Self::new(grace, deadline, until, now);
        Self { lead: inner.lead / 2, share: 2, ..inner }
    }

    /// Takes a later deadline.
    pub(crate) fn extend(&mut self, deadline: u64, now: u64) {
        if self.ending.is_none() {
            self.deadline = Some(deadline);
            self.lead(now);
        }
    }

    /// A grace that is short, or none, must not leave too little for the work of KILL. It then gets what the usual grace
    /// would give it, which is a quarter of the lease.
    fn lead(&mut self, now: u64) {
        let left = self.deadline.map_or(0, |deadline| deadline.saturating_sub(now));
        self.lead = self.lead.max(LEAD.min(left / 16) / self.share);
    }

    /// Begins the ending now and says whether this is news.
    pub(crate) fn stop(&mut self, cause: Cause, now: u64) -> bool {
        if self.ending.is_some() {
            return false;
        }
        let kill = now + self.grace;
        let kill = self.deadline.map_or(kill, |deadline| kill.min(deadline));
        self.ending = Some((cause, kill.saturating_sub(self.lead)));
        true
    }

    /// Whether the lease leaves no time at all: a job that started now would have to be killed at once.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.deadline.is_some_and(|deadline| deadline.saturating_sub(self.lead) <= now)
    }

    /// Why the job is being ended, if it is.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.ending.map(|(cause, _)| cause)
    }

    /// What has become due; `Term` is answered once, `Kill` from then on every time.
    pub(crate) fn due(&mut self, now: u64) -> Due {
        match self.ending {
            Some((_, kill)) if kill <= now => Due::Kill,
            Some(_) => Due::Nothing,
            None => match self.next_ending() {
                Some((at, cause)) if at <= now => {
                    self.stop(cause, now);
                    Due::Term
                }
                _ => Due::Nothing,
            },
        }
    }

    /// When [`Schedule::due`] will have something to say.
    pub(crate) fn wake_at(&self) -> Option<u64> {
        self.ending.map(|(_, kill)| kill).or_else(|| self.next_ending().map(|(at, _)| at))
    }

    fn next_ending(&self) -> Option<(u64, Cause)> {
        let before = self.grace.max(self.lead);
        let lease = self.deadline.map(|deadline| (deadline.saturating_sub(before), Cause::Deadline));
        let hold = self.until.map(|until| (until, Cause::MaxHold));
        lease.into_iter().chain(hold).min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn term_comes_a_grace_before_the_deadline_and_kill_a_lead_before_it() {
        let mut schedule = Schedule::new(400, Some(1000), None, 0);
        assert_eq!(schedule.wake_at(), Some(600));
        assert_eq!(schedule.due(599), Due::Nothing);
        assert_eq!(schedule.due(600), Due::Term);
        assert_eq!(schedule.cause(), Some(Cause::Deadline));
        assert_eq!(schedule.wake_at(), Some(900));
        assert_eq!(schedule.due(899), Due::Nothing);
        assert_eq!(schedule.due(900), Due::Kill);
    }

    #[test]
    fn a_later_deadline_moves_the_ending_only_before_it_began() {
        let mut schedule = Schedule::new(400, Some(1000), None, 0);
        schedule.extend(2000, 700);
        assert_eq!(schedule.wake_at(), Some(1600));
        assert_eq!(schedule.due(1600), Due::Term);
        schedule.extend(9000, 700);
        assert_eq!(schedule.due(1900), Due::Kill);
    }

    #[test]
    fn stopping_gives_the_grace_but_never_more_than_the_deadline() {
        let mut early = Schedule::new(400, Some(1000), None, 0);
        assert!(early.stop(Cause::Stop, 100));
        assert!(!early.stop(Cause::MaxHold, 200));
        assert_eq!((early.cause(), early.wake_at()), (Some(Cause::Stop), Some(400)));
        let mut late = Schedule::new(400, Some(1000), None, 0);
        late.stop(Cause::Stop, 900);
        assert_eq!(late.wake_at(), Some(900));
    }

    #[test]
    fn a_job_has_no_time_once_it_would_be_killed() {
        let schedule = Schedule::new(400, Some(1000), None, 0);
        assert!(!schedule.is_over(899) && schedule.is_over(900));
        assert!(!Schedule::new(400, None, Some(1000), 0).is_over(2000));
    }

    #[test]
    fn a_job_without_a_grace_is_killed_before_the_deadline_all_the_same() {
        let mut schedule = Schedule::new(0, Some(1600), None, 0);
        assert_eq!((schedule.wake_at(), schedule.due(1499)), (Some(1500), Due::Nothing));
        assert_eq!((schedule.due(1500), schedule.due(1500)), (Due::Term, Due::Kill));
        let mut late = Schedule::new(0, Some(100), None, 99);
        late.extend(1699, 99);
        assert_eq!(late.wake_at(), Some(1599));
    }

    #[test]
    fn the_hold_limit_ends_a_job_that_has_no_deadline() {
        let mut schedule = Schedule::new(400, None, Some(5000), 0);
        assert_eq!(schedule.due(4999), Due::Nothing);
        assert_eq!(schedule.due(5000), Due::Term);
        assert_eq!((schedule.cause(), schedule.wake_at()), (Some(Cause::MaxHold), Some(5300)));
    }

    #[test]
    fn the_backstop_comes_between_the_kill_and_the_deadline() {
        let mut schedule = Schedule::backstop(400, Some(1000), None, 0);
        assert_eq!(schedule.due(700), Due::Term);
        assert_eq!(schedule.wake_at(), Some(950));
    }
}
