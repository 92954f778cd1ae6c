//! The embedded engine under the suite, in a directory of its own. There is no server to break and nothing expires.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use fencepost::{
    Error,
    conformance::{Harness, HolderProcess, Hook, NotApplicable, Path, Verb},
    driver::{self, Driver, Fut},
};
use tempfile::TempDir;

use crate::holder::{Holder, host};

struct Local {
    root: TempDir,
}

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    let root = TempDir::new().map_err(|error| format!("no directory: {error}"))?;
    Ok(Box::new(Local { root }))
}

fn no_server<T>() -> Hook<T> {
    NotApplicable::new("there is no server and no connection")
}

impl Local {
    fn url(&self) -> String {
        format!("local:{}", self.root.path().display())
    }

    /// The tickets of a lock, the holder's first.
    fn tickets(&self, lock: &str) -> Vec<PathBuf> {
        let dir = self.root.path().join(lock.replace('/', "%2F"));
        let entries = fs::read_dir(dir).expect("the lock's directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut tickets: Vec<(u64, PathBuf)> =
            paths.filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path))).collect();
        tickets.sort();
        tickets.into_iter().map(|(_, path)| path).collect()
    }
}

impl Harness for Local {
    fn connect(&self, _path: Path) -> Fut<'_, Result<Arc<dyn Driver>, Error>> {
        Box::pin(async { driver::connect(&self.url(), host()).await })
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(900)
    }

    fn hold_elsewhere(&self, lock: &str, ttl: Duration) -> Hook<Box<dyn HolderProcess>> {
        Ok(Holder::start(&self.url(), lock, ttl))
    }

    fn freeze(&self) -> Hook {
        no_server()
    }

    fn thaw(&self) -> Hook {
        no_server()
    }

    fn cut(&self) -> Hook {
        no_server()
    }

    fn heal(&self) -> Hook {
        no_server()
    }

    fn lose_reply(&self, _verb: Verb) -> Hook {
        no_server()
    }

    fn hold_back(&self, _verb: Verb, _by: Duration) -> Hook {
        no_server()
    }

    fn repeat(&self, _verb: Verb, _after: Duration) -> Hook {
        no_server()
    }

    fn expire_holder(&self, _lock: &str) -> Hook {
        NotApplicable::new("nothing expires on this backend")
    }

    /// Nothing expires, but whoever cleans up by hand removes tickets just so.
    fn expire_waiters(&self, lock: &str) -> Hook {
        for ticket in self.tickets(lock).iter().skip(1) {
            fs::remove_file(ticket).expect("a ticket can be removed");
        }
        Ok(())
    }

    fn delete_holder(&self, lock: &str) -> Hook {
        fs::remove_file(&self.tickets(lock)[0]).expect("the holder's ticket can be removed");
        Ok(())
    }

    fn restart(&self) -> Hook {
        no_server()
    }

    fn wipe(&self) -> Hook {
        fs::remove_dir_all(self.root.path()).expect("the root can be removed");
        Ok(())
    }
}
