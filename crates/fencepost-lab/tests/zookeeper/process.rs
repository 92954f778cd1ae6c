//! A holder in a process of its own, which can be killed and stopped: this test binary, started again with its task in an
//! environment variable.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use fencepost::{Moment, blocking};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::scene::{LONG, locker, now};

const TASK: &str = "FENCEPOST_ZOOKEEPER_TASK";

/// Plays a holder if this process was started as one; it ends when its standard input does.
pub(crate) fn serve() -> bool {
    let Ok(task) = env::var(TASK) else { return false };
    thread::spawn(move || match task.split(' ').collect::<Vec<_>>().as_slice() {
        [url, lock, ttl] => hold(url, lock, Duration::from_millis(ttl.parse().expect("a number"))),
        other => panic!("no such task: {other:?}"),
    });
    // An error and the end of the input are the same to us: the test has gone.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    true
}

/// Takes a lock, says so, keeps it, and says when it is told that it is lost.
fn hold(url: &str, lock: &str, ttl: Duration) {
    let guard = blocking::wait(locker(url).lock(lock).ttl(ttl).wait(LONG * 10).acquire()).expect("the lock");
    tell(&format!("held {}", guard.token()));
    blocking::wait(guard.lost());
    tell(&format!("lost {}", now().as_nanos()));
}

fn tell(line: &str) {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody reads");
}

/// The test's side of it. Dropped, it is killed.
pub(crate) struct Holder {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Holder {
    pub(crate) fn start(url: &str, lock: &str, ttl: Duration) -> Self {
        let mut child = Command::new(env::current_exe().expect("the path of this test"))
            .env(TASK, format!("{url} {lock} {}", ttl.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, out }
    }

    /// The token, once it holds the lock.
    pub(crate) fn held(&mut self) -> u64 {
        self.number("held ")
    }

    /// When it was told of its loss.
    pub(crate) fn lost(&mut self) -> Moment {
        Moment::from_nanos(self.number("lost "))
    }

    fn number(&mut self, word: &str) -> u64 {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        line.trim().strip_prefix(word).expect("one thing after the other").parse().expect("a number")
    }

    /// Stops it, and returns when it stands still.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let seen = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid()), seen).expect("it is our child");
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        // The id cannot be another process's: ours is not reaped before the drop.
        kill(self.pid(), signal).expect("our own child can be signalled");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may be dead already; then there is only the status to collect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
