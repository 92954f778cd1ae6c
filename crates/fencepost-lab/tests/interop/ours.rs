//! Our player, over the library.

use std::{process::ExitCode, thread, time::Duration};

use fencepost::{ErrorKind, Guard, Locker, Moment, SystemHost, blocking::wait, driver::Host};
use fencepost_lab::history::Outcome;

use super::{
    diary::{Diary, pause},
    players::{Client, Task},
};

pub(crate) fn play(task: &Task) -> ExitCode {
    let mut diary = Diary::new(task, Client::Fencepost.name());
    let locker = wait(Locker::connect(&task.url)).expect("a server");
    let ttl = Duration::from_millis(task.ttl_ms);
    loop {
        diary.asks();
        let guard = match wait(locker.lock(&task.key).ttl(ttl).acquire()) {
            Ok(guard) => guard,
            // A stall ate the whole lease of a grant before it arrived.
            Err(error) if error.kind() == ErrorKind::Timeout => {
                diary.refused();
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        diary.granted(deadline(&guard), Some(guard.token().get()));
        if SystemHost.random().is_multiple_of(25) {
            hold(&mut diary, &guard, ttl + ttl / 3);
        } else if guard.is_held() {
            diary.update(deadline(&guard));
        }
        diary.releases();
        diary.released(match wait(guard.release()).map_err(|error| error.kind()) {
            Ok(()) => Outcome::Ok,
            Err(ErrorKind::Lost) => Outcome::Lost,
            Err(ErrorKind::Unknown) => Outcome::Unknown,
            Err(kind) => panic!("{kind:?} at a release"),
        });
        // Those who wait in line are told when a lock is free, and the peers look now and then: without a pause they
        // would hardly ever find it free.
        pause(150);
    }
}

fn deadline(guard: &Guard) -> u64 {
    guard.deadline().map_or(0, Moment::as_nanos)
}

/// Holds the lock for longer than its lease: it has to be renewed meanwhile.
fn hold(diary: &mut Diary, guard: &Guard, time: Duration) {
    let (end, mut until) = (guard.now() + time, deadline(guard));
    while guard.now() < end && guard.is_held() {
        if deadline(guard) != until {
            until = deadline(guard);
            diary.renewed(until);
        }
        diary.update(until);
        thread::sleep(Duration::from_millis(20));
    }
}
