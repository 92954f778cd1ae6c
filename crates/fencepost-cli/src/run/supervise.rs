//! The supervisor: the process that owns the lock. Here is what it hears, and how it waits for the lock; what it does
//! while the job runs is in `watch`.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nix::libc;
use nix::sys::prctl::set_child_subreaper;

use super::Waited;
use super::guardian::Guardian;
use super::keeper::Launch;
use super::late::LateHost;
use super::outcome::Outcome;
use super::relay::{Relay, Report, Request};
use super::signals::{Signal, Signals, take_signal};
use super::wake::{Alarm, FdWaker, wait_readable};
use super::wire::Received;
use crate::{exit, sys};

/// The process that owns the lock.
pub(crate) struct Supervisor {
    pub(super) launch: Launch,
    /// Whether we were started on a terminal, whose rules the job then has to follow.
    pub(super) terminal: bool,
    pub(super) max_hold: Option<u64>,
    pub(super) guardian: Option<Guardian>,
    /// The signal that ended the job, or the wait for it.
    pub(super) fate: Option<i32>,
    /// Whether no other job may follow: we were told to end, or what watches over jobs is not to be relied on any more.
    pub(super) is_last: bool,
    /// Requests to the relay that it did not answer yet.
    pub(super) asked: u32,
    relay: Option<Relay>,
    signals: Signals,
    alarm: Alarm,
    wakes: Arc<FdWaker>,
    host: Arc<LateHost>,
}

/// What a supervisor hears while it waits.
#[derive(Clone, Copy)]
pub(super) enum News {
    Signal(Signal),
    /// The relay was not stopped when it read a request of ours.
    Going,
    RelayGone,
}

impl Supervisor {
    pub(super) fn new(
        launch: Launch,
        terminal: bool,
        max_hold: Option<u64>,
        guardian: Option<Guardian>,
        relay: Option<Relay>,
    ) -> io::Result<Self> {
        // Should the guardian die its orphans come to us, and not to a process that lets them run.
        set_child_subreaper(true)?;
        if guardian.is_some() {
            sys::let_go_of_stdio()?;
        }
        let (signals, alarm, wakes) = (Signals::new()?, Alarm::new()?, FdWaker::new()?);
        Ok(Self {
            launch,
            terminal,
            max_hold,
            guardian,
            fate: None,
            is_last: false,
            asked: 0,
            relay,
            signals,
            alarm,
            wakes,
            host: Arc::default(),
        })
    }

    /// What the library is to run on.
    pub(crate) fn host(&self) -> Arc<LateHost> {
        self.host.clone()
    }

    /// Waits for a future, and drops it when a signal asks us to give up.
    pub(crate) fn wait_for<F: Future>(&mut self, future: F) -> io::Result<Waited<F::Output>> {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = self.polling(|context| future.as_mut().poll(context)) {
                return Ok(Waited::Done(output));
            }
            while let Some(news) = self.news()? {
                if let Some(signal) = self.give_up(news)? {
                    self.fate = Some(signal);
                    return Ok(Waited::Interrupted(signal));
                }
            }
            self.wait(None, None)?;
        }
    }

    /// Whether the command, which had to be stopped, may be started once more when the lock is held again.
    pub(crate) fn may_run_again(&self, outcome: &Outcome) -> bool {
        self.launch.terms && !self.is_last && matches!(outcome, Outcome::Lost | Outcome::MaxHold)
    }

    /// Ends the process with the exit status of the whole, or by SIGINT where that is what the shell has to see.
    pub(super) fn end(&self, code: u8) -> io::Result<u8> {
        let interrupted = self.fate == Some(libc::SIGINT) && code == exit::of_signal(libc::SIGINT);
        if self.terminal && interrupted {
            match &self.relay {
                Some(relay) => relay.channel.send(&Request::Interrupted, None)?,
                None => take_signal(libc::SIGINT)?,
            }
        }
        Ok(code)
    }

    /// What news mean while no job runs: the signal to end with, or nothing.
    pub(super) fn give_up(&self, news: News) -> io::Result<Option<i32>> {
        match news {
            News::RelayGone => return Ok(Some(libc::SIGKILL)),
            News::Signal(signal) if signal.interrupts() => return Ok(Some(signal.number)),
            News::Signal(signal) if signal.stops() => self.suspend(signal.number)?,
            News::Signal(_) | News::Going => {}
        }
        Ok(None)
    }

    /// Polls something of the library. A wake-up that comes later ends the next [`Supervisor::wait`].
    pub(super) fn polling<T>(&self, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        self.wakes.reset();
        poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.wakes))))
    }

    /// The next thing that was heard, if any.
    pub(super) fn news(&mut self) -> io::Result<Option<News>> {
        if let Some(signal) = self.signals.next()? {
            return Ok(Some(News::Signal(signal)));
        }
        let Some(relay) = &self.relay else { return Ok(None) };
        Ok(match relay.channel.receive()? {
            Received::Message(Report::Signal(signal), _) => Some(News::Signal(signal)),
            Received::Message(Report::Going, _) => Some(News::Going),
            Received::Nothing => None,
            Received::End => {
                self.relay = None;
                Some(News::RelayGone)
            }
        })
    }

    /// Waits for news, a wake-up, something on `other`, or the time.
    pub(super) fn wait(&self, other: Option<BorrowedFd<'_>>, at: Option<u64>) -> io::Result<()> {
        self.alarm.set(at.into_iter().chain(self.host.wake_at()).min())?;
        let relay = self.relay.as_ref().map(|relay| relay.channel.as_fd());
        let mut fds = vec![self.signals.as_fd(), self.wakes.as_fd(), self.alarm.as_fd()];
        fds.extend(relay.into_iter().chain(other));
        wait_readable(&fds)?;
        self.host.start_due();
        Ok(())
    }

    /// Asks the relay, if there is one, whether it runs.
    pub(super) fn ask_relay(&mut self) {
        let relay = self.relay.as_ref();
        self.asked += u32::from(relay.is_some_and(|relay| relay.channel.send(&Request::Go, None).is_ok()));
    }

    /// Takes note of an answer of the relay's.
    pub(super) fn answered(&mut self) {
        self.asked = self.asked.saturating_sub(1);
    }

    /// Gives the terminal back, as the signal would without us. What renews the lock is not stopped by this: either
    /// the relay stands in for us, or the lock is one that does not expire.
    pub(super) fn suspend(&self, signal: i32) -> io::Result<()> {
        match &self.relay {
            _ if !self.terminal => Ok(()),
            // A relay that is gone shows as news.
            Some(relay) => relay.channel.send(&Request::Stop(signal), None).or(Ok(())),
            None => take_signal(signal),
        }
    }

    /// Continues the relay, as the job was continued without it.
    pub(super) fn resume(&self) {
        if let Some(relay) = &self.relay {
            let _ = sys::kill(relay.pid, libc::SIGCONT);
        }
    }
}
