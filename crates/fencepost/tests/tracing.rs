//! What the library tells its user's logs, and that no secret is among it.

use std::{
    fmt::{Debug, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use fencepost::blocking::wait;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Writes down the name and the fields of every span and event.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fencepost")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(span.metadata().name().into());
        span.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
        Id::from_u64(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields("event".into());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_lock_is_told_from_its_acquire_to_its_release_without_its_claim_id() {
    let dir = tempfile::tempdir().unwrap();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let locker = wait(fencepost::Locker::connect(&format!("local:{}", dir.path().display()))).unwrap();
        let guard = wait(locker.lock("orders/4821").acquire()).unwrap();
        lines.0.lock().unwrap().push(format!("debug {guard:?}"));
        let token = guard.token();
        wait(guard.release()).unwrap();
        let told = lines.0.lock().unwrap().join("\n");
        for part in ["acquire lock=orders/4821", &format!("token={token}"), "release lock=orders/4821"] {
            assert!(told.contains(part), "{part} is missing in:\n{told}");
        }
        // A claim's id is 32 hexadecimal digits: whoever knows it can release the lock.
        let digits = |word: &str| word.len() >= 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(!told.split(|c: char| !c.is_ascii_alphanumeric()).any(digits), "{told}");
    });
}
