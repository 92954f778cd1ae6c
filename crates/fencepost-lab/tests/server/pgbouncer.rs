//! PgBouncer.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use fencepost_lab::server::pgbouncer::{Options, PgBouncer, installed};
use fencepost_lab::server::{ignored, postgres};
use libtest_mimic::{Failed, Trial};

use super::is_alive;

pub(crate) fn trials() -> Vec<Trial> {
    let found = postgres::installed().and_then(|_| installed());
    let skip = ignored(&found);
    let trial = |name: &str, test: fn() -> Result<(), Failed>| {
        let found = found.clone();
        let run = move || found.map_err(Failed::from).and_then(|_| test());
        Trial::test(format!("pgbouncer::{name}"), run).with_ignored_flag(skip)
    };
    vec![
        trial("lends_a_connection_for_a_transaction", lends),
        trial("passwords_are_asked_for", passwords),
        trial("ends_when_told", ends),
    ]
}

fn psql(url: &str, sql: &str) -> Result<Output, Failed> {
    let mut psql = Command::new(postgres::installed()?.join("psql"));
    Ok(psql.args(["-w", "-XAtqc", sql, url]).stdin(Stdio::null()).output()?)
}

fn printed(url: &str, sql: &str) -> Result<String, Failed> {
    let output = psql(url, sql)?;
    assert!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// A session that asks for its server process and then says nothing more.
fn idle_session(url: &str) -> Result<(Child, String), Failed> {
    let mut psql = Command::new(postgres::installed()?.join("psql"));
    let mut child = psql.args(["-XAtq", url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.as_mut().expect("it is piped").write_all(b"select pg_backend_pid();\n")?;
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("it is piped")).read_line(&mut line)?;
    Ok((child, line.trim_end().to_owned()))
}

fn lends() -> Result<(), Failed> {
    let server = postgres::Postgres::start(postgres::Options::default())?;
    for (mode, shared) in [(None, true), (Some("pool_mode = session"), false)] {
        let mut extra = vec!["query_wait_timeout = 1".to_owned()];
        extra.extend(mode.map(Into::into));
        let options = Options { pool_size: 1, extra, ..Options::default() };
        let pool = PgBouncer::start(&server, &options)?;
        let url = pool.url("postgres");
        let (mut session, backend) = idle_session(&url)?;
        let other = psql(&url, "select pg_backend_pid()")?;
        // The control: whoever has sessions of its own would wait for the other one to end.
        assert_eq!(other.status.success(), shared, "{other:?}");
        if shared {
            assert_eq!(String::from_utf8(other.stdout)?.trim_end(), backend);
        }
        drop(session.stdin.take());
        session.wait()?;
    }
    Ok(())
}

fn passwords() -> Result<(), Failed> {
    let secret = "s p@ss:/'\"\\#%";
    let options = postgres::Options { password: Some(secret.into()), ..postgres::Options::default() };
    let server = postgres::Postgres::start(options)?;
    server.psql("postgres", "create user alice password 'wonder'; create user bob password 'b'")?;
    let users = vec![("alice".into(), "wonder".into())];
    let pool = PgBouncer::start(&server, &Options { users, ..Options::default() })?;
    assert_eq!(printed(&pool.url("postgres"), "select current_user")?, "postgres");
    assert_eq!(printed(&pool.url_as("postgres", "alice", "wonder"), "select current_user")?, "alice");
    assert!(printed(&pool.url("pgbouncer"), "show pools")?.contains("alice"));
    assert!(!psql(&pool.url_as("postgres", "alice", "wander"), "select 1")?.status.success());
    assert!(!psql(&pool.url_as("postgres", "bob", "b"), "select 1")?.status.success());
    Ok(())
}

fn ends() -> Result<(), Failed> {
    let server = postgres::Postgres::start(postgres::Options::default())?;
    let mut pool = PgBouncer::start(&server, &Options::default())?;
    let (url, first) = (pool.url("postgres"), pool.id());
    assert_ne!(fs::metadata(format!("/proc/{first}"))?.uid(), 0);
    pool.pause()?;
    let mut waiting = Command::new(postgres::installed()?.join("psql"))
        .args(["-XAtqc", "select 1", &url])
        .stdout(Stdio::piped())
        .spawn()?;
    thread::sleep(Duration::from_millis(300));
    assert_eq!(waiting.try_wait()?, None);
    pool.resume()?;
    assert_eq!(waiting.wait_with_output()?.stdout, b"1\n");
    pool.kill()?;
    assert!(!is_alive(first));
    assert!(!psql(&url, "select 1")?.status.success());
    pool.restart()?;
    assert_eq!(printed(&url, "select 1")?, "1");
    let second = pool.id();
    drop(pool);
    assert!(!is_alive(second));
    Ok(())
}
