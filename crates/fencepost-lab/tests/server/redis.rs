//! redis-server.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use fencepost_lab::server::certificates::Certificates;
use fencepost_lab::server::redis::{Options, Persistence, Redis, Tls, installed};
use fencepost_lab::server::{ignored, require};
use libtest_mimic::{Failed, Trial};

use super::{SOON, is_alive};

pub(crate) fn trials() -> Vec<Trial> {
    let found = installed();
    let skip = ignored(&found);
    let trial = |name: &str, test: fn() -> Result<(), Failed>| {
        let found = found.clone();
        let run = move || found.map_err(Failed::from).and_then(|_| test());
        Trial::test(format!("redis::{name}"), run).with_ignored_flag(skip)
    };
    vec![
        trial("answers_only_while_it_runs", answers_only_while_it_runs),
        trial("a_dropped_server_is_gone", dropped),
        trial("a_crash_loses_what_was_not_kept", crash_loses),
        trial("a_crash_keeps_what_was_to_be_kept", crash_keeps),
        trial("a_new_disk_is_empty", new_disk),
        trial("passwords_and_users_are_asked_for", passwords),
        trial("tls_refuses_plain", tls_refuses_plain),
        trial("tls_may_ask_clients_for_a_certificate", tls_asks_clients),
        trial("a_replica_copies", replica_copies),
        trial("a_cluster_of_one_serves_every_key", cluster),
        trial("memory_has_its_limit", memory),
        trial("a_wrong_option_shows_the_log", wrong_option),
        trial("no_secret_is_among_its_arguments", no_secret_in_arguments),
    ]
}

