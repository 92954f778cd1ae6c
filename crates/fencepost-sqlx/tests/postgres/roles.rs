//! Least privilege: an application raises and asks; it lowers and removes nothing, and the gate does nothing for it that it
//! may not do itself.

use fencepost::{ErrorKind, gate::Mark};
use fencepost_sqlx::{
    postgres::{admit, fence, grant, install, mark, rebind},
    sqlx::Connection,
};

use crate::{
    Test,
    world::{World, done, fails, refused, send, stale, token, value},
};

pub(crate) const TESTS: &[Test] = &[
    ("roles::an_application_raises_and_never_lowers", application),
    ("roles::a_role_without_a_grant_is_told_which", ungranted),
    ("roles::a_search_path_of_the_callers_changes_nothing", search_path),
    ("roles::an_ordinary_role_can_own_the_gate", owner),
    ("roles::a_function_of_somebody_else_is_not_replaced", function_of_another),
    ("roles::default_privileges_give_nothing", default_privileges),
    ("roles::a_schema_of_somebody_else_is_not_used", schema_of_another),
];

/// Roles belong to the whole server: a name for this test only.
fn role(world: &World, name: &str) -> String {
    let role = format!("{name}_{}", world.database);
    world.psql(&format!("CREATE ROLE {role} LOGIN"));
    role
}

fn application(world: World) {
    world.run(async {
        let app = role(&world, "app");
        grant(&mut world.connect().await, &app).await.unwrap();
        world.psql(&format!("CREATE TABLE stock (n int); SELECT fencepost_protect('stock', 'a'); GRANT ALL ON stock TO {app}"));
        let connection = &mut world.connect_as(&app).await;
        fence(connection, "a", token(42)).await.unwrap();
        stale(admit(connection, "a", token(41)).await, 41, 42);
        let mut tx = connection.begin().await.unwrap();
        admit(&mut tx, "a", token(42)).await.unwrap();
        done(&mut tx, "INSERT INTO stock VALUES (1)").await;
        tx.commit().await.unwrap();
        assert_eq!(value(connection, "fencepost_highest('a')").await.as_deref(), Some("42"));
        assert_eq!(mark(connection, "a").await.unwrap().highest, Some(token(42)));
        refused(send(connection, "INSERT INTO stock VALUES (1)").await, "FP003", &[]);
        for forbidden in [
            "UPDATE fencepost.guard SET highest = 1",
            "DELETE FROM fencepost.guard",
            "TRUNCATE fencepost.guard",
            "INSERT INTO fencepost.guard VALUES ('b', 1)",
            "SELECT * FROM fencepost.guard FOR UPDATE",
            "DROP TABLE fencepost.guard",
            "DO $$BEGIN LOCK TABLE fencepost.guard IN EXCLUSIVE MODE; END$$",
            "SELECT fencepost_rebind('a', NULL, 1)",
            "SELECT fencepost.pass('a', 99, NULL)",
            "SELECT fencepost.note('a')",
            "SELECT fencepost.pass_recorded('a', 42, NULL)",
            "SELECT fencepost_unprotect('stock')",
            "SELECT fencepost_protect('stock', 'b')",
            "DROP TRIGGER fencepost_insert ON stock",
            "ALTER TABLE stock DISABLE TRIGGER ALL",
            "SET session_replication_role = replica",
            "CREATE FUNCTION fencepost.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE OR REPLACE FUNCTION fencepost.is_admitted(resource text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        ] {
            refused(send(connection, forbidden).await, "42501", &[]);
        }
        let error = rebind(connection, "a", &Mark::default()).await;
        fails(error, ErrorKind::Denied, &["fencepost_rebind"]);
        assert_eq!(world.psql("SELECT highest FROM fencepost.guard"), "42");
    });
}

fn ungranted(world: World) {
    world.run(async {
        let other = role(&world, "other");
        let connection = &mut world.connect_as(&other).await;
        let sentence = ["fencepost gate install --grant"];
        fails(fence(connection, "a", token(1)).await, ErrorKind::Denied, &sentence);
        fails(admit(connection, "a", token(1)).await, ErrorKind::Denied, &sentence);
        fails(mark(connection, "a").await, ErrorKind::Denied, &["permission denied"]);
        refused(send(connection, "SELECT fencepost_highest('a')").await, "42501", &[]);
        fails(
            grant(&mut world.connect().await, "nobody_of_that_name").await,
            ErrorKind::Invalid,
            &["nobody_of_that_name"],
        );
    });
}

