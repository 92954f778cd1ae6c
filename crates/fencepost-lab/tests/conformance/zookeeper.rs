//! ZooKeeper under the suite: real servers, a proxy for what is cut, and one that knows requests for single ones.
//!
//! A server takes a second of two processors to start, so one serves several cases, one after the other, each in a
//! chroot of its own.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencepost::{
    Error,
    conformance::{Harness, HolderProcess, Hook, NotApplicable, Path, Verb},
    driver::{self, Driver, Fut},
};
use fencepost_lab::{
    proxy::Proxy,
    server::zookeeper::{self, Client, Fault, Frames, Op, Pooled},
};

use crate::holder::{Holder, host};

struct Subject {
    server: Mutex<Pooled>,
    url: String,
    chroot: String,
    proxy: Proxy,
    frames: Frames,
}

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    zookeeper::installed().map_err(|missing| missing.to_string())?;
    let server = Pooled::take().map_err(|error| format!("no zookeeper: {error}"))?;
    let frames = Frames::start(server.addr()).map_err(|error| format!("no proxy: {error}"))?;
    let proxy = Proxy::start(frames.addr()).map_err(|error| format!("no proxy: {error}"))?;
    let (url, chroot) = (server.url(), server.chroot().to_owned());
    Ok(Box::new(Subject { server: Mutex::new(server), url, chroot, proxy, frames }))
}

impl Subject {
    fn server(&self) -> MutexGuard<'_, Pooled> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut client = self.server().client().expect("the server takes a client");
        let path = format!("{}/fencepost/locks/{}", self.chroot, lock.replace('/', "%2F"));
        let line = client.line(&path).expect("the line can be read");
        (client, line)
    }

    fn expire(&self, lock: &str, whose: impl Fn(usize) -> bool) {
        let (mut client, line) = self.line(lock);
        for (place, path) in line.iter().enumerate().filter(|(place, _)| whose(*place)) {
            // One session may have had several of them.
            let Ok(node) = client.read(path) else { continue };
            let addr = self.server().addr();
            Client::end_session(addr, node.owner).unwrap_or_else(|error| panic!("place {place}: {error}"));
        }
    }
}

impl Harness for Subject {
    fn connect(&self, path: Path) -> Fut<'_, Result<Arc<dyn Driver>, Error>> {
        let url = match path {
            Path::Sound => self.url.clone(),
            Path::Subject => format!("zk://{}{}", self.proxy.addr(), self.chroot),
        };
        Box::pin(async move { driver::connect(&url, host()).await })
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(900)
    }

    fn hold_elsewhere(&self, lock: &str, ttl: Duration) -> Hook<Box<dyn HolderProcess>> {
        Ok(Holder::start(&self.url, lock, ttl))
    }

    fn freeze(&self) -> Hook {
        self.server().pause().expect("the server can be stopped");
        Ok(())
    }

    fn thaw(&self) -> Hook {
        self.server().resume().expect("the server can go on");
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
        self.server().restart().expect("the server starts again");
        Ok(())
    }

    fn wipe(&self) -> Hook {
        self.server().wipe().expect("the server starts again");
        Ok(())
    }
}
