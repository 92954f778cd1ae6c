//! A gate over a table in memory that has what a database has: transactions that commit together or not at all, and rows
//! that are locked from the check to the commit. It is sound, and can be broken in every way that [`Fault`] names.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use fencepost::{
    Error, Token,
    conformance::Hook,
    gate::{
        Decision, Mark, Pass, Refusal, Stale,
        conformance::{Client, Crash, Harness, Transaction},
    },
};

use crate::broken::Fault;

#[derive(Clone)]
pub(crate) struct Toy {
    fault: Option<Fault>,
    table: Arc<Table>,
}

#[derive(Default)]
struct Table {
    rows: Mutex<HashMap<String, Row>>,
    freed: Condvar,
    pauses: AtomicU32,
}

#[derive(Clone, Default)]
struct Row {
    mark: Mark,
    text: String,
    /// How many transactions under each token have passed the gate and have not ended.
    passed: BTreeMap<Token, u32>,
}

impl Toy {
    pub(crate) fn sound() -> Self {
        Self { fault: None, table: Arc::default() }
    }

    pub(crate) fn broken(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::sound() }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<String, Row>> {
        self.table.rows.lock().expect("no panic inside")
    }

    /// The key of a resource's row.
    fn key(&self, resource: &str) -> String {
        if self.is(Fault::OneMarkForAll) { String::new() } else { resource.to_owned() }
    }

    /// The decision, with its faults.
    fn decide(&self, mark: &Mark, pass: &Pass) -> Result<Decision, Error> {
        let mut pass = pass.clone();
        let mut mark = mark.clone();
        if self.is(Fault::LineageIsIgnored) {
            (pass.lineage, mark.lineage) = (None, None);
        }
        if self.is(Fault::NumberIsComparedAsText)
            && mark.highest.is_some_and(|highest| pass.token.to_string() >= highest.to_string())
        {
            mark.highest = None;
        }
        if self.is(Fault::NothingIsChecked) {
            return Ok(Decision::Record(Mark { highest: Some(pass.token), ..mark }));
        }
        if self.is(Fault::EqualIsRefused) && mark.highest == Some(pass.token) {
            let stale = Stale { presented: pass.token, highest: pass.token };
            return Err(Refusal::Stale(stale).into());
        }
        match mark.decide(&pass) {
            Err(Refusal::Stale(Stale { presented, highest })) if self.is(Fault::NumbersAreSwapped) => {
                Err(Refusal::Stale(Stale { presented: highest, highest: presented }).into())
            }
            Err(refusal) if self.is(Fault::ARejectionRecords) => {
                Err(refusal.into()) // The caller records it.
            }
            decision => Ok(decision?),
        }
    }

    /// Judges and records in one step, when no transaction that has passed stands in the way.
    fn admit<R>(&self, resource: &str, pass: &Pass, then: impl FnOnce(&mut Row) -> R) -> Result<R, Error> {
        let key = self.key(resource);
        let mut rows = self.rows();
        loop {
            let row = rows.entry(key.clone()).or_default();
            let decision = self.decide(&row.mark, pass);
            match decision {
                Err(error) => {
                    if self.is(Fault::ARejectionRecords) {
                        row.mark.highest = Some(pass.token);
                    }
                    return Err(error);
                }
                Ok(Decision::Record(_))
                    if !self.is(Fault::ATakeoverDoesNotWait)
                        && row.passed.keys().any(|token| *token < pass.token) =>
                {
                    rows = self.table.freed.wait(rows).expect("no panic inside");
                }
                Ok(decision) => {
                    if let Decision::Record(mark) = decision {
                        row.mark = mark;
                    }
                    return Ok(then(row));
                }
            }
        }
    }

    fn with<R>(&self, resource: &str, f: impl FnOnce(&mut Row) -> R) -> R {
        f(self.rows().entry(self.key(resource)).or_default())
    }
}

impl Harness for Toy {
    fn connect(&self) -> Result<Box<dyn Client>, Error> {
        if self.is(Fault::AMarkEndsWithItsConnections) {
            // This one is not among them yet.
            self.rows().values_mut().for_each(|row| row.mark = Mark::default());
        }
        Ok(Box::new(self.clone()))
    }

    fn largest(&self) -> Token {
        Token::new(u64::MAX).expect("not zero")
    }

    fn restart(&self) -> Hook {
        if self.is(Fault::AMarkIsNotDurable) {
            self.rows().values_mut().for_each(|row| row.mark = Mark::default());
        }
        Ok(())
    }

