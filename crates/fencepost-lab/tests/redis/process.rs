//! A client in a process of its own, which can be killed and stopped: this test binary, started again with its task in an
//! environment variable.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use fencepost::{SystemHost, blocking, driver::Host};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::scene::{LONG, locker, ms};
use crate::storm;

const TASK: &str = "FENCEPOST_REDIS_TASK";

/// Plays a client if this process was started as one; it ends when its standard input does.
pub(crate) fn serve() -> bool {
    let Ok(task) = env::var(TASK) else { return false };
    let words: Vec<String> = task.split(' ').map(str::to_owned).collect();
    thread::spawn(move || match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["wait", url, lock] => wait(url, lock),
        ["storm", url, lane, history, seed] => {
            storm::work(url, lane, history.as_ref(), seed.parse().expect("a seed"))
        }
        other => panic!("no such task: {other:?}"),
    });
    // An error and the end of the input are the same to us: the test has gone.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    true
}

/// Takes a lock, says when, and keeps it.
fn wait(url: &str, lock: &str) {
    let guard =
        blocking::wait(locker(url).lock(lock).ttl(ms(2000)).wait(LONG * 10).acquire()).expect("the lock");
    println!("granted {} {}", guard.token(), SystemHost.now().as_nanos());
    io::stdout().flush().expect("somebody reads");
    blocking::wait(guard.lost());
}

/// The test's side of it. Dropped, it is killed.
pub(crate) struct Client {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Client {
    pub(crate) fn start(task: &str) -> Self {
        let mut child = Command::new(env::current_exe().expect("the path of this test"))
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, out }
    }

    /// One that waits for a lock, and then keeps it.
    pub(crate) fn waits(url: &str, lock: &str) -> Self {
        Self::start(&format!("wait {url} {lock}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // The id cannot be another process's: ours is not reaped before the drop.
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("our own child can be signalled");
    }

    /// Stops it, and returns when it stands still.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let seen = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(Pid::from_raw(self.child.id() as i32)), seen).expect("it is our child");
    }

    /// Kills it, and returns when it is dead.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// The next line that it prints; empty when it has ended.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        line
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may be dead already; then there is only the status to collect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
