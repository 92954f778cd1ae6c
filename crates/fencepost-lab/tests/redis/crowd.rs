//! Many who wait: nobody is forgotten, everybody in turn, and the server is not asked more for it.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use fencepost::driver::Host;
use fencepost::{ErrorKind, Locker, SystemHost, blocking};
use fencepost_lab::server::redis::Redis;
use tokio::sync::oneshot;

use crate::Tests;
use crate::scene::{
    LONG, give, in_line, locker, ms, nothing_is_left, now, pass, scripts, server, take, until,
};

pub(crate) const TESTS: Tests = &[
    ("two_hundred_come_in_turn_while_others_give_up", in_turn),
    ("a_thousand_of_one_locker_cost_as_one", heartbeats),
];

const TTL: Duration = ms(10_000);

/// What one who waited tells: its number in line, and the grant's wait after the release before it.
type Log = Arc<Mutex<Vec<(usize, u64)>>>;

/// Stands in line as a task, holds for a moment, and notes its turn; ends when it gives up.
fn stand(
    locker: &Locker,
    number: usize,
    wait: Duration,
    log: &Log,
    released: &Arc<Mutex<u64>>,
) -> oneshot::Receiver<bool> {
    let lock = locker.lock("x").ttl(TTL).wait(wait).label(format!("number {number}"));
    let (log, released) = (log.clone(), released.clone());
    let (tell, told) = oneshot::channel();
    SystemHost.spawn(Box::pin(async move {
        let outcome = lock.acquire().await;
        let is_granted = outcome.is_ok();
        match outcome {
            Ok(guard) => {
                let since = now().as_nanos().saturating_sub(*released.lock().expect("no panic"));
                log.lock().expect("no panic").push((number, since));
                // While it holds, some of those behind it give up.
                SystemHost.sleep_until(now() + ms(5)).await;
                *released.lock().expect("no panic") = now().as_nanos();
                guard.release().await.expect("it was held");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
        }
        let _ = tell.send(is_granted);
    }));
    told
}

fn in_turn() {
    const COUNT: usize = 200;
    let server = server();
    let lockers: Vec<Locker> = (0..4).map(|_| locker(&server.url())).collect();
    let held = take(&lockers[0], "x", TTL);
    let (log, released) = (Log::default(), Arc::new(Mutex::new(0)));
    let mut random = 88_172_645_463_325_252_u64;
    let mut waiting = Vec::new();
    for number in 0..COUNT {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Every third gives up after some time, before the lock is free or while it is passed on.
        let gives_up = random.is_multiple_of(3);
        let wait = if gives_up { ms(500 + random % 4000) } else { LONG * 3 };
        waiting.push((gives_up, stand(&lockers[number % 4], number, wait, &log, &released)));
        // One after the other, so that their arrival has an order.
        arrived(&server, number);
    }
    pass(ms(1500));
    *released.lock().expect("no panic") = now().as_nanos();
    give(held);
    for (number, (gives_up, told)) in waiting.into_iter().enumerate() {
        let granted = blocking::wait(told).expect("no panic");
        assert!(granted || gives_up, "number {number} was forgotten");
    }
    let log = log.lock().expect("no panic").clone();
    let order: Vec<usize> = log.iter().map(|(number, _)| *number).collect();
    assert!(order.is_sorted(), "not in the order of arrival: {order:?}");
    let mut waits: Vec<u64> = log.iter().map(|(_, since)| since / 1000).collect();
    waits.sort_unstable();
    let at = |percent: usize| waits[(waits.len() - 1) * percent / 100];
    println!(
        "{} of {COUNT} had their turn; next after p50={}us p99={}us max={}us",
        log.len(),
        at(50),
        at(99),
        at(100)
    );
    assert!(log.len() < COUNT - 10, "too few gave up to show anything");
    assert!(at(100) < 2_000_000, "{waits:?}");
    nothing_is_left(&server, ms(0));
}

/// Returns once the server has this one in line.
fn arrived(server: &Redis, number: usize) {
    let label = format!("\"number {number}\"");
    until("its arrival", LONG, || {
        let records: Vec<String> = server.command(&["HVALS", "{lock:x}:who"]).expect("it answers");
        records.iter().any(|record| record.contains(&label)).then_some(())
    });
}

fn heartbeats() {
    const COUNT: usize = 1000;
    let server = server();
    let (a, b) = (locker(&server.url()), locker(&server.url()));
    let held = take(&a, "x", TTL * 6);
    let (log, released) = (Log::default(), Arc::default());
    let waiting: Vec<_> = (0..COUNT).map(|number| stand(&b, number, LONG * 6, &log, &released)).collect();
    in_line(&server, "x", COUNT);
    // Until those who came while others were answered have heard it.
    pass(ms(1000));
    let before = scripts(&server);
    pass(ms(10_000));
    let beats = scripts(&server) - before;
    println!("{COUNT} who wait behind one locker: {beats} scripts in 10 s");
    assert!(beats < 30, "{beats}");
    let started = now();
    give(held);
    assert!(waiting.into_iter().all(|told| blocking::wait(told).expect("no panic")));
    println!("{COUNT} turns in {:?}", now().since(started));
    nothing_is_left(&server, ms(0));
}
