//! One request lost, one reply lost, one request sent twice or late, at each step of two clients' way through one lock.
//!
//! For every backend whose requests can be lost one by one; the scene around it says which.

use std::time::Duration;

use fencepost::blocking;
use fencepost_lab::faulty::{Fault, Faults};
use fencepost_lab::history::Recorder;

use crate::Tests;
use crate::player::{Player, in_order};
use crate::scene::{
    LONG, STEP as TTL, Server, faulty, in_line, locker, ms, nothing_stays, now, pass, server, take,
};

pub(crate) const TESTS: Tests = &[
    ("a_lost_request", || at_each_step(|_| Fault::LoseRequest)),
    ("a_lost_reply", || at_each_step(|_| Fault::LoseReply)),
    ("a_repeated_request", || at_each_step(|_| Fault::Repeat(ms(30)))),
    ("a_late_request", || at_each_step(|_| Fault::HoldBack(ms(120)))),
    ("a_request_later_than_its_lease", || at_each_step(|ttl| Fault::HoldBack(ttl * 2))),
];

/// Where a request can be carried out once more by whoever carries it.
#[allow(dead_code, reason = "not every transport can repeat what is long over")]
pub(crate) const REPEATED: Tests =
    &[("a_request_repeated_after_all_is_over", || at_each_step(|ttl| Fault::Repeat(ttl * 3)))];

/// Where the fault hits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    FirstEnter,
    EnterInLine,
    EnterAfterWake,
    Renew,
    Leave,
    LeaveOfAWaiter,
}

const STEPS: [Step; 6] = [
    Step::FirstEnter,
    Step::EnterInLine,
    Step::EnterAfterWake,
    Step::Renew,
    Step::Leave,
    Step::LeaveOfAWaiter,
];

fn at_each_step(fault: fn(Duration) -> Fault) {
    let server = server();
    // The scripts are known from here on: a fault is to hit a request that is carried out.
    blocking::wait(take(&locker(&server.url()), "prime", TTL).release()).expect("held");
    for step in STEPS {
        through(&server, step, fault(TTL));
    }
}

fn through(server: &Server, step: Step, fault: Fault) {
    let lock = format!("{step:?}");
    let ((a, faults_of_a), (b, faults_of_b)) = (faulty(&server.url()), faulty(&server.url()));
    let (recorder, events) = Recorder::memory();
    let (a, b) = (Player::new("a", a, &recorder), Player::new("b", b, &recorder));
    let arm = |at: Step, faults: &Faults, verb: &str| {
        if step == at {
            faults.arm(verb, fault);
        }
    };
    arm(Step::FirstEnter, &faults_of_a, "enter");
    let held = a.acquire(&lock, TTL, LONG).expect("the first lock");
    std::thread::scope(|scope| {
        arm(Step::EnterInLine, &faults_of_b, "enter");
        let gives_up = step == Step::LeaveOfAWaiter;
        let wait = if gives_up { ms(300) } else { LONG };
        let (b, name) = (&b, &lock);
        let next = scope.spawn(move || b.acquire(name, TTL, wait));
        in_line(server, &lock, 1);
        arm(Step::LeaveOfAWaiter, &faults_of_b, "leave");
        arm(Step::Renew, &faults_of_a, "renew");
        // A renewal is due after a third of the lease.
        pass(TTL * 2 / 3);
        arm(Step::EnterAfterWake, &faults_of_b, "enter");
        arm(Step::Leave, &faults_of_a, "leave");
        let (token, released) = (held.token(), now());
        let gave = a.release(held);
        assert!(gave.is_ok() || step == Step::Leave, "{step:?} {fault:?}: {gave:?}");
        match next.join().expect("no panic") {
            Ok(held) => {
                let waited = now().since(released);
                assert!(held.token() > token && !gives_up, "{step:?} {fault:?}");
                assert!(waited < TTL * 2 + ms(700), "{step:?} {fault:?}: it took {waited:?}");
                b.release(held).expect("it is held");
            }
            Err(error) => assert!(gives_up, "{step:?} {fault:?}: {error}"),
        }
    });
    // Whatever is still under way makes no ghost that outlives a lease.
    let over = now();
    pass(TTL / 2);
    let third = Player::new("c", locker(&server.url()), &recorder);
    let held = third.acquire(&lock, TTL, LONG).expect("the lock is free");
    let waited = now().since(over);
    assert!(waited < TTL * 2, "{step:?} {fault:?}: free after {waited:?}");
    // A request that comes after everything must not disturb the one who holds the lock by then.
    pass(TTL * 3);
    third.release(held).expect("it was held all the while");
    in_order(&events);
    nothing_stays(server, TTL);
}