    /// The steps of a write in a process of its own: the fence, the data, the cleaning up.
    fn crash(&self, resource: &str, pass: &Pass, text: &str, step: usize) -> Hook<Crash> {
        let fence = |row: &mut Row| row.mark.raise(pass).expect("a higher token");
        let data = |row: &mut Row| row.text = text.to_owned();
        let steps: [&dyn Fn(&mut Row); 2] =
            if self.is(Fault::TheFenceComesAfterTheData) { [&data, &fence] } else { [&fence, &data] };
        steps.iter().take(step).for_each(|step| self.with(resource, step));
        if step == 1 && self.is(Fault::ACrashLeavesItsLock) {
            self.with(resource, |row| row.mark.highest = Some(self.largest()));
        }
        Ok(if step > steps.len() { Crash::Ended } else { Crash::Killed })
    }

    fn residue(&self) -> Vec<String> {
        if self.is(Fault::ACrashLeavesItsDraft) { vec!["draft".into()] } else { Vec::new() }
    }
}

impl Client for Toy {
    fn fence(&self, resource: &str, pass: &Pass) -> Result<(), Error> {
        if self.is(Fault::TheMarkIsRaisedByWritesOnly) {
            let mark = self.with(resource, |row| row.mark.clone());
            return self.decide(&mark, pass).map(drop);
        }
        self.admit(resource, pass, |_| ())
    }

    fn read(&self, resource: &str, pass: &Pass) -> Result<String, Error> {
        if self.is(Fault::ReadsAreNotChecked) {
            return self.peek(resource);
        }
        if self.is(Fault::TheMarkIsRaisedByWritesOnly) {
            self.fence(resource, pass)?;
            return self.peek(resource);
        }
        self.admit(resource, pass, |row| row.text.clone())
    }

    fn write(&self, resource: &str, pass: &Pass, text: &str) -> Result<(), Error> {
        if self.is(Fault::TheWriteIsAnotherStep) {
            self.admit(resource, pass, |_| ())?;
            // Every other one is overtaken by the next.
            if self.table.pauses.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                thread::sleep(Duration::from_millis(1));
            }
            self.with(resource, |row| row.text = text.to_owned());
            return Ok(());
        }
        self.admit(resource, pass, |row| row.text = text.to_owned())
    }

    fn peek(&self, resource: &str) -> Result<String, Error> {
        Ok(self.with(resource, |row| row.text.clone()))
    }

    fn mark(&self, resource: &str) -> Result<Mark, Error> {
        Ok(self.with(resource, |row| row.mark.clone()))
    }

    fn rebind(&self, resource: &str, mark: &Mark) -> Result<(), Error> {
        self.with(resource, |row| {
            let highest = if self.is(Fault::ARebindNeverLowers) {
                row.mark.highest.max(mark.highest)
            } else {
                mark.highest
            };
            row.mark = Mark { highest, lineage: mark.lineage.clone() };
        });
        Ok(())
    }

    fn begin(&self, resource: &str) -> Hook<Result<Box<dyn Transaction + '_>, Error>> {
        let snapshot = self.with(resource, |row| row.mark.clone());
        let transaction =
            Change { toy: self, resource: resource.to_owned(), snapshot, passed: None, text: None };
        Ok(Ok(Box::new(transaction)))
    }
}

struct Change<'a> {
    toy: &'a Toy,
    resource: String,
    /// The mark when the transaction began; a sound one does not look at it.
    snapshot: Mark,
    passed: Option<Token>,
    text: Option<String>,
}

impl Transaction for Change<'_> {
    fn admit(&mut self, pass: &Pass) -> Result<(), Error> {
        if self.toy.is(Fault::TheSnapshotIsChecked) {
            self.toy.decide(&self.snapshot, pass)?;
        } else {
            let is_exclusive = self.toy.is(Fault::TransactionsOfOneHolderWait);
            if is_exclusive && self.toy.with(&self.resource, |row| !row.passed.is_empty()) {
                thread::sleep(Duration::from_secs(11));
            }
            self.toy.admit(&self.resource, pass, |_| ())?;
        }
        self.passed = Some(pass.token);
        self.toy.with(&self.resource, |row| *row.passed.entry(pass.token).or_default() += 1);
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        if self.toy.is(Fault::WritesDoNotWaitForTheCommit) {
            self.toy.with(&self.resource, |row| row.text = text.to_owned());
        }
        self.text = Some(text.to_owned());
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<(), Error> {
        let text = self.text.take();
        self.toy.with(&self.resource, |row| row.text = text.unwrap_or_else(|| row.text.clone()));
        Ok(())
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let Some(token) = self.passed else { return };
        self.toy.with(&self.resource, |row| {
            if let Some(count) = row.passed.get_mut(&token) {
                *count -= 1;
            }
            row.passed.retain(|_, count| *count > 0);
        });
        self.toy.table.freed.notify_all();
    }
}
