//! What cannot be right, each with a sentence that says so.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use fencepost::{Error, ErrorKind};
use fencepost_lab::server::{
    Port,
    postgres::{Options, Postgres},
};
use fencepost_sqlx::{
    postgres::{begin, explain, explain_repeatable, fence, install, marks},
    sqlx::{Connection, PgConnection},
};

use crate::{
    Test,
    world::{World, done, fails, refused, send, token},
};

pub(crate) const TESTS: &[Test] = &[
    ("input::tokens_that_are_none", tokens),
    ("input::resources_that_are_none", resources),
    ("input::an_old_row_hides_no_other", old_row),
    ("input::a_reply_that_was_lost", lost_reply),
    ("input::a_wrong_password", password),
    ("input::no_such_database_and_no_such_role", no_such_database),
    ("input::nobody_listens", nobody_listens),
    ("input::a_server_that_is_not_postgresql", not_postgresql),
    ("input::an_old_server", old_server),
];

fn tokens(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        for (given, code, part) in [
            ("0", "22023", "token=0"),
            ("-1", "22023", "token=-1"),
            ("9223372036854775808", "22023", "from 1 to 9223372036854775807"),
            ("18446744073709551615", "22023", "token=18446744073709551615"),
            ("1e300", "22023", "invalid token"),
            ("1.5", "22023", "token=1.5"),
            ("'NaN'", "22023", "token=NaN"),
            ("'Infinity'", "22023", "token=Infinity"),
            ("NULL", "22023", "token=null"),
            ("'seven'", "22P02", "seven"),
            ("''", "22P02", "numeric"),
            ("'0x10'", "22P02", "0x10"),
        ] {
            for call in ["SELECT fencepost_fence", "SELECT fencepost_admit", "CALL fencepost_admit_recorded"]
            {
                let error = send(connection, &format!("{call}('a', {given})")).await;
                assert_eq!(refused(error, code, &[part]).kind(), ErrorKind::Invalid, "{given}");
            }
        }
        for given in ["0", "-1", "1.5", "9223372036854775808"] {
            let error = send(connection, &format!("SELECT fencepost_rebind('a', NULL, {given})")).await;
            assert_eq!(explain(error.unwrap_err()).kind(), ErrorKind::Invalid, "{given}");
        }
        fails(fence(connection, "a", token(u64::MAX)).await, ErrorKind::Invalid, &["9223372036854775807"]);
        fence(connection, "a", token(i64::MAX.unsigned_abs())).await.unwrap();
        // As an accepted token's column is read by everybody, it is whole.
        send(connection, "SELECT fencepost_fence('b', 7.0), fencepost_admit('b', '7.000')").await.unwrap();
        assert_eq!(world.psql("SELECT highest FROM fencepost.guard WHERE resource = 'b'"), "7");
    });
}

fn resources(world: World) {
    world.run(async {
        let connection = &mut world.connect().await;
        let long = format!("'{}'", "x".repeat(256));
        for given in
            ["''", "NULL", "E'a\\nb'", "E'a\\u0085b'", "'/a'", "'a/'", "'a//b'", "'..'", "'a/./b'", &long]
        {
            for call in [
                "SELECT fencepost_fence(@, 1)",
                "SELECT fencepost_admit(@, 1)",
                "CALL fencepost_admit_recorded(@, 1)",
                "SELECT fencepost_rebind(@, NULL, 1)",
            ] {
                let error = send(connection, &call.replace('@', given)).await;
                assert_eq!(
                    refused(error, "22023", &["invalid resource"]).kind(),
                    ErrorKind::Invalid,
                    "{given}"
                );
            }
        }
        let pool = world.pool(1).await;
        for given in ["", "/a", "a\nb"] {
            fails(begin(&pool, given, token(1)).await, ErrorKind::Invalid, &["invalid resource name"]);
        }
        assert_eq!(world.psql("TABLE fencepost.guard"), "");
    });
}

