//! `fencepost run`: a command under a lock; `fencepost elect`: the same, in each term of an office.

use std::{
    ffi::OsString,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use fencepost::{Changes, Error, ErrorKind, Guard, Hold, Lock, Locker, State, SystemHost, driver::Host};

use super::{COURTESY, close, connected, lock, not_taken, show, take, within};
use crate::{
    args::{Elect, Global, Run},
    backend::Backend,
    duration,
    events::Events,
    exit,
    handle::HandleFile,
    live::live,
    report,
    run::{Change, Kept, Outcome, Plan, Start, Supervisor, Waited, block_on, supervised},
};

/// A candidate that has led once waits as long as it takes for a backend that does not answer: that is how most terms end.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(crate) fn run(global: &Global, run: &Run) -> u8 {
    perform(global, run, None)
}

pub(crate) fn elect(global: &Global, elect: &Elect) -> u8 {
    perform(global, &elect.run, Some(Candidate { value: elect.value.as_deref() }))
}

/// One who stands for election again after a term.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    value: Option<&'a str>,
}

fn perform(global: &Global, run: &Run, candidate: Option<Candidate<'_>>) -> u8 {
    let grace = match run.grace() {
        Ok(grace) => grace,
        Err(why) => return report::fail(exit::USAGE, why),
    };
    let backend = match Backend::find(global) {
        Ok(backend) => backend,
        Err(code) => return code,
    };
    let events = match Events::open(run) {
        Ok(events) => events,
        Err(why) => return report::fail(exit::USAGE, why),
    };
    let plan = Plan {
        argv: run.argv.clone(),
        guardian: backend.expires() || run.close_fd,
        grace,
        max_hold: run.max_hold,
        terms: candidate.is_some(),
    };
    let mut job = Job { global, run, candidate, backend, events };
    supervised(plan, |supervisor| job.under_lock(supervisor).unwrap_or_else(broken)).unwrap_or_else(broken)
}

fn broken(error: std::io::Error) -> u8 {
    report::fail(exit::INTERNAL, format_args!("cannot run the command: {error}"))
}

struct Job<'a> {
    global: &'a Global,
    run: &'a Run,
    candidate: Option<Candidate<'a>>,
    backend: Backend,
    events: Events,
}

impl Job<'_> {
    /// Takes the lock, runs the command, gives the lock back; in each term, if there may be several.
    fn under_lock(&mut self, supervisor: &mut Supervisor) -> std::io::Result<u8> {
        let wanted = &self.run.wanted;
        let connecting = connected(&self.backend, supervisor.host(), self.global, wanted);
        let locker = match supervisor.wait_for(connecting)? {
            Waited::Interrupted(signal) => return Ok(exit::of_signal(signal)),
            Waited::Done(Err(code)) => return Ok(code),
            Waited::Done(Ok(locker)) => locker,
        };
        let mut wanted_lock = self.wanted_lock(&locker);
        loop {
            self.events.waiting();
            let taking = live(&locker, &self.run.name, self.global.quiet, take(&wanted_lock, wanted));
            let guard = match supervisor.wait_for(taking)? {
                Waited::Done(Ok(guard)) => guard,
                Waited::Done(Err(error)) => {
                    let code = self.not_acquired(&error, &locker.about().backend);
                    close(locker, COURTESY)?;
                    return Ok(code);
                }
                Waited::Interrupted(signal) => {
                    self.events.not_acquired("interrupted", "timeout");
                    close(locker, COURTESY)?;
                    return Ok(exit::of_signal(signal));
                }
            };
            if let Some(code) = self.with(supervisor, &locker, guard)? {
                return Ok(code);
            }
            self.events = self.events.of_next_claim();
            wanted_lock = wanted_lock.patience(PATIENCE);
        }
    }

    fn wanted_lock(&self, locker: &Locker) -> Lock {
        let lock = lock(locker, self.run.name.as_str(), &self.run.wanted);
        match self.candidate.and_then(|candidate| candidate.value) {
            Some(value) => lock.value(value),
            None => lock,
        }
    }

    fn not_acquired(&self, error: &Error, at: &str) -> u8 {
        let outcome = if error.kind() == ErrorKind::Timeout { "timeout" } else { "unknown" };
        self.events.not_acquired(&error.to_string(), outcome);
        not_taken(error, self.run.name.as_str(), at, self.global, &self.run.wanted)
    }

    /// Runs the command; answers the exit status of the whole, or nothing if another term is to follow.
    fn with(
        &self,
        supervisor: &mut Supervisor,
        locker: &Locker,
        guard: Guard,
    ) -> std::io::Result<Option<u8>> {
        // Before anything that takes time: a loss that came earlier than the subscription would be told to nobody.
        let changes = guard.changes();
        let (host, granted) = (SystemHost, guard.now());
        let backend = &locker.about().backend;
        self.events.acquired(&guard);
        show(&guard, backend, self.global, &self.run.wanted);
        let handle = match HandleFile::publish(&guard, backend) {
            Ok(handle) => Some(handle),
            Err(error) => {
                report::note(format_args!("`fencepost held` will not work: {error}"));
                None
            }
        };
        let start = Start { env: environment(&guard, backend, handle.as_ref()), keep: self.kept(&guard) };
        let mut held = Held::new(changes, handle, self.events.clone());
        let outcome = supervisor.run(start, &mut held);
        if let (Some(least), Outcome::Exited(_)) = (self.run.min_hold, &outcome) {
            // A signal cuts the rest short: whoever sends it wants us gone.
            supervisor.wait_for(host.sleep_until(granted + least))?;
        }
        self.events.ended(outcome.code());
        if let Some(handle) = &held.handle {
            handle.remove();
        }
        let again = supervisor.may_run_again(&outcome);
        if let Some(mut message) = outcome.message(&self.run.argv[0].to_string_lossy()) {
            if again {
                message += "; standing for election again";
            }
            report::note(message);
        }
        let limit = match outcome {
            Outcome::Lost => COURTESY,
            _ => self.run.wanted.connect_timeout,
        };
        let code = self.release(guard, &outcome, limit)?;
        if again {
            return Ok(None);
        }
        close(locker.clone(), limit)?;
        Ok(Some(code))
    }

    /// On `local:` the command keeps the lock by inheriting it. Told otherwise, the guardian keeps it: it must not end
    /// before the command does, though nobody be left to renew or release it.
    fn kept(&self, guard: &Guard) -> Option<Kept> {
        fencepost::local::inherit(guard).map(if self.run.close_fd { Kept::ByGuardian } else { Kept::ByJob })
    }

    /// Gives the lock back, and answers the exit status of the whole.
    fn release(&self, guard: Guard, outcome: &Outcome, limit: Duration) -> std::io::Result<u8> {
        let (told, code) = match (block_on(within(limit, guard.release()))?, outcome) {
            (Some(Ok(())), _) => ("ok", outcome.code()),
            (Some(Err(error)), Outcome::Exited(_)) if error.kind() == ErrorKind::Lost => {
                // It ended by itself, and the lock was gone before that was noticed.
                ("lost", report::error(&error))
            }
            // What was lost need not be given back, so that a backend that cannot be told of it is no news.
            (_, Outcome::Lost) => ("lost", outcome.code()),
            (Some(Err(error)), _) if error.kind() == ErrorKind::Lost => ("lost", outcome.code()),
            (Some(Err(error)), _) => {
                report::note(error);
                ("unknown", outcome.code())
            }
            (None, _) => {
                let (lock, limit) = (&self.run.name, duration::exact(limit));
                report::note(format_args!("the release of lock={lock} is not confirmed within {limit}"));
                ("unknown", outcome.code())
            }
        };
        self.events.released(told);
        Ok(code)
    }
}

