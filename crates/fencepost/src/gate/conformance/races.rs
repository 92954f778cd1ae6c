//! What happens at the same time.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, ScopedJoinHandle},
};

use super::{Client, Stage, Verdict, ensure, equal, pass};
use crate::{
    conformance::Stop,
    error::{Error, ErrorKind},
};

const ROUNDS: u64 = 40;

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, Stop> {
    thread.join().map_err(|_| Stop::Failed("a thread of the case panicked".into()))
}

/// Whether the write was accepted; an error other than stale ends the case.
fn is_accepted(result: Result<(), Error>) -> Result<bool, Stop> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Stale => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A holder's own requests do not refuse each other, the first ones on a new resource included.
pub(super) fn equal_tokens_are_accepted_side_by_side(stage: &Stage<'_>) -> Verdict {
    let clients: Vec<Box<dyn Client>> = (0..4).map(|_| stage.connect()).collect::<Result<_, _>>()?;
    let start = Barrier::new(clients.len());
    let results: Vec<Result<(), Stop>> = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .map(|client| {
                let start = &start;
                scope.spawn(move || -> Result<(), Stop> {
                    for round in 0..ROUNDS {
                        let resource = format!("{}/{round}", stage.resource);
                        start.wait();
                        let written = client.fence(&resource, &pass(42)).and_then(|()| {
                            client.write(&resource, &pass(42), "text")?;
                            client.read(&resource, &pass(42)).map(drop)
                        });
                        // Never left before the last round: the others wait at the barrier.
                        if let Err(error) = written {
                            for _ in round..ROUNDS - 1 {
                                start.wait();
                            }
                            return Err(error.into());
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().map(|thread| join(thread).and_then(|result| result)).collect()
    });
    results.into_iter().collect()
}

/// Many times over: the higher token is always accepted, and its text is what stays.
pub(super) fn of_two_writers_that_race_the_higher_wins(stage: &Stage<'_>) -> Verdict {
    let (low, high) = (stage.connect()?, stage.connect()?);
    for round in 0..ROUNDS {
        let resource = format!("{}/{round}", stage.resource);
        let start = Barrier::new(2);
        let race = |client: &dyn Client, number| {
            start.wait();
            client.write(&resource, &pass(number), &number.to_string())
        };
        let (low_result, high_result) = thread::scope(|scope| {
            let late = scope.spawn(|| race(&*low, 41));
            let high = race(&*high, 42);
            join(late).map(|late| (late, high))
        })?;
        is_accepted(low_result)?;
        high_result?;
        equal(&high.peek(&resource)?, &"42".into(), "the text after the race")?;
        equal(&high.mark(&resource)?.highest.map(|highest| highest.get()), &Some(42), "the highest")?;
    }
    Ok(())
}

/// An old holder writes without a pause while another takes over. After the successor has seen its own text the old one's never
/// appears.
pub(super) fn nothing_comes_between_the_check_and_the_write(stage: &Stage<'_>) -> Verdict {
    let (old, new) = (stage.connect()?, stage.connect()?);
    for round in 0..ROUNDS {
        let resource = format!("{}/{round}", stage.resource);
        old.write(&resource, &pass(41), "old")?;
        let (accepted, is_taken_over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| -> Verdict {
            let late = scope.spawn(|| -> Verdict {
                loop {
                    // Read before the write: a write that begins after the takeover must be refused.
                    let is_late = is_taken_over.load(Ordering::SeqCst);
                    let is_accepted = is_accepted(old.write(&resource, &pass(41), "old"))?;
                    if is_late || !is_accepted {
                        return ensure(!is_accepted, "a write was accepted after the takeover");
                    }
                    accepted.fetch_add(1, Ordering::SeqCst);
                }
            });
            // In the midst of its writes.
            while accepted.load(Ordering::SeqCst) <= round % 4 && !late.is_finished() {
                thread::yield_now();
            }
            let seen = new.fence(&resource, &pass(42)).and_then(|()| {
                new.write(&resource, &pass(42), "new")?;
                (0..8).map(|_| new.peek(&resource)).collect::<Result<Vec<_>, _>>()
            });
            is_taken_over.store(true, Ordering::SeqCst);
            let late = join(late)?;
            let seen = seen?;
            late?;
            ensure(seen.iter().all(|text| text == "new"), format!("after the takeover the text was {seen:?}"))
        })?;
        equal(&new.peek(&resource)?, &"new".into(), "the text in the end")?;
    }
    Ok(())
}
