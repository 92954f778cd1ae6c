//! The backends with leases that the command is tried on: each is a server of its own, reached through a proxy.

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, MutexGuard};

use fencepost_lab::leased::{Control, Remote, Server};
use fencepost_lab::proxy::Proxy;
use fencepost_lab::server::Process;
use fencepost_lab::server::redis::{self, Redis};

use crate::scene::{Scene, me, note};

/// A backend with leases.
pub(crate) struct Backend {
    pub(crate) proxy: Proxy,
    server: Kind,
}

enum Kind {
    Leased(Mutex<Process>, Remote),
    Redis(Box<Mutex<Redis>>),
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

    pub(crate) fn pause(&self) {
        match &self.server {
            Kind::Leased(server, _) => lock(server).pause(),
            Kind::Redis(server) => lock(server).pause(),
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
            Kind::Leased(..) => panic!("this world has the test backend"),
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
