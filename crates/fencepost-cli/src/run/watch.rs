//! What the supervisor does from the moment it holds the lock to the end of the job.
//!
//! Invariants:
//! 1. The job starts only while the hold is good, and on a terminal only while the relay is not stopped.
//! 2. When [`Supervisor::run`] returns nothing of the job runs, whatever the outcome; the one exception are background
//!    survivors of a command that ended by itself while the lock was still held.
//! 3. A loss is preferred to an end that came at the same time.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::task::Poll;

use nix::libc;

use super::guardian::Guardian;
use super::job::{Happening, Job};
use super::keeper::{Event, Keeper, Order};
use super::outcome::Outcome;
use super::schedule::{Cause, Schedule};
use super::supervise::{News, Supervisor};
use super::tree::kill_below;
use super::{Change, Hold, Kept, Start};
use crate::sys;

impl Supervisor {
    /// Runs the job for as long as the lock is held. Again only if [`Supervisor::may_run_again`] says so.
    ///
    /// Release the lock with [`super::block_on`] after that: the Ctrl-C that ended the job may not be read yet.
    pub(crate) fn run(&mut self, start: Start, hold: &mut impl Hold) -> Outcome {
        let guardian = self.guardian.take();
        let watch = Watch {
            guardian: guardian.as_ref(),
            deadline: hold.deadline(),
            until: self.max_hold.map(|limit| sys::now().saturating_add(limit)),
            lost: false,
            supervisor: self,
            hold,
        };
        // Nobody but us may be there to end the job, so that a mistake of ours must not end us before.
        let outcome = catch_unwind(AssertUnwindSafe(|| watch.run(start)));
        let outcome =
            outcome.unwrap_or_else(|_| Err(io::Error::other("internal error"))).unwrap_or_else(|error| {
                kill_below();
                Outcome::Broken(error.to_string())
            });
        self.guardian = guardian;
        self.fate = outcome.signal();
        outcome
    }
}

struct Watch<'a, H> {
    supervisor: &'a mut Supervisor,
    guardian: Option<&'a Guardian>,
    hold: &'a mut H,
    deadline: Option<u64>,
    until: Option<u64>,
    lost: bool,
}

impl<'a, H: Hold> Watch<'a, H> {
    fn run(mut self, start: Start) -> io::Result<Outcome> {
        if let Some(outcome) = self.until_ready()? {
            return Ok(outcome);
        }
        let mut job = match self.start(start) {
            Ok(job) => job,
            Err(error) if self.guardian.is_none() => return Ok(Outcome::NotStarted(error)),
            Err(error) => return Err(error),
        };
        let mut started = self.guardian.is_none();
        loop {
            self.follow_hold(&mut job);
            while let Some(news) = self.supervisor.news()? {
                match news {
                    News::Signal(signal) if signal.number == libc::SIGCHLD => {}
                    // The job has it already. One that came while it was being started it may have missed.
                    News::Signal(signal) if self.supervisor.terminal && started && signal.by_terminal() => {}
                    News::Signal(signal) => {
                        self.supervisor.is_last |= signal.ends();
                        job.signal(signal.number);
                    }
                    News::RelayGone => {
                        self.supervisor.is_last = true;
                        job.stop(sys::now());
                    }
                    News::Going => self.supervisor.answered(),
                }
            }
            while let Some(happening) = job.next(sys::now())? {
                match happening {
                    Happening::Event(Event::Started { .. }) => started = true,
                    Happening::Event(Event::Stopped { signal }) => self.supervisor.suspend(signal)?,
                    Happening::Event(Event::Continued) => self.supervisor.resume(),
                    last => {
                        self.follow_hold(&mut job);
                        let stopped = matches!(last, Happening::Event(Event::Ended { cause, .. }) if cause != Cause::Itself);
                        self.supervisor.is_last |= !stopped;
                        return Ok(conclude(last, self.lost));
                    }
                }
            }
            self.supervisor.wait(job.as_fd(), job.wake_at())?;
        }
    }