/// What a client without any library reads after it has sent `text`.
fn ask(redis: &Redis, text: &str, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect(redis.addr())?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

fn cli(arguments: &[&str], files: &[(&str, &Path)]) -> io::Result<Output> {
    let mut command = Command::new(require("redis-cli", "redis-tools").map_err(io::Error::other)?);
    for (option, file) in files {
        command.arg(option).arg(file);
    }
    command.args(arguments).output()
}

fn answers_only_while_it_runs() -> Result<(), Failed> {
    let mut redis = Redis::start(Options::default())?;
    let pid = redis.id();
    assert_eq!(ask(&redis, "PING\r\n", SOON)?, "+PONG\r\n");
    redis.pause()?;
    let silent = ask(&redis, "PING\r\n", Duration::from_millis(200)).unwrap_err();
    assert_eq!(silent.kind(), io::ErrorKind::WouldBlock, "{silent}");
    assert!(redis.connection(Duration::from_millis(200)).is_err(), "the Unix socket is silent too");
    redis.resume()?;
    assert_eq!(ask(&redis, "PING\r\n", SOON)?, "+PONG\r\n");
    redis.pause()?;
    redis.kill()?;
    assert!(!is_alive(pid), "a paused server dies as well");
    assert_eq!(ask(&redis, "PING\r\n", SOON).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert!(redis.pause().unwrap_err().to_string().contains("restart it"));
    redis.kill()?;
    redis.restart()?;
    assert_ne!(redis.id(), pid);
    assert_eq!(ask(&redis, "PING\r\n", SOON)?, "+PONG\r\n");
    Ok(())
}

fn dropped() -> Result<(), Failed> {
    let redis = Redis::start(Options::default())?;
    let (pid, addr) = (redis.id(), redis.addr());
    let directory: Vec<String> = redis.command(&["CONFIG", "GET", "dir"])?;
    assert!(Path::new(&directory[1]).is_dir());
    drop(redis);
    assert!(!is_alive(pid));
    assert!(TcpStream::connect(addr).is_err());
    assert!(!Path::new(&directory[1]).exists());
    Ok(())
}

fn crash_loses() -> Result<(), Failed> {
    let mut redis = Redis::start(Options::default())?;
    redis.command::<()>(&["SET", "k", "v"])?;
    redis.restart()?;
    assert_eq!(redis.command::<Option<String>>(&["GET", "k"])?, None);
    redis.command::<()>(&["SET", "k", "v"])?;
    redis.command::<()>(&["SAVE"])?;
    redis.command::<()>(&["SET", "k", "later"])?;
    redis.restart()?;
    assert_eq!(redis.command::<String>(&["GET", "k"])?, "v", "what a test saves is kept");
    Ok(())
}

fn always() -> Options {
    Options { persistence: Persistence::Always, ..Options::default() }
}

fn crash_keeps() -> Result<(), Failed> {
    let mut redis = Redis::start(always())?;
    for round in 0..3 {
        redis.command::<()>(&["SET", "k", &round.to_string()])?;
        redis.restart()?;
        assert_eq!(redis.command::<i32>(&["GET", "k"])?, round);
    }
    Ok(())
}

fn new_disk() -> Result<(), Failed> {
    let mut redis = Redis::start(always())?;
    redis.command::<()>(&["SET", "k", "v"])?;
    redis.restart_empty()?;
    assert_eq!(redis.command::<Option<String>>(&["GET", "k"])?, None);
    Ok(())
}

fn passwords() -> Result<(), Failed> {
    let secret = "s p@ss:/\"\\#%";
    let options = Options {
        password: Some(secret.into()),
        users: vec!["alice on >wonder ~orders* +get +ping".into()],
        ..Options::default()
    };
    let redis = Redis::start(options)?;
    assert!(ask(&redis, "PING\r\n", SOON)?.starts_with("-NOAUTH"));
    assert!(ask(&redis, "AUTH wrong\r\n", SOON)?.starts_with("-WRONGPASS"));
    let client = |url: &str| redis::Client::open(url)?.get_connection();
    let mut connection = client(&redis.url())?;
    redis::cmd("SET").arg("secret").arg(1).query::<()>(&mut connection)?;
    let mut alice = client(&redis.url_as("alice", "wonder"))?;
    assert_eq!(redis::cmd("GET").arg("orders/1").query::<Option<i32>>(&mut alice)?, None);
    let refused = redis::cmd("GET").arg("secret").query::<i32>(&mut alice).unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"));
    assert!(client(&redis.url_as("alice", "wander")).is_err());
    assert_eq!(redis.command::<i32>(&["GET", "secret"])?, 1);
    Ok(())
}

fn tls_refuses_plain() -> Result<(), Failed> {
    let files = Certificates::generate()?;
    let redis = Redis::start(Options { tls: Some(Tls::from(&files)), ..Options::default() })?;
    assert!(redis.url().starts_with("rediss://"), "{}", redis.url());
    let plain = ask(&redis, "PING\r\n", SOON);
    assert!(!plain.is_ok_and(|line| line.contains("PONG")));
    let port = redis.addr().port().to_string();
    for host in ["localhost", "127.0.0.1"] {
        let arguments = ["--tls", "-h", host, "-p", &port, "PING"];
        let trusted = cli(&arguments, &[("--cacert", &files.authority())])?;
        assert_eq!(String::from_utf8_lossy(&trusted.stdout), "PONG\n", "{trusted:?}");
        let stranger = Certificates::generate()?;
        let distrusted = cli(&arguments, &[("--cacert", &stranger.authority())])?;
        assert!(!String::from_utf8_lossy(&distrusted.stdout).contains("PONG"), "{distrusted:?}");
    }
    Ok(())
}

fn tls_asks_clients() -> Result<(), Failed> {
    let files = Certificates::generate()?;
    let tls = Tls { ask_clients: true, ..Tls::from(&files) };
    let redis = Redis::start(Options { tls: Some(tls), ..Options::default() })?;
    let port = redis.addr().port().to_string();
    let arguments = ["--tls", "-h", "localhost", "-p", &port, "PING"];
    let (authority, client, key) = (files.authority(), files.client(), files.client_key());
    let unknown = cli(&arguments, &[("--cacert", &authority)])?;
    assert!(!String::from_utf8_lossy(&unknown.stdout).contains("PONG"), "{unknown:?}");
    let known = cli(&arguments, &[("--cacert", &authority), ("--cert", &client), ("--key", &key)])?;
    assert_eq!(String::from_utf8_lossy(&known.stdout), "PONG\n", "{known:?}");
    Ok(())
}

fn replica_copies() -> Result<(), Failed> {
    let password = Some("secret".to_owned());
    let primary = Redis::start(Options { password: password.clone(), ..Options::default() })?;
    primary.command::<()>(&["SET", "k", "before"])?;
    let options = Options { replica_of: Some(primary.addr()), password, ..Options::default() };
    let replica = Redis::start(options)?;
    primary.command::<()>(&["SET", "k", "after"])?;
    assert_eq!(primary.command::<i32>(&["WAIT", "1", "10000"])?, 1);
    assert_eq!(replica.command::<String>(&["GET", "k"])?, "after");
    assert!(replica.command::<()>(&["SET", "k", "own"]).is_err(), "a replica takes no writes");
    replica.command::<()>(&["REPLICAOF", "NO", "ONE"])?;
    replica.command::<()>(&["SET", "k", "own"])?;
    Ok(())
}

fn cluster() -> Result<(), Failed> {
    let mut redis =
        Redis::start(Options { cluster: true, persistence: Persistence::Always, ..Options::default() })?;
    for key in ["a", "b", "c", "{orders}"] {
        redis.command::<()>(&["SET", key, "v"])?;
    }
    let refused = redis.command::<()>(&["MSET", "a", "1", "b", "2"]).unwrap_err();
    assert_eq!(refused.code(), Some("CROSSSLOT"));
    redis.restart()?;
    assert_eq!(redis.command::<String>(&["GET", "a"])?, "v");
    redis.restart_empty()?;
    redis.command::<()>(&["SET", "a", "w"])?;
    Ok(())
}

fn memory() -> Result<(), Failed> {
    let redis = Redis::start(Options { max_memory: Some(1), ..Options::default() })?;
    let refused = redis.command::<()>(&["SET", "k", "v"]).unwrap_err();
    assert_eq!(refused.code(), Some("OOM"));
    Ok(())
}

fn wrong_option() -> Result<(), Failed> {
    let wrong = Redis::start(Options { extra: vec!["no-such-option 1".into()], ..Options::default() });
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("ended before it was ready") && error.contains("no-such-option"), "{error}");
    Ok(())
}

fn no_secret_in_arguments() -> Result<(), Failed> {
    let redis = Redis::start(Options { password: Some("s3cret".into()), ..Options::default() })?;
    for file in ["cmdline", "environ"] {
        let bytes = std::fs::read(format!("/proc/{}/{file}", redis.id()))?;
        assert!(!String::from_utf8_lossy(&bytes).contains("s3cret"), "{file}");
    }
    Ok(())
}
