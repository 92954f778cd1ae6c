//! The leased backend as a process of its own, and what its driver makes of a broken connection.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use fencepost::{
    ErrorKind, Locker, Loss, SystemHost, Token, blocking,
    driver::{Fail, Host},
};
use fencepost_lab::{
    leased::{self, Control, Server, Terms},
    proxy::Proxy,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const TTL: Duration = Duration::from_millis(900);

/// A server process with its state in a file; it is killed when dropped.
struct Process {
    child: Child,
    port: u16,
}

impl Process {
    fn start(port: u16, file: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fencepost-lab-server"))
            .arg(port.to_string())
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("its port");
        Self { child, port: line.trim().parse().expect("a port number") }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("our own child can be signalled");
    }

    async fn locker(&self) -> Locker {
        connect(&format!("lab://127.0.0.1:{}?lease=claim", self.port)).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }
}

async fn connect(url: &str) -> Locker {
    let driver = leased::connect(url, Arc::new(SystemHost)).await.expect("the server answers");
    Locker::from_parts(driver, Arc::new(SystemHost))
}

#[test]
fn a_killed_server_goes_on_from_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("state.json");
    let server = Process::start(0, &file);
    blocking::wait(async {
        let locker = server.locker().await;
        let guard = locker.lock("a").ttl(TTL * 10).acquire().await.expect("it is free");
        let port = server.port;
        drop(server);
        let server = Process::start(port, &file);
        let holder = server.locker().await.inspect("a").await.expect("it answers").holder;
        assert_eq!(holder.expect("the lock survives").token, Some(guard.token()));
        assert_eq!(server.locker().await.about().lineage, *guard.lineage());
        let token = guard.token();
        guard.release().await.expect("the driver connects again");
        let next = locker.lock("a").ttl(TTL).acquire().await.expect("it is free");
        assert!(token < next.token());
        next.release().await.expect("it was held");
    });
}

#[test]
fn a_stopped_server_loses_the_lock_at_its_deadline() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Process::start(0, &dir.path().join("state.json"));
    blocking::wait(async {
        let guard = server.locker().await.lock("a").ttl(TTL).acquire().await.expect("it is free");
        server.signal(Signal::SIGSTOP);
        assert_eq!(guard.lost().await, Loss::Deadline);
        assert!(!guard.is_held());
        server.signal(Signal::SIGCONT);
        let next = server.locker().await.lock("a").ttl(TTL).acquire().await.expect("it is free again");
        assert!(guard.token() < next.token());
    });
}

#[test]
fn a_lock_deleted_behind_its_back_is_pushed_long_before_its_renewal() {
    let server = Server::start().expect("a server");
    for terms in [Terms::Claim, Terms::Session] {
        blocking::wait(async {
            let locker = connect(&server.url(terms)).await;
            let guard = locker.lock("a").ttl(TTL * 100).acquire().await.expect("it is free");
            // The engine attends a fresh claim within a second; its first renewal is half a minute away.
            SystemHost.sleep_until(SystemHost.now() + Duration::from_secs(1)).await;
            let deleted = guard.now();
            server.remote().send(Control::Delete("a".into())).expect("it does as it is told");
            assert_eq!(guard.lost().await, Loss::Gone);
            assert!(guard.now().since(deleted) < TTL * 10);
        });
    }
}

#[test]
fn a_request_is_unknown_when_it_was_cut_and_unavailable_when_it_was_never_sent() {
    let server = Server::start().expect("a server");
    let url = server.url(Terms::Claim) + "&path=subject";
    let lock = "a".parse().expect("a legal name");
    blocking::wait(async {
        let driver = leased::connect(&url, Arc::new(SystemHost)).await.expect("the server answers");
        let remote = server.remote();
        remote.send(Control::Freeze).expect("it does as it is told");
        let cut = async {
            SystemHost.sleep_until(SystemHost.now() + Duration::from_millis(100)).await;
            remote.send(Control::Cut).expect("it does as it is told");
            remote.send(Control::Thaw).expect("it does as it is told");
        };
        let (in_flight, ()) = tokio::join!(driver.inspect(&lock), cut);
        assert!(matches!(in_flight, Err(Fail::Unknown(_))), "{in_flight:?}");
        let refused = driver.inspect(&lock).await;
        assert!(matches!(refused, Err(Fail::Unavailable(_))), "{refused:?}");
        remote.send(Control::Heal).expect("it does as it is told");
        driver.inspect(&lock).await.expect("it connects again");
        drop(server);
        // The first request may meet the end of the old connection; the next finds nobody there.
        let _ = driver.inspect(&lock).await;
        let nobody = driver.inspect(&lock).await;
        assert!(matches!(nobody, Err(Fail::Unavailable(_))), "{nobody:?}");
    });
}

#[test]
fn a_cut_does_not_start_a_storm_of_connections() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(server.addr()).expect("a proxy, which counts");
    blocking::wait(async {
        let locker = connect(&format!("lab://{}?lease=claim&path=subject", proxy.addr())).await;
        let guard = locker.lock("a").ttl(TTL).acquire().await.expect("it is free");
        server.remote().send(Control::Cut).expect("it does as it is told");
        assert_eq!(guard.lost().await, Loss::Deadline);
        // Six renewals fit into a term, and the notice of the cut hastens one more.
        let connections = proxy.connections();
        assert!((2..20).contains(&connections), "{connections} connections");
    });
}

#[test]
fn a_floor_is_exceeded() {
    let server = Server::start().expect("a server");
    blocking::wait(async {
        let floor = Token::new(1 << 40).expect("it is not 0");
        let locker = connect(&server.url(Terms::Session)).await;
        let guard = locker.lock("a").ttl(TTL).floor(floor).acquire().await.expect("it is free");
        assert!(guard.token() > floor);
    });
}

#[test]
fn urls_are_strict() {
    for url in [
        "lab://127.0.0.1:1",
        "lab://127.0.0.1:1?lease=for-ever",
        "lab://127.0.0.1:1?lease=claim&path=other",
        "lab://127.0.0.1:1?lease=claim&colour=red",
        "lab:nowhere?lease=claim",
    ] {
        let refused = blocking::wait(leased::connect(url, Arc::new(SystemHost)));
        assert_eq!(refused.err().expect(url).kind(), ErrorKind::Invalid, "{url}");
    }
}
