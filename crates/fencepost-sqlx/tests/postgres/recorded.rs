//! What a process remembers of a gate may be wrong: the database alone decides.

use fencepost::ErrorKind;
use fencepost_sqlx::{
    postgres::{begin, explain, mark},
    sqlx::PgPool,
};

use crate::{
    Test,
    world::{World, done, fails, of_lineage, refused, send, stale, token, value},
};

pub(crate) const TESTS: &[Test] = &[
    ("recorded::a_mark_that_was_lost_is_recorded_again_before_it_is_relied_on", lost),
    ("recorded::another_database_is_another_gate", another_database),
    ("recorded::a_gate_that_was_rebound_is_believed", rebound),
    ("recorded::a_lineage_is_recorded_with_a_known_number", lineage),
    ("recorded::what_asks_for_a_recorded_token_raises_nothing", raises_nothing),
    ("recorded::a_fixed_snapshot_by_default_is_no_excuse", fixed_snapshot),
];

/// Its transaction is rolled back, and the mark stands: until then nobody older comes in.
async fn begins_and_rolls_back(pool: &PgPool, number: u64) {
    let mut tx = begin(pool, "a", token(number)).await.unwrap();
    assert_eq!(value(&mut tx, "fencepost_highest('a')").await, Some(number.to_string()));
    tx.rollback().await.unwrap();
    assert_eq!(mark(&mut pool.acquire().await.unwrap(), "a").await.unwrap().highest, Some(token(number)));
    stale(begin(pool, "a", token(number - 1)).await, number - 1, number);
}

fn lost(world: World) {
    world.run(async {
        let pool = world.pool(1).await;
        begins_and_rolls_back(&pool, 42).await;
        for restored in ["TRUNCATE fencepost.guard", "UPDATE fencepost.guard SET highest = 40"] {
            world.psql(restored);
            begins_and_rolls_back(&pool, 42).await;
        }
    });
}

fn another_database(world: World) {
    let other = World::new(world.server.clone());
    world.run(async { begins_and_rolls_back(&world.pool(1).await, 42).await });
    other.run(async { begins_and_rolls_back(&other.pool(1).await, 42).await });
}

fn rebound(world: World) {
    world.run(async {
        let pool = world.pool(1).await;
        for _ in 0..2 {
            begin(&pool, "a", of_lineage(42, "one")).await.unwrap().commit().await.unwrap();
        }
        world.psql("SELECT fencepost_rebind('a', 'two', 7)");
        fails(begin(&pool, "a", of_lineage(42, "one")).await, ErrorKind::OtherLineage, &["one", "two"]);
        world.psql("SELECT fencepost_rebind('a', 'one', 43)");
        stale(begin(&pool, "a", of_lineage(42, "one")).await, 42, 43);
        world.psql("SELECT fencepost_rebind('a', 'one', 41)");
        begin(&pool, "a", of_lineage(42, "one")).await.unwrap().rollback().await.unwrap();
        assert_eq!(world.psql("TABLE fencepost.guard"), "a|42|one");
    });
}

/// A rollback takes it back as little as the number.
fn lineage(world: World) {
    world.run(async {
        let pool = world.pool(1).await;
        for _ in 0..2 {
            begin(&pool, "a", token(42)).await.unwrap().commit().await.unwrap();
        }
        begin(&pool, "a", of_lineage(42, "one")).await.unwrap().rollback().await.unwrap();
        assert_eq!(world.psql("TABLE fencepost.guard"), "a|42|one");
        fails(begin(&pool, "a", of_lineage(43, "two")).await, ErrorKind::OtherLineage, &[]);
        begin(&pool, "a", token(42)).await.unwrap().commit().await.unwrap();
    });
}

fn raises_nothing(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); SELECT fencepost_protect('stock', 'a')");
        let connection = &mut world.connect().await;
        for highest in ["", "41"] {
            if !highest.is_empty() {
                world.psql(&format!("SELECT fencepost_fence('a', {highest})"));
            }
            let asked = send(connection, "CALL fencepost_admit_recorded('a', 42)").await;
            let error =
                refused(asked, "FP004", &["not recorded", "fencepost_fence", "presented=42 resource=a"]);
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert_eq!(world.psql("SELECT highest FROM fencepost.guard"), highest);
            // Nor is anybody admitted.
            let write = "INSERT INTO stock VALUES (1)";
            refused(send(connection, write).await, "FP003", &[]);
        }
        done(connection, "SELECT fencepost_fence('a', 42)").await;
        let admitted = "BEGIN; CALL fencepost_admit_recorded('a', 42); INSERT INTO stock VALUES (1); COMMIT";
        done(connection, admitted).await;
    });
}

fn fixed_snapshot(world: World) {
    world.run(async {
        world.psql("SELECT fencepost_fence('a', 41)");
        let default = "SET default_transaction_isolation = 'repeatable read'";
        world.psql(&format!("ALTER DATABASE {} {default}", world.database));
        let pool = world.pool(2).await;
        for _ in 0..2 {
            begin(&pool, "a", token(41)).await.unwrap().commit().await.unwrap();
        }
        fails(begin(&pool, "a", token(42)).await, ErrorKind::Unsupported, &["fencepost_fence"]);
        let mut successor = world.connect().await;
        let admit = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT fencepost_admit('a', 42)";
        done(&mut successor, admit).await;
        // Its snapshot is from before the takeover for which it waits.
        let (late, ()) = tokio::join!(begin(&pool, "a", token(41)), async {
            world.waiting(1).await;
            done(&mut successor, "COMMIT").await;
        });
        fails(late, ErrorKind::Unavailable, &["repeat", "code=40001"]);
        stale(begin(&pool, "a", token(41)).await, 41, 42);
        let open = begin(&pool, "a", token(42)).await.unwrap();
        // It holds the gate until its end.
        let connection = &mut successor;
        done(connection, "SET lock_timeout = '100ms'").await;
        let raised = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT fencepost_fence('a', 43)";
        let raised = send(connection, raised).await.map_err(explain);
        fails(raised, ErrorKind::Unavailable, &["code=55P03"]);
        open.rollback().await.unwrap();
    });
}
