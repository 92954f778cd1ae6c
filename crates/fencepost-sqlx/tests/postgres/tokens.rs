//! What the gate records, and whom it lets through.

use fencepost::{ErrorKind, Lineage, gate::Mark};
use fencepost_sqlx::postgres::{admit, begin, fence, mark, marks, rebind};

use crate::{
    Test,
    world::{World, done, fails, of_lineage, refused, send, stale, token, value},
};

pub(crate) const TESTS: &[Test] = &[
    ("tokens::equal_is_accepted_again_and_lower_is_stale", numbers),
    ("tokens::any_client_gets_a_sqlstate_of_its_own", any_client),
    ("tokens::an_unknown_resource_has_no_highest", unknown),
    ("tokens::lineages_do_not_compare", lineages),
    ("tokens::a_resource_is_rebound_by_its_owner", rebound),
    ("tokens::a_backend_that_lost_its_tokens_is_told_the_way_out", restored),
    ("tokens::an_equal_token_leaves_no_dead_row", no_dead_row),
    ("tokens::names_are_taken_as_they_are", names),
];

fn numbers(world: World) {
    world.run(async {
        let pool = world.pool(1).await;
        for number in [41, 41, 42, 42, i64::MAX.unsigned_abs()] {
            begin(&pool, "a", token(number)).await.unwrap().commit().await.unwrap();
        }
        stale(begin(&pool, "a", token(42)).await, 42, i64::MAX.unsigned_abs());
        let connection = &mut world.connect().await;
        stale(fence(connection, "a", token(1)).await, 1, i64::MAX.unsigned_abs());
        stale(admit(connection, "a", token(1)).await, 1, i64::MAX.unsigned_abs());
        // Another resource is another gate.
        fence(connection, "b", token(1)).await.unwrap();
    });
}

fn any_client(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        done(connection, "SELECT fencepost_fence('orders/4821', 42)").await;
        done(connection, "SELECT fencepost_admit('orders/4821', '42')").await;
        assert_eq!(value(connection, "fencepost_highest('orders/4821')").await.as_deref(), Some("42"));
        let numbers = ["stale", "presented=41 highest=42 resource=orders/4821"];
        for call in ["SELECT fencepost_fence", "SELECT fencepost_admit", "CALL fencepost_admit_recorded"] {
            let late = send(connection, &format!("{call}('orders/4821', 41)")).await;
            let error = refused(late, "FP001", &numbers);
            assert!(error.stale().is_some_and(|stale| stale.highest == token(42)), "{error}");
        }
    });
}

fn unknown(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        assert_eq!(value(connection, "fencepost_highest('nobody/knows')").await, None);
        assert_eq!(mark(connection, "nobody/knows").await.unwrap(), Mark::default());
        assert_eq!(marks(connection, "").await.unwrap(), []);
    });
}

fn lineages(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        fence(connection, "a", token(41)).await.unwrap();
        // The first one is recorded, and with an equal token too.
        admit(connection, "a", of_lineage(41, "old 'n' \\ gold")).await.unwrap();
        let recorded = mark(connection, "a").await.unwrap();
        assert_eq!(recorded.lineage, Some(Lineage::new("old 'n' \\ gold")));
        for number in [1, 41, 99] {
            let error =
                fails(admit(connection, "a", of_lineage(number, "new")).await, ErrorKind::OtherLineage, &[]);
            let other = error.other_lineage().unwrap();
            assert_eq!((other.presented.as_str(), other.recorded.as_str()), ("new", "old 'n' \\ gold"));
        }
        refused(
            send(connection, "SELECT fencepost_fence('a', 99, 'new')").await,
            "FP002",
            &["presented=new"],
        );
        // Without one a token is compared by its number alone.
        admit(connection, "a", token(41)).await.unwrap();
        stale(admit(connection, "a", token(40)).await, 40, 41);
        assert_eq!(mark(connection, "a").await.unwrap(), recorded);
    });
}

fn rebound(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        // One that no token was shown for yet can be prepared.
        let ready = Mark { highest: Some(token(5)), lineage: None };
        assert_eq!(rebind(connection, "b", &ready).await.unwrap(), Mark::default());
        stale(fence(connection, "b", token(4)).await, 4, 5);
        fence(connection, "a", of_lineage(900, "old")).await.unwrap();
        let old = mark(connection, "a").await.unwrap();
        let new = Mark { highest: None, lineage: Some(Lineage::new("new")) };
        assert_eq!(rebind(connection, "a", &new).await.unwrap(), old);
        assert_eq!(mark(connection, "a").await.unwrap(), new);
        fails(fence(connection, "a", of_lineage(901, "old")).await, ErrorKind::OtherLineage, &[]);
        fence(connection, "a", of_lineage(7, "new")).await.unwrap();
        stale(fence(connection, "a", of_lineage(6, "new")).await, 6, 7);
        let lower = Mark { highest: Some(token(3)), lineage: None };
        rebind(connection, "a", &lower).await.unwrap();
        admit(connection, "a", of_lineage(3, "third")).await.unwrap();
        let third = Mark { highest: Some(token(3)), lineage: Some(Lineage::new("third")) };
        assert_eq!(marks(connection, "a").await.unwrap(), [("a".parse().unwrap(), third)]);
    });
}

fn restored(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        fence(connection, "a", token(9_000_000)).await.unwrap();
        // The lock's backend begins at one again: everybody is refused, and is told how it goes on.
        stale(fence(connection, "a", token(1)).await, 1, 9_000_000);
        let hint = "SELECT fencepost_fence('a', 1)";
        let error = send(connection, hint).await.unwrap_err();
        let hint = error
            .as_database_error()
            .unwrap()
            .downcast_ref::<fencepost_sqlx::sqlx::postgres::PgDatabaseError>();
        let hint = hint.hint().unwrap();
        assert!(hint.contains("--above") && hint.contains("fencepost_rebind"), "{hint}");
        fence(connection, "a", token(9_000_001)).await.unwrap();
    });
}

fn no_dead_row(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        fence(connection, "a", token(42)).await.unwrap();
        let row = "SELECT ctid, xmin, xmax FROM fencepost.guard";
        let before = world.psql(row);
        for _ in 0..50 {
            fence(connection, "a", token(42)).await.unwrap();
            admit(connection, "a", token(42)).await.unwrap();
        }
        assert_eq!(world.psql(row), before);
        let dead = "SELECT pg_stat_force_next_flush(); SELECT n_dead_tup + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'guard'";
        assert_eq!(world.psql(dead).trim(), "0");
    });
}

fn names(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        let names = [
            "o'hara",
            r"back\slash",
            r"\'; DROP TABLE fencepost.guard; --",
            "日本/语",
            "a b",
            "$1",
            "%s",
            "e\u{301}",
            "é",
        ];
        for (name, number) in names.into_iter().zip(1..) {
            // Also where a backslash escapes in every literal.
            done(connection, "SET standard_conforming_strings = off").await;
            admit(connection, name, token(number)).await.unwrap();
            assert_eq!(mark(connection, name).await.unwrap().highest, Some(token(number)), "{name}");
        }
        assert_eq!(marks(connection, "").await.unwrap().len(), names.len());
        assert_eq!(marks(connection, "e").await.unwrap().len(), 1);
    });
}
