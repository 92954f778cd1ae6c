//! ZooKeeper under the suite: real servers, a proxy for what is cut, and one that knows requests for single ones.
//!
//! A server takes a second of two processors to start, so one serves several cases, one after the other, each in a
//! chroot of its own.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fencepost::{
    Error,
    conformance::{Harness, HolderProcess, Hook, NotApplicable, Path, Verb},
    driver::{self, Driver, Fut},
};
use fencepost_lab::{
    proxy::Proxy,
    server::zookeeper::{self, Client, Fault, Frames, OPEN, Op, Options, ZooKeeper},
};

use crate::holder::{Holder, host};

static IDLE: Mutex<Vec<ZooKeeper>> = Mutex::new(Vec::new());
static CASES: AtomicU64 = AtomicU64::new(1);

struct Subject {
    /// `None` once it is handed on.
    server: Mutex<Option<ZooKeeper>>,
    chroot: String,
    proxy: Proxy,
    frames: Frames,
}

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    zookeeper::installed().map_err(|missing| missing.to_string())?;
    let idle = lock(&IDLE).pop();
    let server = match idle {
        Some(server) => server,
        None => ZooKeeper::start(Options::default()).map_err(|error| format!("no zookeeper: {error}"))?,
    };
    let chroot = format!("/case{}", CASES.fetch_add(1, Ordering::Relaxed));
    make(&server, &chroot);
    let frames = Frames::start(server.addr()).map_err(|error| format!("no proxy: {error}"))?;
    let proxy = Proxy::start(frames.addr()).map_err(|error| format!("no proxy: {error}"))?;
    Ok(Box::new(Subject { server: Mutex::new(Some(server)), chroot, proxy, frames }))
}

/// Ends the servers that are still there, with their files.
pub(crate) fn finish() {
    lock(&IDLE).clear();
}

fn make(server: &ZooKeeper, chroot: &str) {
    client(server).create(chroot, b"", OPEN, 0).expect("a new node can be made");
}

fn client(server: &ZooKeeper) -> Client {
    server.client().expect("the server takes a client")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subject {
    fn with_server<T>(&self, act: impl FnOnce(&mut ZooKeeper) -> T) -> T {
        act(lock(&self.server).as_mut().expect("the server is handed on at the end"))
    }

    fn url(&self) -> String {
        self.with_server(|server| format!("{}{}", server.url(), self.chroot))
    }

    fn arm(&self, verb: Verb, fault: Fault) -> Hook {
        let op = match verb {
            Verb::Enter => Op::Create,
            Verb::Renew => Op::Multi,
            Verb::Leave => Op::Delete,
        };
        self.frames.arm(op, fault);
        Ok(())
    }

    /// The nodes in a lock's line, the holder's first.
    fn line(&self, lock: &str) -> (Client, Vec<String>) {
        let mut client = self.with_server(|server| client(server));
        let path = format!("{}/fencepost/locks/{}", self.chroot, lock.replace('/', "%2F"));
        let line = client.line(&path).expect("the line can be read");
        (client, line)
    }

    fn expire(&self, lock: &str, whose: impl Fn(usize) -> bool) {
        let (mut client, line) = self.line(lock);
        for (place, path) in line.iter().enumerate().filter(|(place, _)| whose(*place)) {
            // One session may have had several of them.
            let Ok(node) = client.read(path) else { continue };
            let addr = self.with_server(|server| server.addr());
            Client::end_session(addr, node.owner).unwrap_or_else(|error| panic!("place {place}: {error}"));
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(mut server) = lock(&self.server).take()
            && server.resume().is_ok()
        {
            lock(&IDLE).push(server);
        }
    }
}

impl Harness for Subject {
    fn connect(&self, path: Path) -> Fut<'_, Result<Arc<dyn Driver>, Error>> {
        let url = match path {
            Path::Sound => self.url(),
            Path::Subject => format!("zk://{}{}", self.proxy.addr(), self.chroot),
        };
        Box::pin(async move { driver::connect(&url, host()).await })
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(900)
    }

    fn hold_elsewhere(&self, lock: &str, ttl: Duration) -> Hook<Box<dyn HolderProcess>> {
        Ok(Holder::start(&self.url(), lock, ttl))
    }

    fn freeze(&self) -> Hook {
        self.with_server(ZooKeeper::pause).expect("the server can be stopped");
        Ok(())
    }

    fn thaw(&self) -> Hook {
        self.with_server(ZooKeeper::resume).expect("the server can go on");
        Ok(())
    }

    fn cut(&self) -> Hook {
        self.proxy.cut();
        Ok(())
    }

    fn heal(&self) -> Hook {
        self.proxy.heal().expect("the proxy's port is still its own");
        Ok(())
    }

    fn lose_reply(&self, verb: Verb) -> Hook {
        self.arm(verb, Fault::LoseReply)
    }

    fn hold_back(&self, verb: Verb, by: Duration) -> Hook {
        self.arm(verb, Fault::HoldBack(by))
    }

    fn repeat(&self, verb: Verb, after: Duration) -> Hook {
        if verb == Verb::Enter {
            return NotApplicable::new(
                "a request travels once, on one TCP connection, and the driver sends none again",
            );
        }
        self.arm(verb, Fault::Repeat(after))
    }

    fn expire_holder(&self, lock: &str) -> Hook {
        self.expire(lock, |place| place == 0);
        Ok(())
    }

    fn expire_waiters(&self, lock: &str) -> Hook {
        self.expire(lock, |place| place > 0);
        Ok(())
    }

    fn delete_holder(&self, lock: &str) -> Hook {
        let (mut client, line) = self.line(lock);
        client.delete(line.first().expect("somebody holds the lock")).expect("the node can be deleted");
        Ok(())
    }

    fn restart(&self) -> Hook {
        self.with_server(ZooKeeper::restart).expect("the server starts again");
        Ok(())
    }

    fn wipe(&self) -> Hook {
        self.with_server(|server| {
            server.restart_empty().expect("the server starts again");
            make(server, &self.chroot);
        });
        Ok(())
    }
}