/// Functions and operators that are found first, and would run as the gate's owner.
fn search_path(world: World) {
    world.run(async {
        let app = role(&world, "app");
        grant(&mut world.connect().await, &app).await.unwrap();
        world.psql(&format!("CREATE SCHEMA evil AUTHORIZATION {app}; CREATE TABLE stock (n int); SELECT fencepost_protect('stock', 'a'); GRANT ALL ON stock TO {app}"));
        let connection = &mut world.connect_as(&app).await;
        done(connection, "CREATE TABLE evil.ran (as_role text)").await;
        let body = "INSERT INTO evil.ran VALUES (current_user)";
        for (name, arguments, result, answer) in [
            ("starts_with", "text, text", "boolean", "true"),
            ("strpos", "text, text", "int", "1"),
            ("current_setting", "text", "text", "'read committed'::text"),
            ("current_setting", "text, boolean", "text", "'x'::text"),
            ("set_config", "text, text, boolean", "text", "'x'::text"),
            ("hashtextextended", "text, bigint", "bigint", "1::bigint"),
            ("trunc", "numeric", "numeric", "1::numeric"),
            ("pg_advisory_xact_lock_shared", "bigint", "boolean", "true"),
            ("equal", "text, text", "boolean", "true"),
            ("equal", "bigint, numeric", "boolean", "true"),
            ("joined", "text, text", "text", "'x'::text"),
        ] {
            let definition = format!("CREATE FUNCTION evil.{name}({arguments}) RETURNS {result} LANGUAGE sql AS $$ {body}; SELECT {answer} $$");
            done(connection, &definition).await;
        }
        for (operator, function, left, right) in [("=", "equal", "text", "text"), ("=", "equal", "bigint", "numeric"), ("||", "joined", "text", "text")] {
            done(connection, &format!("CREATE OPERATOR evil.{operator} (FUNCTION = evil.{function}, LEFTARG = {left}, RIGHTARG = {right})")).await;
        }
        done(connection, "SET search_path = evil, pg_catalog, public").await;
        done(connection, "SELECT fencepost_fence('a', 42)").await;
        done(connection, "BEGIN; SELECT fencepost_admit('a', 42); INSERT INTO public.stock VALUES (1); COMMIT").await;
        done(connection, "BEGIN; CALL fencepost_admit_recorded('a', 42); INSERT INTO public.stock VALUES (1); COMMIT").await;
        refused(send(connection, "SELECT fencepost_admit('a', 41)").await, "FP001", &[]);
        refused(send(connection, "CALL fencepost_admit_recorded('a', 41)").await, "FP001", &[]);
        refused(send(connection, "DELETE FROM public.stock").await, "FP003", &[]);
        // A table that hides ours.
        done(connection, "CREATE TEMPORARY TABLE guard AS SELECT 'a'::text AS resource, 1::bigint AS highest").await;
        refused(send(connection, "SELECT fencepost_admit('a', 41)").await, "FP001", &[]);
        refused(send(connection, "CALL fencepost_admit_recorded('a', 41)").await, "FP001", &[]);
        assert_eq!(world.psql("SELECT DISTINCT as_role FROM evil.ran"), "");
        assert_eq!(value(connection, "public.fencepost_highest('a')").await.as_deref(), Some("42"));
    });
}

