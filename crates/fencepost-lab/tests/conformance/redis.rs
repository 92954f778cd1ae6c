//! Redis under the suite: a real server, its own proxy for what is cut, and a faulty transport for single requests.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use fencepost::{
    Error, Locker, blocking,
    conformance::{Harness, HolderProcess, Hook, Path, Verb},
    driver::{self, Driver, Fut},
    redis::{Client, Options},
};
use fencepost_lab::{
    faulty::{Fault, Faults, Faulty},
    proxy::Proxy,
    server::redis::{self, Persistence, Redis},
};

use crate::holder::{Holder, host};

struct Subject {
    server: Mutex<Redis>,
    url: String,
    proxy: Proxy,
    faults: Arc<Faults>,
}

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    redis::installed().map_err(|missing| missing.to_string())?;
    let options = redis::Options { persistence: Persistence::Always, ..redis::Options::default() };
    let server = Redis::start(options).map_err(|error| format!("no redis-server: {error}"))?;
    let proxy = Proxy::start(server.addr()).map_err(|error| format!("no proxy: {error}"))?;
    let url = server.url();
    blocking::wait(prime(&url)).map_err(|error| format!("no lock for a start: {error}"))?;
    Ok(Box::new(Subject { url, server: Mutex::new(server), proxy, faults: Arc::default() }))
}

/// Lets the server see the scripts: a fault is to hit a request that is carried out, not one that is asked for the text.
async fn prime(url: &str) -> Result<(), Error> {
    let ttl = Duration::from_secs(1);
    let guard = Locker::connect(url).await?.lock("prime").ttl(ttl).acquire().await?;
    host().sleep_until(guard.now() + ttl / 2).await;
    guard.release().await
}

fn options_of(url: &str) -> Options {
    Options::from_url(url.parse().expect("a url")).expect("options")
}

impl Subject {
    fn server(&self) -> MutexGuard<'_, Redis> {
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

    fn run(&self, words: &[&str]) {
        self.server().command::<i64>(words).expect("the server does as it is told");
    }
}

impl Harness for Subject {
    fn connect(&self, path: Path) -> Fut<'_, Result<Arc<dyn Driver>, Error>> {
        Box::pin(async move {
            match path {
                Path::Sound => driver::connect(&self.url, host()).await,
                Path::Subject => {
                    let options = options_of(&format!("redis://{}", self.proxy.addr()));
                    let client = Arc::new(Client::new(options.clone(), host()));
                    let faulty = Faulty::new(client, host(), self.faults.clone());
                    fencepost::redis::driver(Arc::new(faulty), options, host()).await
                }
            }
        })
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
        self.arm(verb, Fault::Repeat(after))
    }

    fn expire_holder(&self, lock: &str) -> Hook {
        self.run(&["PEXPIRE", &format!("lock:{lock}"), "1"]);
        // Expired for everybody at the latest when the clock has moved on.
        thread::sleep(Duration::from_millis(3));
        Ok(())
    }

    fn expire_waiters(&self, lock: &str) -> Hook {
        let key = |end: &str| format!("{{lock:{lock}}}:{end}");
        self.run(&["DEL", &key("queue"), &key("aside"), &key("beat"), &key("who"), &key("offer")]);
        Ok(())
    }

    fn delete_holder(&self, lock: &str) -> Hook {
        self.run(&["DEL", &format!("lock:{lock}")]);
        Ok(())
    }

    fn restart(&self) -> Hook {
        self.server().restart().expect("the server starts again");
        Ok(())
    }

    fn wipe(&self) -> Hook {
        self.server().restart_empty().expect("the server starts again");
        Ok(())
    }
}
