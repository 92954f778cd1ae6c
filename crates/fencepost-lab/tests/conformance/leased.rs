//! The leased test backend under the suite: every fault that the suite knows can be asked of it.

use std::{sync::Arc, time::Duration};

use fencepost::{
    Error,
    conformance::{Harness, HolderProcess, Hook, Path, Verb},
    driver::{Driver, Fut},
};
use fencepost_lab::leased::{Control, Fault, Kind, Server, Terms, connect};

use crate::holder::{Holder, host};

struct Leased {
    server: Server,
    terms: Terms,
}

pub(crate) fn fresh(terms: Terms) -> Result<Box<dyn Harness>, String> {
    let server = Server::start().map_err(|error| format!("no test server: {error}"))?;
    Ok(Box::new(Leased { server, terms }))
}

impl Leased {
    fn control(&self, control: Control) -> Hook {
        self.server.remote().send(control).expect("the test server does as it is told");
        Ok(())
    }

    fn arm(&self, verb: Verb, fault: Fault) -> Hook {
        let kind = match verb {
            Verb::Enter => Kind::Enter,
            Verb::Renew => Kind::Renew,
            Verb::Leave => Kind::Leave,
        };
        self.control(Control::Arm(kind, fault))
    }
}

impl Harness for Leased {
    fn connect(&self, path: Path) -> Fut<'_, Result<Arc<dyn Driver>, Error>> {
        let mut url = self.server.url(self.terms);
        if path == Path::Subject {
            url += "&path=subject";
        }
        Box::pin(async move { connect(&url, host()).await })
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(900)
    }

    fn hold_elsewhere(&self, lock: &str, ttl: Duration) -> Hook<Box<dyn HolderProcess>> {
        Ok(Holder::start(&self.server.url(self.terms), lock, ttl))
    }

    fn freeze(&self) -> Hook {
        self.control(Control::Freeze)
    }

    fn thaw(&self) -> Hook {
        self.control(Control::Thaw)
    }

    fn cut(&self) -> Hook {
        self.control(Control::Cut)
    }

    fn heal(&self) -> Hook {
        self.control(Control::Heal)
    }

    fn lose_reply(&self, verb: Verb) -> Hook {
        self.arm(verb, Fault::DropReply)
    }

    fn hold_back(&self, verb: Verb, by: Duration) -> Hook {
        self.arm(verb, Fault::Delay(by))
    }

    fn repeat(&self, verb: Verb, after: Duration) -> Hook {
        self.arm(verb, Fault::Repeat(after))
    }

    fn expire_holder(&self, lock: &str) -> Hook {
        self.control(Control::ExpireHolder(lock.to_owned()))
    }

    fn expire_waiters(&self, lock: &str) -> Hook {
        self.control(Control::ExpireWaiters(lock.to_owned()))
    }

    fn delete_holder(&self, lock: &str) -> Hook {
        self.control(Control::Delete(lock.to_owned()))
    }

    fn restart(&self) -> Hook {
        self.control(Control::Restart)
    }

    fn wipe(&self) -> Hook {
        self.control(Control::Wipe)
    }
}
