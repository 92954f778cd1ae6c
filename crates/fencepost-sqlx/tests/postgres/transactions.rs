//! The caller's own transaction: what it holds, and what it leaves behind.

use fencepost::ErrorKind;
use fencepost_sqlx::{
    postgres::{admit, begin, explain, fence, mark},
    sqlx::Connection,
};

use crate::{
    Test,
    world::{World, done, fails, pause, refused, send, stale, token, value},
};

pub(crate) const TESTS: &[Test] = &[
    ("transactions::a_refusal_leaves_a_clean_session", clean_session),
    ("transactions::a_begin_that_nobody_waits_for_leaves_nothing", cancelled),
    ("transactions::a_savepoint_takes_the_admission_with_it", savepoint),
    ("transactions::a_rollback_takes_the_mark_with_it", rolled_back),
    ("transactions::a_transaction_that_was_begun_leaves_its_mark", begun),
    ("transactions::a_cursor_that_fails_keeps_the_lock", cursor),
    ("transactions::an_admission_ends_with_its_transaction", no_leak),
    ("transactions::a_deadlock_may_be_repeated", deadlock),
    ("transactions::a_serialization_failure_may_be_repeated", serialization),
    ("transactions::a_time_limit_may_be_repeated", time_limit),
    ("transactions::a_read_only_transaction_cannot_raise", read_only),
    ("transactions::a_fixed_snapshot_is_not_for_a_new_token", fixed_snapshot),
    ("transactions::a_fixed_snapshot_from_before_the_fence_may_be_repeated", snapshot_before_fence),
    ("transactions::a_fixed_snapshot_from_before_the_takeover_is_no_excuse", old_snapshot),
];

fn clean_session(world: World) {
    world.run(async {
        let pool = world.pool(1).await;
        fence(&mut pool.acquire().await.unwrap(), "a", token(42)).await.unwrap();
        for _ in 0..3 {
            stale(begin(&pool, "a", token(41)).await, 41, 42);
            let connection = &mut *pool.acquire().await.unwrap();
            assert_eq!(value(connection, "1").await.as_deref(), Some("1"));
        }
        let mut tx = begin(&pool, "a", token(42)).await.unwrap();
        // A transaction like any other: savepoints are savepoints.
        let nested = tx.begin().await.unwrap();
        nested.rollback().await.unwrap();
        tx.commit().await.unwrap();
        let tx = begin(&pool, "a", token(42)).await.unwrap();
        drop(tx);
        assert_eq!(value(&mut pool.acquire().await.unwrap(), "pg_current_xact_id_if_assigned()").await, None);
    });
}

fn cancelled(world: World) {
    // A name of its own: of others this process remembers tokens, and asks before it records one.
    let resource = "given-up";
    world.run(async {
        let pool = world.pool(1).await;
        let mut holder = world.connect().await;
        let mut stalled = holder.begin().await.unwrap();
        admit(&mut stalled, resource, token(41)).await.unwrap();
        tokio::select! {
            biased;
            _ = begin(&pool, resource, token(42)) => panic!("the holder's transaction still runs"),
            () = world.waiting(1) => {}
        }
        stalled.commit().await.unwrap();
        // The only connection of the pool comes back without a transaction, and the gate is free.
        let connection = &mut *pool.acquire().await.unwrap();
        assert_eq!(value(connection, "pg_current_xact_id_if_assigned()").await, None);
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
        world.until(open, "0").await;
        assert_eq!(mark(connection, resource).await.unwrap().highest, Some(token(42)));
        done(&mut holder, "SET lock_timeout = '1s'").await;
        fence(&mut holder, resource, token(43)).await.unwrap();
    });
}

fn savepoint(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); SELECT fencepost_protect('stock', 'a'); SELECT fencepost_fence('a', 41)");
        let (mut one, mut other) = (world.connect().await, world.connect().await);
        let mut tx = one.begin().await.unwrap();
        let mut inner = tx.begin().await.unwrap();
        admit(&mut inner, "a", token(41)).await.unwrap();
        done(&mut inner, "INSERT INTO stock VALUES (1)").await;
        inner.rollback().await.unwrap();
        // Gone with it: the lock as well as the right to write.
        done(&mut other, "SET lock_timeout = '1s'").await;
        fence(&mut other, "a", token(42)).await.unwrap();
        refused(send(&mut tx, "INSERT INTO stock VALUES (1)").await, "FP003", &["resource=a"]);
        drop(tx);
        // What was admitted before the savepoint stays.
        let mut tx = one.begin().await.unwrap();
        admit(&mut tx, "a", token(42)).await.unwrap();
        let mut inner = tx.begin().await.unwrap();
        admit(&mut inner, "b", token(1)).await.unwrap();
        inner.rollback().await.unwrap();
        done(&mut tx, "INSERT INTO stock VALUES (2)").await;
        tx.commit().await.unwrap();
        assert_eq!(world.psql("TABLE stock"), "2");
    });
}