/// What the command finds in its environment, in place of what an outer run put there.
fn environment(guard: &Guard, backend: &str, handle: Option<&HandleFile>) -> Vec<(OsString, OsString)> {
    let handle = handle.map_or(OsString::new(), |handle| handle.path().into());
    [
        ("FENCEPOST_LOCK", guard.lock().as_str().into()),
        ("FENCEPOST_TOKEN", guard.token().to_string().into()),
        ("FENCEPOST_LINEAGE", guard.lineage().as_str().into()),
        ("FENCEPOST_BACKEND", backend.into()),
        ("FENCEPOST_HANDLE", handle),
    ]
    .map(|(name, value): (&str, OsString)| (name.into(), value))
    .into()
}

/// The hold as the supervisor follows it, and as the handle and the events show it.
struct Held {
    now: Hold,
    /// Whether `now` was looked at: what was so before the subscription is told by no change.
    begun: bool,
    next: Pin<Box<dyn Future<Output = (Hold, Changes)>>>,
    handle: Option<HandleFile>,
    events: Events,
}

impl Held {
    fn new(changes: Changes, handle: Option<HandleFile>, events: Events) -> Self {
        Self { now: changes.hold(), begun: false, next: next(changes), handle, events }
    }

    /// Shows how the hold is now.
    fn tell(&mut self) {
        if let Some(handle) = &mut self.handle {
            handle.follow(self.now);
        }
        self.events.changed(self.now);
    }
}

fn next(mut changes: Changes) -> Pin<Box<dyn Future<Output = (Hold, Changes)>>> {
    Box::pin(async move { (changes.changed().await, changes) })
}

impl crate::run::Hold for Held {
    fn deadline(&self) -> Option<u64> {
        self.now.deadline.map(fencepost::Moment::as_nanos)
    }

    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        if !std::mem::replace(&mut self.begun, true) && matches!(self.now.state, State::Lost(_)) {
            self.tell();
            return Poll::Ready(Change::Lost);
        }
        loop {
            let Poll::Ready((hold, changes)) = self.next.as_mut().poll(context) else { return Poll::Pending };
            self.next = next(changes);
            self.now = hold;
            self.tell();
            match (hold.state, self.deadline()) {
                (State::Lost(_), _) => return Poll::Ready(Change::Lost),
                (State::Held, Some(deadline)) => return Poll::Ready(Change::Deadline(deadline)),
                _ => {}
            }
        }
    }
}