    /// Waits until the job may start; answers an outcome if it must not any more.
    fn until_ready(&mut self) -> io::Result<Option<Outcome>> {
        self.supervisor.ask_relay();
        loop {
            while let Some(change) = self.next_change() {
                match change {
                    Change::Deadline(deadline) => self.deadline = Some(deadline),
                    Change::Lost => return Ok(Some(Outcome::Lost)),
                }
            }
            // Whoever declares a loss may not have come to it: what counts is the clock.
            let now = sys::now();
            if Schedule::new(self.supervisor.launch.grace, self.deadline, None, now).is_over(now) {
                return Ok(Some(Outcome::Lost));
            }
            if self.until.is_some_and(|until| until <= sys::now()) {
                return Ok(Some(Outcome::MaxHold));
            }
            while let Some(news) = self.supervisor.news()? {
                if let Some(signal) = self.supervisor.give_up(news)? {
                    return Ok(Some(Outcome::Interrupted(signal)));
                }
                match news {
                    News::Going => self.supervisor.answered(),
                    // An answer to an earlier question may have been given before the relay stopped.
                    News::Signal(signal) if signal.stops() => self.supervisor.ask_relay(),
                    _ => {}
                }
            }
            if self.supervisor.asked == 0 {
                return Ok(None);
            }
            self.supervisor.wait(None, self.until.into_iter().chain(self.deadline).min())?;
        }
    }

    fn start(&self, start: Start) -> io::Result<Job<'a>> {
        let (deadline, until) = (self.deadline, self.until);
        let inherits = matches!(start.keep, Some(Kept::ByJob(_)));
        let dies_with_parent = self.guardian.is_some() || !inherits;
        let order = Order { env: start.env, deadline, until, dies_with_parent, inherits };
        let launch = &self.supervisor.launch;
        match self.guardian {
            Some(guardian) => {
                guardian.start(order, start.keep.as_ref().map(AsFd::as_fd))?;
                Ok(Job::Guarded(guardian, Schedule::backstop(launch.grace, deadline, until, sys::now())))
            }
            None => {
                let inherited = start.keep.and_then(|kept| match kept {
                    Kept::ByJob(fd) => Some(fd),
                    Kept::ByGuardian(_) => None,
                });
                let keeper = Keeper::start(launch, order, inherited)?;
                if !launch.terms {
                    sys::let_go_of_stdio()?;
                }
                Ok(Job::Ours(keeper))
            }
        }
    }

    fn follow_hold(&mut self, job: &mut Job<'_>) {
        while let Some(change) = self.next_change() {
            match change {
                Change::Deadline(deadline) => job.extend(deadline),
                Change::Lost => job.stop(sys::now()),
            }
        }
    }

    fn next_change(&mut self) -> Option<Change> {
        if self.lost {
            return None;
        }
        let Poll::Ready(change) = self.supervisor.polling(|context| self.hold.poll_change(context)) else {
            return None;
        };
        self.lost = matches!(change, Change::Lost);
        Some(change)
    }
}

/// Makes sure of invariant 2 and says how it went.
fn conclude(last: Happening, lost: bool) -> Outcome {
    let (cause, outcome) = match last {
        Happening::Event(Event::Failed { errno }) => {
            return Outcome::NotStarted(io::Error::from_raw_os_error(errno));
        }
        Happening::Event(Event::Ended { status, cause: Cause::Itself }) => {
            let status = ExitStatus::from_raw(status);
            if !lost {
                return Outcome::Exited(status);
            }
            // It may have left something running in the background, without the lock now.
            kill_below();
            (Cause::Itself, Outcome::Exited(status))
        }
        Happening::Event(Event::Ended { cause, .. }) => (cause, Outcome::Abandoned),
        Happening::Overdue(cause) => {
            kill_below();
            (cause, Outcome::Abandoned)
        }
        _ => {
            kill_below();
            (Cause::Stop, Outcome::Broken("the guardian process was killed".into()))
        }
    };
    match cause {
        _ if lost => Outcome::Lost,
        Cause::Deadline => Outcome::Lost,
        Cause::MaxHold => Outcome::MaxHold,
        Cause::Itself | Cause::Stop => outcome,
    }
}
