//! Clusters that are put back to a backup, as an operator does it.

use fencepost::{ErrorKind, Guard, Locker, blocking};
use fencepost_lab::proxy::Proxy;
use fencepost_lab::server::etcd::Etcd;

use crate::Tests;
use crate::scene::{LONG, give, locker, ms, now, pass, proxy, server, take, until};

pub(crate) const TESTS: Tests = &[
    ("a_past_that_catches_up_is_found_out_by_its_keys", caught_up),
    ("a_past_that_was_seen_is_never_forgotten", never_forgotten),
    ("a_restore_that_is_told_so_is_another_lineage", told),
];

/// A cluster with a backup, and a holder whose lock is younger than that, while its lease is older.
fn scene() -> (Etcd, fencepost_lab::server::etcd::Snapshot, Proxy, Locker, [Guard; 2]) {
    let server = server();
    let (proxy, url) = proxy(&server);
    let holder = locker(&url);
    let before = take(&holder, "before", LONG);
    let snapshot = server.snapshot().expect("a backup");
    let after = take(&holder, "after", LONG);
    // Until both are watched on a stream that has proved itself.
    pass(ms(2000));
    (server, snapshot, proxy, holder, [before, after])
}

/// Writes until the cluster is beyond this revision.
fn catch_up(server: &Etcd, revision: i64) {
    while server.revision().expect("it answers") <= revision + 10 {
        server.command(&["put", "catch-up", "x"]).expect("it answers");
    }
}

/// Neither the id nor the revision tells; the lease is there too, and the stream begins at a revision that has passed.
fn caught_up() {
    let (mut server, snapshot, proxy, holder, [before, after]) = scene();
    let known = server.revision().expect("it answers");
    proxy.cut();
    server.restore(&snapshot, true).expect("it starts again");
    catch_up(&server, known);
    let other = locker(&server.url());
    let next = take(&other, "after", LONG);
    assert!(before.is_held() && after.is_held());
    proxy.heal().expect("the port is ours");
    let healed = now();
    until("the loss", LONG, || (!after.is_held()).then_some(()));
    assert!(now().since(healed) < LONG / 2, "told after {:?}", now().since(healed));
    // This one's key is there as it was, and on a lease that goes on.
    assert!(before.is_held() && next.is_held());
    give(before);
    give(next);
    drop(holder);
}

/// Seen once, it ends the lease, and the locker refuses for good, though the cluster is soon beyond what was known.
fn never_forgotten() {
    let (mut server, snapshot, _proxy, holder, [before, after]) = scene();
    let known = server.revision().expect("it answers");
    catch_up(&server, known);
    give(take(&holder, "another", LONG));
    server.restore(&snapshot, true).expect("it starts again");
    let refused = || {
        let error = blocking::wait(holder.lock("y").ttl(LONG).patience(ms(3000)).acquire())
            .expect_err("its tokens would repeat");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    };
    refused();
    catch_up(&server, known + 100);
    refused();
    for guard in [before, after] {
        until("the loss", LONG / 2, || (!guard.is_held()).then_some(()));
    }
}

/// What docs/etcd.md asks of operators: either of both ways makes tokens that repeat incomparable.
fn told() {
    for is_same in [true, false] {
        let mut server = server();
        let before = locker(&server.url());
        let snapshot = server.snapshot().expect("a backup");
        let guard = take(&before, "x", LONG);
        server.restore(&snapshot, is_same).expect("it starts again");
        if is_same {
            server.delete(".fencepost-lineage").expect("it answers");
        }
        let next = take(&locker(&server.url()), "x", LONG);
        assert_ne!(next.lineage(), guard.lineage());
        give(next);
        drop((guard, before));
    }
}
