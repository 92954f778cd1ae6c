//! The backends with leases that the command is tried on: each is a server of its own, reached through a proxy.

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fencepost_lab::leased::{Control, Remote, Server};
use fencepost_lab::proxy::Proxy;
use fencepost_lab::server::Process;
use fencepost_lab::server::etcd::{self, Etcd};
use fencepost_lab::server::redis::{self, Redis};
use fencepost_lab::server::zookeeper::{self, Client, ZooKeeper};

use crate::scene::{Scene, me, note};

/// A backend with leases.
pub(crate) struct Backend {
    pub(crate) proxy: Proxy,
    server: Kind,
}

enum Kind {
    Leased(Mutex<Process>, Remote),
    Redis(Box<Mutex<Redis>>),
    Etcd(Box<Mutex<Etcd>>),
    ZooKeeper(Box<Mutex<ZooKeeper>>),
}

/// The role of the leased backend's server. It ends with the test that started it.
pub(crate) fn serve() -> ExitCode {
    let server = Server::start().expect("a port");
    note("server", server.addr());
    loop {
        std::thread::park();
    }
}

impl Backend {
    /// The test backend.
    pub(crate) fn leased(scene: &Scene) -> Self {
        let mut server = Command::new(me());
        server.arg("role:server").env("SCENE", scene.path());
        let server = Process::spawn(server, &scene.path().join("server.log")).expect("it starts");
        let address: SocketAddr = scene.read("server");
        Self {
            proxy: Proxy::start(address).expect("a port"),
            server: Kind::Leased(server.into(), Remote::new(address)),
        }
    }

    /// A real redis-server.
    pub(crate) fn redis(options: redis::Options) -> Self {
        let server = Redis::start(options).expect("it starts");
        Self {
            proxy: Proxy::start(server.addr()).expect("a port"),
            server: Kind::Redis(Box::new(server.into())),
        }
    }

    /// An etcd cluster of one member.
    pub(crate) fn etcd() -> Self {
        let server = Etcd::start(etcd::Options::default()).expect("it starts");
        Self {
            proxy: Proxy::start(server.addr(0)).expect("a port"),
            server: Kind::Etcd(Box::new(server.into())),
        }
    }

    /// One ZooKeeper server.
    pub(crate) fn zookeeper() -> Self {
        let server = ZooKeeper::start(zookeeper::Options::default()).expect("it starts");
        Self {
            proxy: Proxy::start(server.addr()).expect("a port"),
            server: Kind::ZooKeeper(Box::new(server.into())),
        }
    }

    pub(crate) fn pause(&self) {
        match &self.server {
            Kind::Leased(server, _) => lock(server).pause(),
            Kind::Redis(server) => lock(server).pause(),
            Kind::Etcd(server) => lock(server).pause(0),
            Kind::ZooKeeper(server) => lock(server).pause(),
        }
        .expect("it runs");
    }

    pub(crate) fn control(&self, control: Control) {
        match &self.server {
            Kind::Leased(_, remote) => remote.send(control).expect("the server answers"),
            Kind::Redis(_) => match control {
                Control::Wipe => self.tell(&["FLUSHALL"]),
                Control::Delete(name) => self.tell(&["DEL", &format!("lock:{name}")]),
                Control::ExpireHolder(name) => self.tell(&["PEXPIRE", &format!("lock:{name}"), "1"]),
                other => panic!("no operator of Redis can do that: {other:?}"),
            },
            Kind::Etcd(server) => {
                let server = lock(server);
                let holder = |name: &str| {
                    server.keys(&format!("{name}/")).expect("it answers").first().cloned().expect("a holder")
                };
                match control {
                    Control::Wipe => server.command(&["del", "", "--from-key=true"]).map(drop),
                    Control::Delete(name) => server.delete(&holder(&name).0),
                    Control::ExpireHolder(name) => server.revoke(holder(&name).1),
                    other => panic!("no operator of etcd can do that: {other:?}"),
                }
                .expect("it answers");
            }
            Kind::ZooKeeper(server) => {
                let addr = lock(server).addr();
                let mut client = Client::connect(addr, Duration::from_secs(10)).expect("it answers");
                let line = |client: &mut Client, name: &str| {
                    client.line(&format!("/fencepost/locks/{name}")).expect("it answers")
                };
                match control {
                    Control::Wipe => line(&mut client, "x").iter().try_for_each(|node| client.delete(node)),
                    Control::Delete(name) => {
                        let holder = line(&mut client, &name).swap_remove(0);
                        client.delete(&holder)
                    }
                    Control::ExpireHolder(name) => {
                        let holder = line(&mut client, &name).swap_remove(0);
                        let session = client.read(&holder).expect("it answers").owner;
                        Client::end_session(addr, session)
                    }
                    other => panic!("no operator of ZooKeeper can do that: {other:?}"),
                }
                .expect("it answers");
            }
        }
    }

    /// Runs a command at the redis-server.
    pub(crate) fn tell(&self, words: &[&str]) {
        self.server().command::<()>(words).expect("it answers");
    }

    /// The redis-server.
    pub(crate) fn server(&self) -> MutexGuard<'_, Redis> {
        match &self.server {
            Kind::Redis(server) => lock(server),
            _ => panic!("this world has another backend"),
        }
    }

    /// How many processes of the scene are the backend's.
    pub(crate) fn processes(&self) -> usize {
        usize::from(matches!(self.server, Kind::Leased(..)))
    }
}

fn lock<T>(server: &Mutex<T>) -> MutexGuard<'_, T> {
    server.lock().expect("no panic")
}
