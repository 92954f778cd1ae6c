//! The library's shortest way: a free lock, taken and given back by one thread.

use std::fs::File;

use fencepost::blocking::Locker;

use crate::{outcome::Outcome, pairs::in_turn, places::Place, table::Table};

/// How often each measurement repeats what it measures: some milliseconds' worth.
const REPEATED: u32 = 100;

pub(crate) fn measure(table: &mut Table, place: &Place, goal: Option<f64>, effort: usize) -> Outcome<()> {
    let file = place.file("plain");
    File::create(&file)?;
    let floor = || {
        for _ in 0..REPEATED {
            File::open(&file)?.lock()?;
        }
        Ok(())
    };
    let locker = Locker::connect(&place.url())?;
    let lock = locker.lock("library");
    let pairs = in_turn(10 * effort, floor, || {
        for _ in 0..REPEATED {
            locker.acquire(&lock)?.release()?;
        }
        Ok(())
    })?;
    let what = format!("acquire and release, {}", place.kind);
    table.pairs(&what, "open, flock, close", &pairs.each_of(REPEATED), goal);
    Ok(())
}
