//! The program under test: the real process side, around a hold that follows a script.
//!
//! `role:run KEY=VALUE… -- COMMAND…`, all times in milliseconds: `grace`, `wait` (until the lock is acquired), `ttl` and
//! `every` (a lease, renewed that often; without them the lock does not expire), `renewals` (how many before they
//! end), `lose` (when the lock is lost), `panic` (when we make a mistake), `max` (the longest hold), `inherit` (a file that is locked and passed on).

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::run::{self, Change, Hold, Kept, Plan, Start, Supervisor, Waited};
use crate::scene::note;
use crate::{exit, sys};

const MILLISECOND: u64 = 1_000_000;

pub(crate) fn main(arguments: Vec<String>) -> ExitCode {
    let split = arguments.iter().position(|argument| argument == "--").expect("a command after --");
    let script: HashMap<_, u64> = arguments[..split]
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?)))
        .collect();
    let inherit = arguments[..split].iter().find_map(|pair| pair.strip_prefix("inherit="));
    let plan = Plan {
        argv: arguments[split + 1..].iter().map(Into::into).collect(),
        guardian: script.contains_key("ttl"),
        grace: Duration::from_millis(*script.get("grace").unwrap_or(&200)),
        max_hold: script.get("max").map(|&max| Duration::from_millis(max)),
        terms: false,
    };
    note("caller", std::process::id());
    match run::supervised(plan, |supervisor| supervise(supervisor, &script, inherit)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("fencepost: {error}");
            ExitCode::from(exit::INTERNAL)
        }
    }
}

fn supervise(supervisor: &mut Supervisor, script: &HashMap<String, u64>, inherit: Option<&str>) -> u8 {
    note("supervisor", std::process::id());
    match supervisor.wait_for(after(*script.get("wait").unwrap_or(&0))).expect("waiting works") {
        Waited::Interrupted(signal) => exit::of_signal(signal),
        Waited::Done(()) => {
            let env = vec![("FENCEPOST_TOKEN".into(), "7".into())];
            let outcome = supervisor
                .run(Start { env, keep: inherit.map(locked).map(Kept::ByJob) }, &mut Script::start(script));
            if let Some(message) = outcome.message("job") {
                eprintln!("fencepost: {message}");
            }
            note("over", sys::now());
            run::block_on(after(5)).expect("waiting works");
            note("released", "");
            outcome.code()
        }
    }
}

fn locked(path: &str) -> OwnedFd {
    let file = File::open(path).expect("the file exists");
    file.lock().expect("nobody else has it");
    file.into()
}

/// A claim that another thread answers after so many milliseconds.
fn after(wait: u64) -> Claim {
    let (answer, answered) = mpsc::channel();
    let waker = Arc::new(Mutex::new(None::<Waker>));
    let wake = Arc::clone(&waker);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(wait));
        // A claim that was withdrawn needs no answer.
        let _ = answer.send(());
        wake.lock().expect("never poisoned").iter().for_each(Waker::wake_by_ref);
    });
    Claim(answered, waker)
}

/// A claim that waits; dropping it before the end is noted as a withdrawal.
struct Claim(mpsc::Receiver<()>, Arc<Mutex<Option<Waker>>>);

impl Future for Claim {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.1.lock().expect("never poisoned") = Some(context.waker().clone());
        self.0.try_recv().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        note("claim", "dropped");
    }
}

/// A hold whose changes come from another thread, as those of a real one do.
struct Script {
    deadline: Option<u64>,
    panic: Option<u64>,
    changes: mpsc::Receiver<Change>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Script {
    fn start(script: &HashMap<String, u64>) -> Self {
        let begin = sys::now();
        let time = |key: &str| script.get(key).map(|&time| time * MILLISECOND);
        let (ttl, every, lose) = (time("ttl"), time("every"), time("lose"));
        let renewals = *script.get("renewals").unwrap_or(&u64::MAX);
        let deadline = ttl.map(|ttl| begin + ttl);
        if let Some(deadline) = deadline {
            note("deadline", deadline);
        }
        let panic = time("panic").map(|age| begin + age);
        let (sender, changes) = mpsc::channel();
        let waker = Arc::new(Mutex::new(None::<Waker>));
        let wake = Arc::clone(&waker);
        std::thread::spawn(move || {
            let mut done = 0;
            loop {
                std::thread::sleep(Duration::from_millis(2));
                let age = sys::now() - begin;
                if panic.is_some_and(|at| at <= begin + age) {
                    wake.lock().expect("never poisoned").iter().for_each(Waker::wake_by_ref);
                }
                let change = match (ttl, every) {
                    _ if lose.is_some_and(|lose| lose <= age) => Change::Lost,
                    (Some(ttl), Some(every)) if done < renewals && age / every > done => {
                        done += 1;
                        note("renewals", done);
                        note("deadline", sys::now() + ttl);
                        Change::Deadline(sys::now() + ttl)
                    }
                    _ => continue,
                };
                let last = matches!(change, Change::Lost);
                if sender.send(change).is_err() || last {
                    wake.lock().expect("never poisoned").iter().for_each(Waker::wake_by_ref);
                    std::thread::park();
                }
                wake.lock().expect("never poisoned").iter().for_each(Waker::wake_by_ref);
            }
        });
        Self { deadline, panic, changes, waker }
    }
}

impl Hold for Script {
    fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        assert!(self.panic.is_none_or(|at| sys::now() < at), "as the script says");
        *self.waker.lock().expect("never poisoned") = Some(context.waker().clone());
        self.changes.try_recv().map_or(Poll::Pending, Poll::Ready)
    }
}
