//! Processes of their own: the test binary again, in a role that the environment names.
//!
//! A role reads commands from its standard input and tells what it did in lines that begin with `@`.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use fencepost::{Locker, blocking::wait};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::support::{LOCK, SOON, TestRoot};

const ROLE: &str = "FENCEPOST_TEST_ROLE";
const URL: &str = "FENCEPOST_TEST_URL";

/// A process that plays a role; killed when dropped.
pub(crate) struct Actor {
    child: Child,
    said: Receiver<String>,
}

/// The command that plays `role` in `root`.
pub(crate) fn command(role: &str, url: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["roles::play", "--exact", "--ignored", "--nocapture"]);
    command.env(ROLE, role).env(URL, url);
    command
}

impl Actor {
    pub(crate) fn start(role: &str, root: &TestRoot) -> Self {
        Self::spawn(&mut command(role, &root.url()))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = listen(child.stdout.take().unwrap());
        Self { child, said }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            // Its threads run on for a moment: long enough to take a lock.
            let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
            let stopped = stopped.expect("it is our child").1;
            assert!(stopped.stopped(), "it ended by itself: {stopped:?}");
        }
    }

    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// The next line, which must come soon.
    pub(crate) fn hear(&self) -> String {
        self.hear_within(SOON)
    }

    /// The next line, which must come within `time`.
    pub(crate) fn hear_within(&self, time: Duration) -> String {
        self.said.recv_timeout(time).expect("the actor says something")
    }

    /// Whether it says nothing for a while.
    pub(crate) fn is_silent_for(&self, time: Duration) -> bool {
        self.said.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }

    /// Waits for its end, and answers whether it was a success.
    pub(crate) fn ends_well(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(stdout: ChildStdout) -> Receiver<String> {
    let (say, said) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // The test harness may have begun the line.
            if let Some((_, line)) = line.split_once('@')
                && say.send(line.to_owned()).is_err()
            {
                break;
            }
        }
    });
    said
}

pub(crate) fn say(line: impl std::fmt::Display) {
    println!("@{line}");
}

fn listen_for_command() {
    std::io::stdin().lines().next().unwrap().unwrap();
}

#[test]
#[ignore = "only played by the other tests, in a process of its own"]
fn play() {
    let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var(URL)) else {
        panic!("{ROLE} and {URL} say what to play");
    };
    match role.as_str() {
        "connect" => match wait(Locker::connect(&url)) {
            Ok(locker) => match wait(locker.lock(LOCK).patience(Duration::ZERO).try_acquire()) {
                Ok(guard) => say(format!("token {}", guard.token())),
                Err(error) => say(format!("{:?}: {error}", error.kind())),
            },
            Err(error) => say(format!("{:?}: {error}", error.kind())),
        },
        "hold" => {
            let locker = wait(Locker::connect(&url)).unwrap();
            let guard = wait(locker.lock(LOCK).label("actor").acquire()).unwrap();
            say(guard.token());
            listen_for_command();
            wait(guard.release()).unwrap();
            say("released");
        }
        "lose" => {
            let locker = wait(Locker::connect(&url)).unwrap();
            let guard = wait(locker.lock(LOCK).acquire()).unwrap();
            say(guard.token());
            say(format!("{:?}", wait(guard.lost())));
        }
        "lend" => {
            let locker = wait(Locker::connect(&url)).unwrap();
            let guard = wait(locker.lock(LOCK).acquire()).unwrap();
            drop(fencepost::local::inherit(&guard).unwrap());
            wait(guard.release()).unwrap();
            say("released");
            listen_for_command();
        }
        "bequeath" => {
            let locker = wait(Locker::connect(&url)).unwrap();
            let guard = wait(locker.lock(LOCK).acquire()).unwrap();
            let heir = fencepost::local::inherit(&guard).unwrap();
            let mut job = std::process::Command::new("sleep").arg("30").stdin(heir).spawn().unwrap();
            say(job.id());
            listen_for_command();
            wait(guard.release()).unwrap();
            say("released");
            assert!(!job.wait().unwrap().success(), "the test kills the job");
        }
        "crowd" => crate::crowd::play(&url),
        "work" => crate::stress::work(&url),
        other => panic!("unknown role {other}"),
    }
}
