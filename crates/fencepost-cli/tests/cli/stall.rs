//! How late this machine runs what is due. No process can keep a deadline more exactly than that, so whoever asserts
//! one allows for what was measured meanwhile: nothing, unless the machine stood still.

use std::sync::Mutex;
use std::time::Duration;

use crate::sys;

/// Less than this is what the guardian's lead is there for.
const NOTICEABLE: u64 = 50_000_000;
const EVERY: Duration = Duration::from_millis(5);

/// When a stall ended, and how long it was.
static STALLS: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Starts to measure, on a thread that sleeps for most of the time.
pub(crate) fn measure() {
    std::thread::spawn(|| {
        loop {
            let due = sys::now() + EVERY.as_nanos() as u64;
            std::thread::sleep(EVERY);
            let now = sys::now();
            if now - due > NOTICEABLE {
                STALLS.lock().expect("nobody panics with it").push((now, now - due));
            }
        }
    });
}

/// For how long in all the machine stood still since a moment.
pub(crate) fn since(moment: u64) -> u64 {
    let stalls = STALLS.lock().expect("nobody panics with it");
    stalls.iter().filter(|(ended, _)| *ended > moment).map(|(_, length)| length).sum()
}
