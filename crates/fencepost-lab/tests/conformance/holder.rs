//! A holder in a process of its own: this test binary, started again with the task in an environment variable.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use fencepost::{
    Error, Guard, Locker, Moment, SystemHost, Token, blocking,
    conformance::{HolderProcess, LossReport},
    driver::{Fut, Host},
};
use fencepost_lab::leased;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::sync::mpsc;

const TASK: &str = "FENCEPOST_CONFORMANCE_HOLD";

/// Plays the holder if this process was started as one; it ends when its standard input does.
pub(crate) fn serve() -> bool {
    let Ok(task) = env::var(TASK) else { return false };
    let mut task = task.splitn(3, ' ');
    let (ttl, name, url) = (task.next(), task.next(), task.next());
    let ttl = Duration::from_millis(ttl.and_then(|ttl| ttl.parse().ok()).expect("a ttl"));
    let (name, url) = (name.expect("a name").to_owned(), url.expect("a url").to_owned());
    thread::spawn(move || {
        let locker = blocking::wait(connect(&url)).expect("a backend to connect to");
        let guard = blocking::wait(locker.lock(name).ttl(ttl).acquire()).expect("the lock");
        tell(&format!("held {}", guard.token()));
        let loss = blocking::wait(told(&guard));
        tell(&format!("lost {} {}", loss.told.as_nanos(), loss.deadline.map_or(0, Moment::as_nanos)));
    });
    // An error and the end of the input are the same to us: the test has gone.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    true
}

async fn told(guard: &Guard) -> LossReport {
    guard.lost().await;
    LossReport { told: guard.now(), deadline: guard.deadline() }
}

async fn connect(url: &str) -> Result<Locker, Error> {
    if url.starts_with("lab:") {
        let driver = leased::connect(url, Arc::new(SystemHost)).await?;
        Ok(Locker::from_parts(driver, Arc::new(SystemHost)))
    } else {
        Locker::connect(url).await
    }
}

fn tell(line: &str) {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody reads");
}

/// The test's side of such a process.
pub(crate) struct Holder {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Holder {
    pub(crate) fn start(url: &str, lock: &str, ttl: Duration) -> Box<dyn HolderProcess> {
        let exe = env::current_exe().expect("the path of this test");
        let mut child = Command::new(exe)
            .env(TASK, format!("{} {lock} {url}", ttl.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let (send, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Box::new(Self { child, lines })
    }

    fn signal(&self, signal: Signal) {
        // The id cannot be another process's: ours is not reaped before the drop.
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("our own child can be signalled");
    }

    /// The numbers behind `word` in the next line.
    async fn numbers(&mut self, word: &str) -> Vec<u64> {
        let line = self.lines.recv().await.expect("the holder process has ended early");
        let numbers = line.strip_prefix(word).expect("the holder process tells one thing after the other");
        numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    }
}

impl HolderProcess for Holder {
    fn held(&mut self) -> Fut<'_, Token> {
        Box::pin(async { Token::new(self.numbers("held").await[0]).expect("a token is not 0") })
    }

    fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
    }

    fn pause(&mut self) {
        self.signal(Signal::SIGSTOP);
    }

    fn resume(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    fn lost(&mut self) -> Fut<'_, LossReport> {
        Box::pin(async {
            let numbers = self.numbers("lost").await;
            let deadline = Some(Moment::from_nanos(numbers[1])).filter(|at| *at > Moment::default());
            LossReport { told: Moment::from_nanos(numbers[0]), deadline }
        })
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may be dead already; then there is only the status to collect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The host of every driver of the suite.
pub(crate) fn host() -> Arc<dyn Host> {
    Arc::new(SystemHost)
}