/// A lock that was taken while a cursor ran is the transaction's, and not the cursor's.
fn cursor(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); SELECT fencepost_protect('stock', 'a'); SELECT fencepost_fence('a', 41)");
        // What is called, and no function, can come into a cursor all the same.
        world.psql("CREATE FUNCTION fencepost_admit_by_call(text, int) RETURNS text LANGUAGE plpgsql AS 'BEGIN CALL fencepost_admit_recorded($1, $2); RETURN NULL; END'");
        let (mut one, mut other) = (world.connect().await, world.connect().await);
        done(&mut other, "SET lock_timeout = '100ms'").await;
        for call in ["admit('a', 41)", "fence('a', 41)", "admit_by_call('a', 41)", "admit('new', 41)", "fence('new', 42)"] {
            let resource = call.split('\'').nth(1).unwrap();
            let cursor = format!("DECLARE c CURSOR FOR SELECT CASE WHEN i = 1 THEN fencepost_{call}::text ELSE (1 / (i - 2))::text END FROM generate_series(1, 2) i");
            done(&mut one, &format!("BEGIN; {cursor}; FETCH 1 FROM c; SAVEPOINT s")).await;
            refused(send(&mut one, "FETCH 1 FROM c").await, "22012", &[]);
            done(&mut one, "ROLLBACK TO s").await;
            let successor = fence(&mut other, resource, token(50)).await;
            fails(successor, ErrorKind::Unavailable, &["code=55P03"]);
            done(&mut one, "ROLLBACK").await;
        }
    });
}

fn rolled_back(world: World) {
    world.run(async {
        let pool = world.pool(1).await;
        begin(&pool, "a", token(41)).await.unwrap().commit().await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        admit(&mut tx, "a", token(42)).await.unwrap();
        tx.rollback().await.unwrap();
        begin(&pool, "a", token(41)).await.unwrap().commit().await.unwrap();
    });
}

/// It has read, and writes in another transaction: nobody may have written between.
fn begun(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); INSERT INTO stock VALUES (100); SELECT fencepost_protect('stock', 'a')");
        let pool = world.pool(1).await;
        begin(&pool, "a", token(41)).await.unwrap().commit().await.unwrap();
        let mut tx = begin(&pool, "a", token(42)).await.unwrap();
        let read = value(&mut tx, "SELECT n FROM stock").await.unwrap();
        drop(tx);
        stale(begin(&pool, "a", token(41)).await, 41, 42);
        let mut tx = begin(&pool, "a", token(42)).await.unwrap();
        done(&mut tx, &format!("UPDATE stock SET n = {read} - 1")).await;
        tx.commit().await.unwrap();
        assert_eq!(world.psql("TABLE stock"), "99");
    });
}

fn no_leak(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); SELECT fencepost_protect('stock', 'a')");
        let connection = &mut world.connect().await;
        let write = "INSERT INTO stock VALUES (1)";
        done(connection, &format!("BEGIN; SELECT fencepost_admit('a', 41); {write}; COMMIT")).await;
        refused(send(connection, write).await, "FP003", &[]);
        // Alone it is a transaction, which is over.
        done(connection, "SELECT fencepost_admit('a', 41)").await;
        refused(send(connection, write).await, "FP003", &[]);
        // A setting of the session, copied from a transaction that was admitted, opens nothing.
        done(connection, "BEGIN; SELECT fencepost_admit('a', 41); SELECT set_config('copy.of', current_setting('fencepost.admitted'), false); COMMIT").await;
        done(connection, "SELECT set_config('fencepost.admitted', current_setting('copy.of'), false)").await;
        refused(send(connection, write).await, "FP003", &[]);
        done(connection, "SET fencepost.admitted = E'\\na\\n'").await;
        refused(send(connection, write).await, "FP003", &[]);
        // Nor is it in the way of a true one.
        done(connection, &format!("BEGIN; SELECT fencepost_admit('a', 41); {write}; COMMIT")).await;
    });
}

fn deadlock(world: World) {
    world.run(async {
        let (mut one, mut two) = (world.connect().await, world.connect().await);
        for resource in ["a", "b"] {
            fence(&mut one, resource, token(41)).await.unwrap();
        }
        let (mut first, mut second) = (one.begin().await.unwrap(), two.begin().await.unwrap());
        admit(&mut first, "a", token(42)).await.unwrap();
        admit(&mut second, "b", token(42)).await.unwrap();
        let (left, right) = tokio::join!(
            async {
                let result = admit(&mut first, "b", token(42)).await;
                first.rollback().await.unwrap();
                result
            },
            async {
                let result = admit(&mut second, "a", token(42)).await;
                second.rollback().await.unwrap();
                result
            },
        );
        let failed: Vec<_> = [left, right].into_iter().filter_map(Result::err).collect();
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].kind(), ErrorKind::Unavailable, "{}", failed[0]);
        assert!(failed[0].to_string().contains("repeat the whole of it, code=40P01"), "{}", failed[0]);
    });
}

