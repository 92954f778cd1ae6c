//! etcd under the suite: a real server, its own proxy for what is cut, and a faulty transport for single requests.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencepost::{
    Error,
    conformance::{Harness, HolderProcess, Hook, Path, Verb},
    driver::{self, Driver, Fut},
    etcd::{Client, Options},
};
use fencepost_lab::{
    faulty::{Fault, Faults, etcd::Faulty},
    proxy::Proxy,
    server::etcd::{self, Etcd},
};

use crate::holder::{Holder, host};

struct Subject {
    server: Mutex<Etcd>,
    url: String,
    proxy: Proxy,
    faults: Arc<Faults>,
}

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    etcd::installed().map_err(|missing| missing.to_string())?;
    let server = Etcd::start(etcd::Options::default()).map_err(|error| format!("no etcd: {error}"))?;
    let proxy = Proxy::start(server.addr(0)).map_err(|error| format!("no proxy: {error}"))?;
    Ok(Box::new(Subject { url: server.url(), server: Mutex::new(server), proxy, faults: Arc::default() }))
}

impl Subject {
    fn server(&self) -> MutexGuard<'_, Etcd> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm(&self, verb: Verb, fault: Fault) -> Hook {
        let verb = match verb {
            Verb::Enter => "enter",
            Verb::Renew => "renew",
            Verb::Leave => "leave",
        };
        self.faults.arm(verb, fault);
        Ok(())
    }

    /// Those who stand in a lock's line, with their leases.
    fn line(&self, lock: &str) -> Vec<(String, i64)> {
        self.server().keys(&format!("{}/", lock.replace('/', "%2F"))).expect("the server shows its keys")
    }

    fn revoke(&self, leases: impl Iterator<Item = i64>) {
        for lease in leases {
            self.server().revoke(lease).expect("the server does as it is told");
        }
    }
}

impl Harness for Subject {
    fn connect(&self, path: Path) -> Fut<'_, Result<Arc<dyn Driver>, Error>> {
        Box::pin(async move {
            match path {
                Path::Sound => driver::connect(&self.url, host()).await,
                Path::Subject => {
                    let options = Options::from_url(format!("etcd://{}", self.proxy.addr()).parse()?)?;
                    let client = Arc::new(Client::new(options.clone(), host()));
                    let faulty = Faulty::new(client, host(), self.faults.clone());
                    fencepost::etcd::driver(Arc::new(faulty), options, host()).await
                }
            }
        })
    }

    /// Leases are whole seconds here; of one second a busy machine misses too much.
    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn hold_elsewhere(&self, lock: &str, ttl: Duration) -> Hook<Box<dyn HolderProcess>> {
        Ok(Holder::start(&self.url, lock, ttl))
    }

    fn freeze(&self) -> Hook {
        self.server().pause(0).expect("the server can be stopped");
        Ok(())
    }

    fn thaw(&self) -> Hook {
        self.server().resume(0).expect("the server can go on");
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
        self.arm(verb, Fault::Repeat(after))
    }

    fn expire_holder(&self, lock: &str) -> Hook {
        self.revoke(self.line(lock).into_iter().map(|(_, lease)| lease).take(1));
        Ok(())
    }

    fn expire_waiters(&self, lock: &str) -> Hook {
        self.revoke(self.line(lock).into_iter().map(|(_, lease)| lease).skip(1));
        Ok(())
    }

    fn delete_holder(&self, lock: &str) -> Hook {
        let line = self.line(lock);
        let (first, _) = line.first().expect("somebody holds it");
        self.server().delete(first).expect("the server does as it is told");
        Ok(())
    }

    fn restart(&self) -> Hook {
        self.server().restart().expect("the server starts again");
        Ok(())
    }

    /// With the same flags: the hardest case, since the cluster's id is then the same.
    fn wipe(&self) -> Hook {
        self.server().restart_empty(true).expect("the server starts again");
        Ok(())
    }
}
