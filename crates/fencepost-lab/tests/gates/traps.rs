//! The traps of the well-known articles on the side of the resource: each in its textbook form, where it fails, and in ours.

use std::sync::{Mutex, PoisonError};

use fencepost::{
    ErrorKind, Token,
    blocking::Locker,
    gate::{MemoryGate, Pass},
};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("traps::less_or_equal_refuses_the_holders_second_write", second_write),
        Trial::test("traps::a_token_without_the_lock_passes_the_gate", token_without_the_lock),
        Trial::test("traps::a_backend_that_lost_its_tokens_is_healed_by_the_floor", lost_tokens),
    ]
}

/// The resource of the article: it refuses what is not higher.
#[derive(Default)]
struct Textbook(Mutex<u64>);

impl Textbook {
    fn write(&self, token: u64) -> bool {
        let mut last_seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if token <= *last_seen {
            return false;
        }
        *last_seen = token;
        true
    }
}

fn token(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

fn ensure(kept: bool, broken: &str) -> Result<(), Failed> {
    if kept { Ok(()) } else { Err(broken.into()) }
}

fn second_write() -> Result<(), Failed> {
    let textbook = Textbook::default();
    ensure(textbook.write(42), "the textbook's resource refused the first write")?;
    ensure(!textbook.write(42), "the textbook's resource took the second write, so this shows nothing")?;

    let gate = MemoryGate::new(Vec::new());
    let file = gate.open(token(42))?;
    file.update(|lines| lines.push("first"))?;
    file.update(|lines| lines.push("second"))?;
    gate.open(token(42))?.update(|lines| lines.push("from another connection"))?;
    ensure(file.read()?.len() == 3, "a write of the holder is missing")
}

/// The article's acquire: it counts, tries to set the lock, and returns the count whatever came of that.
fn textbook_acquire(counter: &mut u64, lock: &mut Option<u64>) -> u64 {
    *counter += 1;
    lock.get_or_insert(*counter);
    *counter
}

fn token_without_the_lock() -> Result<(), Failed> {
    let (mut counter, mut lock) = (0, None);
    let holder = textbook_acquire(&mut counter, &mut lock);
    let intruder = textbook_acquire(&mut counter, &mut lock);
    ensure(lock == Some(holder), "the first one holds the lock")?;
    let resource = Textbook::default();
    ensure(resource.write(intruder), "who has no lock was refused, so this shows nothing")?;
    ensure(!resource.write(holder), "the holder was let in, so this shows nothing")?;

    // With us nobody has a token without the lock: who does not get it gets an error.
    let home = tempfile::tempdir()?;
    let locker = Locker::connect(&format!("local:{}", home.path().display()))?;
    let guard = locker.acquire(&locker.lock("orders/4821"))?;
    let refused = locker.try_acquire(&locker.lock("orders/4821")).err().map(|error| error.kind());
    ensure(refused == Some(ErrorKind::Timeout), "somebody got a guard beside the holder")?;
    MemoryGate::new(()).open(&guard)?;
    guard.release()?;
    Ok(())
}

fn lost_tokens() -> Result<(), Failed> {
    // As after a restore: the gate has seen tokens that the backend will not reach for a while.
    let home = tempfile::tempdir()?;
    let locker = Locker::connect(&format!("local:{}", home.path().display()))?;
    let lock = locker.lock("orders/4821");
    let gate = MemoryGate::new(0);
    let guard = locker.acquire(&lock)?;
    let highest = token(guard.token().get() + 1_000_000);
    gate.open(Pass::from(highest).with_lineage(guard.lineage().clone()))?;

    let error = gate.open(&guard).err().ok_or("the lower token was let in")?;
    let stale = error.stale().ok_or("the error has no numbers")?;
    ensure((stale.presented, stale.highest) == (guard.token(), highest), "the numbers are wrong")?;
    for way_out in ["`--above`", "`Lock::floor`", "`fencepost gate rebind`"] {
        ensure(error.to_string().contains(way_out), "a way out is missing in the error")?;
    }
    guard.release()?;
    let guard = locker.acquire(&lock.clone().floor(stale.highest))?;
    gate.open(&guard)?.write(1)?;
    guard.release()?;
    // And it is healed for good: the next one needs no floor.
    let guard = locker.acquire(&lock)?;
    gate.open(&guard)?.write(2)?;
    guard.release()?;
    Ok(())
}
