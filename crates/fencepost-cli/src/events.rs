//! `--events` and `--history`: what happens to a lock, as lines of JSON, each in one write.

use std::{fs::File, io::Write, path::Path, sync::Arc, time::SystemTime};

use fencepost::{Guard, Hold, Moment, State};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::{Map, Value, json};

use crate::{args, sys};

/// Where the events of one run go.
#[derive(Clone, Default)]
pub(crate) struct Events {
    events: Option<Arc<File>>,
    history: Option<Arc<File>>,
    lock: String,
    claim: String,
}

impl Events {
    /// Opens the files; an error names the flag.
    pub(crate) fn open(run: &args::Run) -> Result<Self, String> {
        let by_number = run.events_fd.map(|number| format!("/dev/fd/{number}"));
        let events = match (&run.events, &by_number) {
            (Some(path), _) => Some(append("--events", path)?),
            (None, Some(path)) => Some(append("--events-fd", Path::new(path))?),
            (None, None) => None,
        };
        let history = run.history.as_deref().map(|path| append("--history", path)).transpose()?;
        Ok(Self { events, history, lock: run.name.to_string(), claim: claim() })
    }

    /// The same files for the next claim.
    pub(crate) fn of_next_claim(&self) -> Self {
        Self { claim: claim(), ..self.clone() }
    }

    pub(crate) fn waiting(&self) {
        self.event("waiting", json!({}));
        self.moment("acquire", "invoke", json!({}));
    }

    pub(crate) fn acquired(&self, guard: &Guard) {
        let (token, ttl) = (guard.token(), guard.ttl().map(|ttl| ttl.as_millis() as u64));
        self.event(
            "acquired",
            json!({ "token": token, "left_ms": left_ms(guard.deadline()), "ttl_ms": ttl }),
        );
        let deadline = guard.deadline().map(Moment::as_nanos);
        self.moment("acquire", "return", json!({ "outcome": "ok", "token": token, "deadline_ns": deadline }));
    }

    pub(crate) fn not_acquired(&self, why: &str, outcome: &str) {
        self.event("not_acquired", json!({ "reason": why }));
        self.moment("acquire", "return", json!({ "outcome": outcome }));
    }

    /// A change of the hold while the command runs.
    pub(crate) fn changed(&self, hold: Hold) {
        let name = match hold.state {
            State::Held => "renewed",
            State::Suspect => "suspect",
            State::Lost(_) => "lost",
            _ => return,
        };
        match hold.state {
            State::Lost(loss) => {
                self.event(name, json!({ "reason": loss.to_string() }));
                self.moment("lost", "", json!({}));
            }
            _ => self.event(name, json!({ "left_ms": left_ms(hold.deadline) })),
        }
        if hold.state == State::Held {
            self.moment("renew", "invoke", json!({}));
            self.moment(
                "renew",
                "return",
                json!({ "outcome": "ok", "deadline_ns": hold.deadline.map(Moment::as_nanos) }),
            );
        }
    }

    /// The command is over, with this exit status of ours.
    pub(crate) fn ended(&self, status: u8) {
        self.event("ended", json!({ "status": status }));
        self.moment("release", "invoke", json!({}));
    }

    pub(crate) fn released(&self, outcome: &str) {
        self.event("released", json!({ "outcome": outcome }));
        self.moment("release", "return", json!({ "outcome": outcome }));
    }

    fn event(&self, name: &str, more: Value) {
        let at = humantime::format_rfc3339_millis(now()).to_string();
        line(self.events.as_deref(), json!({ "event": name, "at": at, "lock": self.lock }), more);
    }

    /// A line of the history format.
    fn moment(&self, kind: &str, phase: &str, more: Value) {
        let lane = format!("run-{}", std::process::id());
        let mut head =
            json!({ "t_ns": sys::now(), "lane": lane, "kind": kind, "lock": self.lock, "claim": self.claim });
        if !phase.is_empty() {
            head["phase"] = phase.into();
        }
        line(self.history.as_deref(), head, more);
    }
}

/// A name for one attempt to get the lock.
fn claim() -> String {
    format!("{}-{}", std::process::id(), sys::now())
}

fn append(flag: &str, path: &Path) -> Result<Arc<File>, String> {
    let file = File::options().append(true).create(true).open(path);
    let file = file.and_then(|file| {
        // A reader that is slow must not hold up who passes on signals and deadlines. These are flags of our own opening
        // of a pipe: whoever else writes to it is not concerned.
        if !file.metadata()?.is_file() {
            fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND | OFlag::O_NONBLOCK))?;
        }
        Ok(file)
    });
    file.map(Arc::new).map_err(|error| format!("{flag}: cannot write: {error}: path={}", path.display()))
}

/// Writes one line; absent values are left out. A disk or pipe that is full must not stop the job, and loses the line.
fn line(file: Option<&File>, head: Value, more: Value) {
    let (Some(mut file), Value::Object(head), Value::Object(more)) = (file, head, more) else { return };
    let all: Map<String, Value> =
        head.into_iter().chain(more).filter(|(_, value)| !value.is_null()).collect();
    let _ = file.write_all(format!("{}\n", Value::Object(all)).as_bytes());
}

fn left_ms(deadline: Option<Moment>) -> Option<u64> {
    deadline.map(|deadline| deadline.as_nanos().saturating_sub(sys::now()) / 1_000_000)
}

#[allow(clippy::disallowed_methods, reason = "wall time for people")]
fn now() -> SystemTime {
    SystemTime::now()
}
