//! The connections are cut after every so many bytes, in either direction, while two clients pass one lock on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fencepost::{ErrorKind, Locker, blocking};
use fencepost_lab::history::Recorder;
use fencepost_lab::proxy::{Direction, Mode, Proxy};

use crate::Tests;
use crate::player::{Player, in_order};
use crate::scene::{
    LONG, STEP as TTL, Server, give, in_line, locker, ms, nothing_is_left, now, pass, proxy, server, take,
};

pub(crate) const TESTS: Tests = &[
    ("requests_are_cut_anywhere", || sweep(Direction::ToServer, 61)),
    ("replies_are_cut_anywhere", || sweep(Direction::ToClient, 11)),
    ("connecting_is_cut_anywhere", connecting),
];

/// Tries a cut every so many bytes; after every single one where `CUTS_EVERY` is 1.
fn sweep(direction: Direction, stride: usize) {
    let stride =
        std::env::var("CUTS_EVERY").map_or(stride, |every| every.parse().expect("a number of bytes"));
    let server = server();
    let (proxy, url) = proxy(&server);
    let (recorder, events) = Recorder::memory();
    let (a, b) = (Player::new("a", locker(&url), &recorder), Player::new("b", locker(&url), &recorder));
    let cuts =
        (0u64..).step_by(stride).take_while(|bytes| is_cut(&server, &proxy, direction, *bytes, &a, &b));
    let (count, grants) = (cuts.count(), in_order(&events));
    assert!(count > 10 && grants == 2 * (count + 1), "{count} cuts, {grants} grants");
    nothing_is_left(&server, TTL);
}

/// The way of both through one lock, each connection cut after so many bytes; false if that was more than all.
fn is_cut(server: &Server, proxy: &Proxy, direction: Direction, bytes: u64, a: &Player, b: &Player) -> bool {
    let lock = format!("cut-{bytes}");
    // Both are connected when the count begins.
    a.look(&lock);
    b.look(&lock);
    let (before, is_over) = (proxy.connections(), AtomicBool::new(false));
    proxy.set(direction, Mode::CloseAfter(bytes));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && proxy.connections() == before {
                pass(ms(1));
            }
            proxy.set(direction, Mode::Pass);
        });
        let held = a.acquire(&lock, TTL, LONG).expect("the first gets on");
        let next = scope.spawn(|| b.acquire(&lock, TTL, LONG));
        in_line(server, &lock, 1);
        let (token, released) = (held.token(), now());
        let gave = a.release(held);
        assert!(
            gave.is_ok() || gave.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unknown),
            "{gave:?}"
        );
        let held = next.join().expect("no panic").expect("the second gets on");
        let waited = now().since(released);
        assert!(waited < TTL + ms(500), "cut after {bytes} bytes: handed over after {waited:?}");
        assert!(held.token() > token, "cut after {bytes} bytes");
        // Not confirmed is as good as cut.
        let _ = b.release(held);
        is_over.store(true, Ordering::Relaxed);
    });
    proxy.connections() > before
}

fn connecting() {
    let server = server();
    let (proxy, url) = proxy(&server);
    let mut refused = 0;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for bytes in (0..).step_by(7) {
            proxy.set(direction, Mode::CloseAfter(bytes));
            let outcome = blocking::wait(Locker::connect(&url));
            proxy.set(direction, Mode::Pass);
            match outcome {
                // What it then does is cut soon or not at all.
                Ok(_) => break,
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
                            && !text.contains('\n'),
                        "cut after {bytes} bytes: {error:?}"
                    );
                }
            }
            refused += 1;
        }
        give(take(&locker(&url), "x", TTL));
    }
    assert!(refused > 20, "{refused}");
    nothing_is_left(&server, TTL);
}