fn owner(world: World) {
    world.run_empty(async {
        let (owner, app) = (role(&world, "owner"), role(&world, "app"));
        world.psql(&format!("GRANT CREATE ON DATABASE {} TO {owner}", world.database));
        let connection = &mut world.connect_as(&owner).await;
        fails(install(connection).await, ErrorKind::Denied, &["schema public"]);
        world.psql(&format!("GRANT CREATE ON SCHEMA public TO {owner}"));
        install(connection).await.unwrap();
        install(connection).await.unwrap();
        grant(connection, &app).await.unwrap();
        // A third role owns a table and protects it by itself.
        let third = role(&world, "third");
        world.psql(&format!("CREATE SCHEMA shop AUTHORIZATION {third}; GRANT USAGE ON SCHEMA shop TO {app}"));
        let tables = &mut world.connect_as(&third).await;
        done(tables, &format!("CREATE TABLE shop.stock (n int); GRANT INSERT ON shop.stock TO {app}")).await;
        done(tables, "SELECT fencepost_protect('shop.stock', 'a')").await;
        let writer = &mut world.connect_as(&app).await;
        refused(send(writer, "INSERT INTO shop.stock VALUES (1)").await, "FP003", &["table=shop.stock"]);
        done(writer, "BEGIN; SELECT fencepost_admit('a', 1); INSERT INTO shop.stock VALUES (1); COMMIT")
            .await;
        rebind(connection, "a", &Mark::default()).await.unwrap();
        // Nobody else takes it over, the superuser included.
        fails(
            install(&mut world.connect().await).await,
            ErrorKind::Denied,
            &[&owner, "install as that role"],
        );
    });
}

fn schema_of_another(world: World) {
    world.run_empty(async {
        let evil = role(&world, "evil");
        world.psql(&format!("CREATE SCHEMA fencepost AUTHORIZATION {evil}"));
        fails(install(&mut world.connect().await).await, ErrorKind::Denied, &[&evil]);
        assert_eq!(world.psql("SELECT count(*) FROM pg_proc WHERE proname LIKE 'fencepost%'"), "0");
    });
}

/// Replacing it would leave it to its owner, who could replace it again.
fn function_of_another(world: World) {
    world.run_empty(async {
        let evil = role(&world, "evil");
        world.psql(&format!("GRANT CREATE ON SCHEMA public TO {evil}"));
        let connection = &mut world.connect_as(&evil).await;
        for function in [
            "admit(resource text, token numeric, lineage text DEFAULT NULL)",
            "fence(resource text, token int)",
        ] {
            let name = format!("fencepost_{function}");
            done(connection, &format!("CREATE FUNCTION {name} RETURNS void LANGUAGE plpgsql AS 'BEGIN END'"))
                .await;
            let error = install(&mut world.connect().await).await;
            fails(error, ErrorKind::Denied, &["fencepost_", &evil, "REVOKE CREATE ON SCHEMA public"]);
            assert_eq!(world.psql("SELECT count(*) FROM pg_namespace WHERE nspname = 'fencepost'"), "0");
            done(connection, &format!("DROP FUNCTION {}", name.replace(" DEFAULT NULL", ""))).await;
        }
        install(&mut world.connect().await).await.unwrap();
    });
}

fn default_privileges(world: World) {
    world.run_empty(async {
        let app = role(&world, "app");
        world.psql(&format!(
            "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {app}; ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO {app};
             ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO {app}; ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC"
        ));
        for _ in 0..2 {
            install(&mut world.connect().await).await.unwrap();
        }
        world.psql("SELECT fencepost_fence('a', 42)");
        let connection = &mut world.connect_as(&app).await;
        for forbidden in [
            "UPDATE fencepost.guard SET highest = 1",
            "DELETE FROM fencepost.guard",
            "TRUNCATE fencepost.guard",
            "SELECT fencepost_rebind('a', NULL, 1)",
            "SELECT fencepost.pass('a', 99, NULL)",
            "SELECT fencepost.note('a')",
            "SELECT fencepost.pass_recorded('a', 42, NULL)",
            "CREATE TABLE fencepost.evil (n int)",
        ] {
            refused(send(connection, forbidden).await, "42501", &["permission denied"]);
        }
        // What is for everybody stays so.
        let third = role(&world, "third");
        world.psql(&format!("CREATE SCHEMA shop AUTHORIZATION {third}"));
        let tables = &mut world.connect_as(&third).await;
        done(tables, "CREATE TABLE shop.stock (n int); SELECT fencepost_protect('shop.stock', 'a')").await;
        refused(send(tables, "INSERT INTO shop.stock VALUES (1)").await, "FP003", &[]);
        done(tables, "SELECT fencepost_unprotect('shop.stock')").await;
        // A grant is what stays over an upgrade.
        grant(&mut world.connect().await, &third).await.unwrap();
        install(&mut world.connect().await).await.unwrap();
        fence(tables, "a", token(42)).await.unwrap();
        mark(tables, "a").await.unwrap();
    });
}