fn serialization(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); INSERT INTO stock VALUES (100)");
        let (mut one, mut two) = (world.connect().await, world.connect().await);
        fence(&mut one, "a", token(41)).await.unwrap();
        let mut tx = one.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        admit(&mut tx, "a", token(41)).await.unwrap();
        done(&mut two, "UPDATE stock SET n = n - 1").await;
        let late = send(&mut tx, "UPDATE stock SET n = n - 1").await.map_err(explain);
        fails(late, ErrorKind::Unavailable, &["repeat", "code=40001"]);
    });
}

fn time_limit(world: World) {
    world.run(async {
        let (mut holder, mut successor) = (world.connect().await, world.connect().await);
        let mut stalled = holder.begin().await.unwrap();
        admit(&mut stalled, "a", token(41)).await.unwrap();
        for limit in ["SET lock_timeout = '100ms'", "RESET lock_timeout; SET statement_timeout = '100ms'"] {
            done(&mut successor, limit).await;
            fails(
                fence(&mut successor, "a", token(42)).await,
                ErrorKind::Unavailable,
                &["the time limit was over"],
            );
        }
        stalled.commit().await.unwrap();
        fence(&mut successor, "a", token(42)).await.unwrap();
    });
}

fn read_only(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        fence(connection, "a", token(41)).await.unwrap();
        let mut tx = connection.begin_with("BEGIN READ ONLY").await.unwrap();
        // It may read under a token that is known, and keeps a successor waiting.
        fence(&mut tx, "a", token(41)).await.unwrap();
        fails(
            fence(&mut tx, "a", token(42)).await,
            ErrorKind::Unsupported,
            &["on the primary that may write"],
        );
    });
}

/// Its snapshot is taken before the fence waits, so it would not see the last write of the former holder.
fn fixed_snapshot(world: World) {
    world.run(async {
        let pool = world.pool(2).await;
        fence(&mut pool.acquire().await.unwrap(), "a", token(41)).await.unwrap();
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            for resource in ["a", "new"] {
                let statement = format!("BEGIN ISOLATION LEVEL {level}");
                let mut tx = pool.begin_with(fencepost_sqlx::sqlx::AssertSqlSafe(statement)).await.unwrap();
                let raised = admit(&mut tx, resource, token(42)).await;
                fails(raised, ErrorKind::Unsupported, &[level, "READ COMMITTED", "fencepost_fence"]);
            }
            let statement = format!("BEGIN ISOLATION LEVEL {level}");
            let mut tx = pool.begin_with(fencepost_sqlx::sqlx::AssertSqlSafe(statement)).await.unwrap();
            admit(&mut tx, "a", token(41)).await.unwrap();
            stale(admit(&mut tx, "a", token(40)).await, 40, 41);
        }
        // Where that is the default, a transaction can still say otherwise.
        let connection = &mut *pool.acquire().await.unwrap();
        done(connection, "SET default_transaction_isolation = 'repeatable read'").await;
        fails(fence(connection, "a", token(42)).await, ErrorKind::Unsupported, &[]);
        let mut tx = connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await.unwrap();
        fence(&mut tx, "a", token(42)).await.unwrap();
    });
}

fn old_snapshot(world: World) {
    world.run(async {
        let (mut one, mut two) = (world.connect().await, world.connect().await);
        fence(&mut one, "a", token(41)).await.unwrap();
        for (level, successor) in [("REPEATABLE READ", 42), ("SERIALIZABLE", 43)] {
            let statement = format!("BEGIN ISOLATION LEVEL {level}");
            let mut tx = one.begin_with(fencepost_sqlx::sqlx::AssertSqlSafe(statement)).await.unwrap();
            // In its snapshot it is the holder.
            let presented = successor - 1;
            assert_eq!(value(&mut tx, "fencepost_highest('a')").await, Some(presented.to_string()));
            fence(&mut two, "a", token(successor)).await.unwrap();
            let late = admit(&mut tx, "a", token(presented)).await;
            fails(late, ErrorKind::Unavailable, &["repeat", "code=40001"]);
            drop(tx);
            pause(1).await;
            stale(admit(&mut one, "a", token(presented)).await, presented, successor);
        }
    });
}

/// Its own fence came after its snapshot: nothing is wrong but the time.
fn snapshot_before_fence(world: World) {
    world.run(async {
        let (mut one, mut two) = (world.connect().await, world.connect().await);
        for (level, number) in [("REPEATABLE READ", 41), ("SERIALIZABLE", 42)] {
            let statement = format!("BEGIN ISOLATION LEVEL {level}");
            let mut tx = one.begin_with(fencepost_sqlx::sqlx::AssertSqlSafe(statement)).await.unwrap();
            value(&mut tx, "1").await;
            fence(&mut two, "a", token(number)).await.unwrap();
            let late = admit(&mut tx, "a", token(number)).await;
            fails(late, ErrorKind::Unavailable, &["repeat", "code=40001"]);
        }
    });
}
