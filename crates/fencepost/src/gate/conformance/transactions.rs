//! Gates in the caller's own transaction: the check counts when the transaction commits, not when it began.

use std::{sync::mpsc, thread, time::Duration};

use super::{Stage, Verdict, ensure, equal, pass, stale};
use crate::{
    conformance::Stop,
    error::{Error, ErrorKind},
};

/// How long to watch something that must not happen.
const WATCH: Duration = Duration::from_millis(200);
/// How long to wait for something that must.
const LIMIT: Duration = Duration::from_secs(10);

/// The snapshot of the transaction is older than the takeover, and the check must see it all the same. A store that can
/// only fail the transaction for it rejects the next attempt.
pub(super) fn a_transaction_begun_before_the_takeover_is_rejected(stage: &Stage<'_>) -> Verdict {
    let (late, successor) = (stage.connect()?, stage.connect()?);
    late.write(&stage.resource, &pass(41), "text")?;
    let mut transaction = late.begin(&stage.resource)??;
    successor.fence(&stage.resource, &pass(42))?;
    match transaction.admit(&pass(41)) {
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            drop(transaction);
            let mut again = late.begin(&stage.resource)??;
            stale(again.admit(&pass(41)), "the second attempt", 41, 42)?;
        }
        verdict => stale(verdict, "the late transaction", 41, 42)?,
    }
    equal(&successor.read(&stage.resource, &pass(42))?, &"text".into(), "the text")
}

/// Between the check and the commit nobody takes over; or if somebody does, the commit fails.
pub(super) fn a_takeover_waits_for_a_transaction_that_has_passed_or_stops_it(stage: &Stage<'_>) -> Verdict {
    let (old, successor) = (stage.connect()?, stage.connect()?);
    old.write(&stage.resource, &pass(41), "text")?;
    let mut transaction = old.begin(&stage.resource)??;
    transaction.admit(&pass(41))?;
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| -> Verdict {
        let (successor, resource) = (&*successor, stage.resource.as_str());
        scope.spawn(move || {
            let seen =
                successor.fence(resource, &pass(42)).and_then(|()| successor.read(resource, &pass(42)));
            let _ = tell.send(seen);
        });
        let early: Option<Result<String, Error>> = told.recv_timeout(WATCH).ok();
        let committed = transaction.write("passed").and_then(|()| transaction.commit());
        if let Some(seen) = early {
            let broken = format!("the takeover saw {:?}, and then the old transaction committed", seen?);
            return ensure(committed.is_err(), broken);
        }
        committed?;
        let seen =
            told.recv_timeout(LIMIT).map_err(|_| Stop::Failed("the takeover still waits".into()))??;
        equal(&seen, &"passed".into(), "what the successor reads")
    })?;
    stale(old.write(&stage.resource, &pass(41), "late"), "a late write", 41, 42)
}

/// Once the mark is raised, the transactions of its holder do not wait for each other at the gate.
pub(super) fn transactions_of_one_holder_run_side_by_side(stage: &Stage<'_>) -> Verdict {
    let (one, two) = (stage.connect()?, stage.connect()?);
    one.fence(&stage.resource, &pass(42))?;
    let mut first = one.begin(&stage.resource)??;
    first.admit(&pass(42))?;
    let (tell, told) = mpsc::channel();
    let is_beside = thread::scope(|scope| -> Result<bool, Stop> {
        let (two, resource) = (&*two, stage.resource.as_str());
        let second = scope.spawn(move || -> Verdict {
            let mut second = two.begin(resource)??;
            second.admit(&pass(42))?;
            let _ = tell.send(());
            second.commit()?;
            Ok(())
        });
        let is_beside = told.recv_timeout(LIMIT).is_ok();
        first.commit()?;
        second.join().map_err(|_| Stop::Failed("a thread of the case panicked".into()))??;
        Ok(is_beside)
    })?;
    ensure(is_beside, "the second transaction of the holder waited for the first")
}

/// Rolled back: the text stays. Whether the mark was raised is the store's to say; it is not lowered.
pub(super) fn a_transaction_that_is_given_up_changes_nothing(stage: &Stage<'_>) -> Verdict {
    let client = stage.connect()?;
    client.write(&stage.resource, &pass(41), "text")?;
    let mut transaction = client.begin(&stage.resource)??;
    transaction.admit(&pass(42))?;
    transaction.write("given up")?;
    drop(transaction);
    equal(&client.peek(&stage.resource)?, &"text".into(), "the text")?;
    stale(client.write(&stage.resource, &pass(40), "late"), "a late write", 40, 41.max(highest(stage)?))?;
    client.write(&stage.resource, &pass(42), "next")?;
    equal(&client.peek(&stage.resource)?, &"next".into(), "the text")
}

fn highest(stage: &Stage<'_>) -> Result<u64, Error> {
    Ok(stage.connect()?.mark(&stage.resource)?.highest.map_or(0, |highest| highest.get()))
}
