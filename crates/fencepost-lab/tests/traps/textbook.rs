//! The textbook's clients, and ours, on one server.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread,
    time::Duration,
};

use fencepost::{ErrorKind, Guard, Locker, blocking::wait};
use fencepost_lab::server::{peers::Peer, redis};
use libtest_mimic::Failed;

pub(crate) const NAME: &str = "orders/4821";
pub(crate) const KEY: &str = "lock:orders/4821";

/// A lease that no test lives to see the end of, for those of both sides.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) server: redis::Redis,
    python: Peer,
}

impl Stage {
    pub(crate) fn new(python: Peer) -> Result<Self, Failed> {
        Ok(Self { server: redis::Redis::start(redis::Options::default())?, python })
    }

    /// A client of the textbook, in a process of its own.
    pub(crate) fn client(&self) -> Result<Textbook, Failed> {
        let mut command = self.python.command();
        command.args(["-c", include_str!("textbook.py"), &self.server.url()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or("its input is piped")?;
        let answers = BufReader::new(child.stdout.take().ok_or("its output is piped")?).lines();
        Ok(Textbook { child, orders, answers })
    }

    pub(crate) fn locker(&self) -> Result<Locker, Failed> {
        Ok(wait(Locker::connect(&self.server.url()))?)
    }

    /// Lets the lock's lease end now, as it would by itself.
    pub(crate) fn expire(&self) -> Result<(), Failed> {
        self.server.command::<i64>(&["PEXPIRE", KEY, "1"])?;
        while self.server.command::<bool>(&["EXISTS", KEY])? {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The lock is free for the next test of the same stage.
    pub(crate) fn clear(&self) -> Result<(), Failed> {
        Ok(self.server.command(&["FLUSHALL"])?)
    }
}

/// A process of `textbook.py`. It ends with its input, or when dropped.
pub(crate) struct Textbook {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Textbook {
    pub(crate) fn order(&mut self, line: &str) -> Result<String, Failed> {
        writeln!(self.orders, "{line}")?;
        Ok(self.answers.next().ok_or("the textbook's client has ended")??)
    }

    /// Takes the lock if it is free, and says what proves it.
    pub(crate) fn take(&mut self, ttl: Duration) -> Result<Option<String>, Failed> {
        let said = self.order(&format!("take {NAME} {}", ttl.as_millis()))?;
        Ok(Some(said).filter(|said| said != "-"))
    }

    /// A token, which it takes to be the lock's.
    pub(crate) fn take_with_token(&mut self) -> Result<u64, Failed> {
        Ok(self.order(&format!("take_with_token {NAME} {}", LONG.as_millis()))?.parse()?)
    }
}

impl Drop for Textbook {
    fn drop(&mut self) {
        // It may be dead already; then there is only the status to collect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn take(locker: &Locker) -> Result<Guard, Failed> {
    Ok(wait(locker.lock(NAME).ttl(LONG).try_acquire())?)
}

/// Somebody else holds the lock, and nothing is handed out.
pub(crate) fn is_refused(locker: &Locker) {
    let error = wait(locker.lock(NAME).ttl(LONG).try_acquire()).expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}
