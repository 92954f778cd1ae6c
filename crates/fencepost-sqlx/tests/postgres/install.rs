//! Installing, upgrading and removing the gate.

use std::fs;

use fencepost::ErrorKind;
use fencepost_lab::server::postgres::{Options, Postgres};
use fencepost_sqlx::{
    postgres::{INSTALL, Installed, UNINSTALL, fence, install, mark, uninstall},
    sqlx::{Connection, PgConnection},
};

use crate::{
    Test,
    world::{World, done, fails, refused, send, stale, token, value},
};

pub(crate) const TESTS: &[Test] = &[
    ("install::again_keeps_every_mark", again),
    ("install::many_at_once_are_one", at_once),
    ("install::a_newer_gate_is_not_replaced", newer),
    ("install::without_it_the_sentence_names_the_command", missing),
    ("install::removing_it_leaves_nothing", removed),
    ("install::protected_tables_keep_it", protected),
    ("install::psql_installs_it_too", psql),
    ("install::a_mark_outlives_a_crash_of_the_server", crash),
    ("install::a_replica_is_read_only", replica),
];

fn again(world: World) {
    world.run(async {
        world.psql("CREATE TABLE stock (n int); SELECT fencepost_protect('stock', 'a')");
        let connection = &mut world.connect().await;
        fence(connection, "a", token(42)).await.unwrap();
        install(connection).await.unwrap();
        stale(fence(connection, "a", token(41)).await, 41, 42);
        refused(send(connection, "INSERT INTO stock VALUES (1)").await, "FP003", &[]);
        // The session is as it was.
        assert_eq!(
            value(connection, "current_setting('search_path')").await.as_deref(),
            Some("\"$user\", public")
        );
    });
}

fn at_once(world: World) {
    world.run_empty(async {
        let mut connections = Vec::new();
        for _ in 0..4 {
            connections.push(world.connect().await);
        }
        let [one, two, three, four] = &mut connections[..] else { panic!("four") };
        let (one, two, three, four) = tokio::join!(install(one), install(two), install(three), install(four));
        for installed in [one, two, three, four] {
            installed.unwrap();
        }
    });
}

fn newer(world: World) {
    world.run(async {
        world.psql("CREATE OR REPLACE FUNCTION fencepost.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1000'");
        let error = install(&mut world.connect().await).await;
        fails(error, ErrorKind::Unsupported, &["version 1000", "use a newer fencepost"]);
    });
}

fn missing(world: World) {
    world.run_empty(async {
        let connection = &mut world.connect().await;
        let sentence = ["run `fencepost gate install`"];
        fails(fence(connection, "a", token(1)).await, ErrorKind::Unsupported, &sentence);
        fails(mark(connection, "a").await, ErrorKind::Unsupported, &sentence);
        fails(Installed::read(connection).await, ErrorKind::Unsupported, &sentence);
        fails(uninstall(connection, true).await, ErrorKind::Unsupported, &sentence);
        fails(uninstall(connection, false).await, ErrorKind::Unsupported, &sentence);
    });
}

/// Everything in the catalog that has our name.
const OURS: &str = "SELECT (SELECT count(*) FROM pg_proc WHERE proname LIKE 'fencepost%') + (SELECT count(*) FROM pg_namespace WHERE nspname = 'fencepost') + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'fencepost%')";

fn removed(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        fence(connection, "a", token(42)).await.unwrap();
        assert_eq!(Installed::read(connection).await.unwrap(), Installed { tables: vec![], marks: 1 });
        uninstall(connection, false).await.unwrap();
        assert_eq!(world.psql(OURS), "0");
        install(connection).await.unwrap();
    });
}

fn protected(world: World) {
    world.run(async {
        world.psql(
            "CREATE TABLE stock (n int); SELECT fencepost_protect('stock', 'a');
             CREATE TABLE log (day int) PARTITION BY RANGE (day); CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM (1) TO (2);
             SELECT fencepost_protect('log', 'a')",
        );
        let connection = &mut world.connect().await;
        let there = Installed::read(connection).await.unwrap();
        assert_eq!(there, Installed { tables: ["log", "log_1", "stock"].map(String::from).into(), marks: 0 });
        fails(uninstall(connection, false).await, ErrorKind::Invalid, &["fencepost_unprotect", "--yes"]);
        refused(send(connection, "INSERT INTO stock VALUES (1)").await, "FP003", &[]);
        uninstall(connection, true).await.unwrap();
        assert_eq!(world.psql(OURS), "0");
        done(connection, "INSERT INTO stock VALUES (1); INSERT INTO log VALUES (1)").await;
    });
}

fn psql(world: World) {
    world.run_empty(async {
        world.psql(&format!("BEGIN; {INSTALL} COMMIT; BEGIN; {INSTALL} COMMIT"));
        fence(&mut world.connect().await, "a", token(1)).await.unwrap();
        world.psql(&format!("BEGIN; {UNINSTALL} COMMIT"));
        assert_eq!(world.psql(OURS), "0");
    });
}

/// A session may do without waiting for the disk, but not for its marks.
fn crash(_: World) {
    // So late that it does not write by chance.
    let extra = vec!["wal_writer_delay = '10s'".into()];
    let mut server = Postgres::start(Options { extra, ..Options::default() }).expect("it is installed");
    server.psql("postgres", &format!("BEGIN; {INSTALL} COMMIT")).unwrap();
    for (number, call) in [(41, "fence('a', 41)"), (42, "admit('a', 42)"), (40, "rebind('a', NULL, 40)")] {
        let sql = format!("SET synchronous_commit = off; SELECT fencepost_{call}");
        server.psql("postgres", &sql).unwrap();
        server.kill().unwrap();
        server.restart().unwrap();
        assert_eq!(
            server.psql("postgres", "SELECT fencepost_highest('a')").unwrap(),
            number.to_string(),
            "{call}"
        );
    }
    let off = "BEGIN; SET LOCAL synchronous_commit = off; SELECT fencepost_fence('a', 40)";
    // Who raises nothing keeps what it has chosen.
    assert_eq!(
        server.psql("postgres", &format!("{off}; SHOW synchronous_commit; COMMIT")).unwrap().trim(),
        "off"
    );
}

/// What it has lags behind the primary, so it must not even admit a token that it knows.
fn replica(_: World) {
    let mut server = Postgres::start(Options::default()).expect("it is installed");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let url = server.url("postgres");
    runtime.block_on(async {
        let connection = &mut PgConnection::connect(&url).await.unwrap();
        install(connection).await.unwrap();
        fence(connection, "a", token(42)).await.unwrap();
    });
    let folder = server.psql("postgres", "CHECKPOINT; SHOW data_directory").unwrap();
    fs::write(format!("{folder}/standby.signal"), "").unwrap();
    server.restart().unwrap();
    runtime.block_on(async {
        let connection = &mut PgConnection::connect(&url).await.unwrap();
        for number in [41, 42, 43] {
            let error = fence(connection, "a", token(number)).await;
            fails(error, ErrorKind::Unsupported, &["replica", "the primary"]);
            let error = fencepost_sqlx::postgres::admit(connection, "a", token(number)).await;
            fails(error, ErrorKind::Unsupported, &["the primary"]);
        }
        assert_eq!(mark(connection, "a").await.unwrap().highest, Some(token(42)));
        fails(install(connection).await, ErrorKind::Unsupported, &["primary"]);
    });
}