/// From before the rules for names were the same everywhere.
fn old_row(world: World) {
    world.run(async {
        world.psql("INSERT INTO fencepost.guard VALUES ('a//b', 1), ('b', 2)");
        let there = marks(&mut world.connect().await, "").await.unwrap();
        let names: Vec<_> = there.iter().map(|(name, mark)| (name.as_str(), mark.highest)).collect();
        assert_eq!(names, [("a//b", Some(token(1))), ("b", Some(token(2)))]);
    });
}

/// The transaction may be committed, so it must not be repeated blindly; a fence may.
fn lost_reply(world: World) {
    world.run(async {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let connection = &mut world.connect().await;
        done(connection, "BEGIN; SELECT fencepost_admit('a', 1)").await;
        world.psql(end);
        let lost = send(connection, "COMMIT").await.map_err(explain);
        fails(lost, ErrorKind::Unknown, &["read before you repeat"]);
        let lost = send(connection, "COMMIT").await.map_err(explain);
        fails(lost, ErrorKind::Unknown, &["read before you repeat"]);
        let connection = &mut world.connect().await;
        world.psql(end);
        fails(fence(connection, "a", token(1)).await, ErrorKind::Unavailable, &[]);
        let port = Port::free().unwrap();
        let url = format!("postgres://postgres@{}/postgres", port.addr());
        fails(PgConnection::connect(&url).await.map_err(explain), ErrorKind::Unavailable, &["not reached"]);
    });
}

async fn unreachable(url: &str, kind: ErrorKind, parts: &[&str]) -> Error {
    fails(PgConnection::connect(url).await.map(drop).map_err(explain_repeatable), kind, parts)
}

fn password(_: World) {
    let options = Options { password: Some("right 'one' /@:%".into()), ..Options::default() };
    let server = Postgres::start(options).expect("it is installed");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        PgConnection::connect(&server.url("postgres")).await.unwrap();
        for wrong in ["wrong secret", ""] {
            let url = server.url_as("postgres", "postgres", wrong);
            let error = unreachable(&url, ErrorKind::Denied, &["password authentication failed"]).await;
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    });
}

fn no_such_database(world: World) {
    world.run_empty(async {
        unreachable(&world.server.url("nothing"), ErrorKind::Invalid, &["\"nothing\" does not exist"]).await;
        let url = world.server.url_as("postgres", "nobody_at_all", "");
        unreachable(&url, ErrorKind::Denied, &["\"nobody_at_all\" does not exist"]).await;
    });
}

fn nobody_listens(world: World) {
    world.run_empty(async {
        let port = Port::free().unwrap();
        let url = format!("postgres://postgres@{}/postgres", port.addr());
        unreachable(&url, ErrorKind::Unavailable, &["the database was not reached"]).await;
        unreachable("postgres://no.such.host.invalid/postgres", ErrorKind::Unavailable, &["not reached"])
            .await;
    });
}

/// A server of ours on a free port, with what it does to a connection.
fn serve(handle: impl Fn(TcpStream) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = handle.clone();
            thread::spawn(move || handle(stream));
        }
    });
    format!("postgres://postgres@{address}")
}

fn not_postgresql(world: World) {
    world.run_empty(async {
        let url = serve(|mut stream| {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        let error = PgConnection::connect(&url).await.map(drop).map_err(explain_repeatable);
        fails(error, ErrorKind::Unavailable, &[]);
    });
}

/// There is one server here, so the question is answered in its place.
fn old_server(world: World) {
    world.run_empty(async {
        let connection = &mut world.connect().await;
        // The server itself is asked, and not what it told the client at the start.
        let version = "SELECT current_setting('server_version_num')::int";
        assert!(world.psql(version).parse::<u32>().unwrap() >= 130_000);
        let old =
            fencepost_sqlx::postgres::INSTALL.replace("current_setting('server_version_num')", "'120022'");
        let error = send(connection, &old).await;
        let error = refused(error, "0A000", &["needs PostgreSQL 13 or later, this is"]);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        install(connection).await.unwrap();
    });
}
