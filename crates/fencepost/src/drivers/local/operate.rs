//! What operators ask. Those who only look take no lock, write nothing and remove nothing.

use std::{any::Any, path::Path, sync::Arc, time::Duration};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, Dir, Mode, OFlags},
    io::{self, Errno},
};
use tokio::sync::Notify;

use super::{
    Local, names,
    place::{Entry, LOCK_FILE, listing, open_directory},
    room::with_room,
    root::{self, Trouble},
    ticket::{Seen, file_name},
    watch::{Wake, Watching},
};
use crate::{
    driver::{Fail, ForcedOut, Fut, Operator, Status},
    name::LockName,
};

/// How long a forced unlock tries to get the directory lock.
const FORCE_LIMIT: Duration = Duration::from_secs(1);

/// What was opened; `None` if it is not there.
fn present(dir: io::Result<OwnedFd>) -> Result<Option<OwnedFd>, Trouble> {
    match dir {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Local {
    /// The directory of a lock, without making it.
    fn directory(&self, name: &str) -> Result<Option<OwnedFd>, Trouble> {
        present(open_directory(&self.root.path().join(name)))
    }

    fn look(&self, lock: &LockName) -> Result<Status, Trouble> {
        let mut status = Status { lock: lock.clone(), holder: None, waiters: Vec::new() };
        let Some(dir) = self.directory(&names::directory(lock))? else { return Ok(status) };
        let mut numbers = listing(&dir)?;
        numbers.sort_unstable();
        for number in numbers {
            let name = file_name(number);
            let Some(seen) = Seen::open(dir.as_fd(), Path::new(&name), number)?.filter(Seen::is_locked)
            else {
                continue;
            };
            let record = seen.read();
            match record.holder() {
                Some(holder) if status.holder.is_none() => status.holder = Some(holder),
                _ => status.waiters.push(record.owner),
            }
        }
        Ok(status)
    }

    fn look_at_all(&self, prefix: &str) -> Result<Vec<Status>, Trouble> {
        let mut found = Vec::new();
        let Some(root) = present(root::open_directory(self.root.path()))? else { return Ok(found) };
        for entry in with_room(|| Dir::read_from(&root))? {
            let entry = entry?;
            let Some(lock) = entry.file_name().to_str().ok().and_then(|name| self.name_in(name)) else {
                continue;
            };
            if lock.as_str().starts_with(prefix) {
                let status = self.look(&lock)?;
                if status.holder.is_some() || !status.waiters.is_empty() {
                    found.push(status);
                }
            }
        }
        found.sort_by(|a, b| a.lock.cmp(&b.lock));
        Ok(found)
    }

    /// The lock whose directory this is; `None` if it is not one of ours.
    fn name_in(&self, directory: &str) -> Option<LockName> {
        let dir = self.directory(directory).ok()??;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = with_room(|| fs::openat(&dir, LOCK_FILE, flags, Mode::empty())).ok()?;
        let text = std::io::read_to_string(std::fs::File::from(file)).ok()?;
        let lock: LockName = text.lines().nth(2)?.parse().ok()?;
        (names::directory(&lock) == directory).then_some(lock)
    }

    /// Forces the holder out; `None` if the directory lock is busy.
    fn force(&self, lock: &LockName) -> Result<Option<ForcedOut>, Trouble> {
        let place = self.place(lock)?;
        let mut section = match place.enter()? {
            Entry::Open(section) => section,
            Entry::Busy { .. } => return Ok(None),
            Entry::Stale => {
                self.forget(lock);
                return Ok(None);
            }
        };
        let lowest = section.lowest(None)?;
        let holder = lowest.as_ref().and_then(|lowest| lowest.read().holder());
        // Those who wait keep their tickets; their tokens are minted later, and are higher.
        if let (Some(lowest), Some(_)) = (&lowest, &holder) {
            section.remove(lowest)?;
        }
        Ok(Some(ForcedOut { holder, token: section.mint(0)? }))
    }
}

impl Operator for Local {
    fn inspect<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<Status, Fail>> {
        Box::pin(async move { self.look(lock).map_err(|trouble| self.explain(trouble)) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Fut<'a, Result<Vec<Status>, Fail>> {
        Box::pin(async move { self.look_at_all(prefix).map_err(|trouble| self.explain(trouble)) })
    }

    fn force_unlock<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<ForcedOut, Fail>> {
        Box::pin(async move {
            let end = self.host.now() + FORCE_LIMIT;
            loop {
                match self.force(lock).map_err(|trouble| self.explain(trouble))? {
                    Some(out) => return Ok(out),
                    None if self.host.now() < end => {
                        self.host.sleep_until(self.host.now() + Duration::from_millis(5)).await;
                    }
                    None => {
                        let text = "a process is stopped while it changes this lock's line; resume or end it";
                        return Err(Fail::Unavailable(text.into()));
                    }
                }
            }
        })
    }

    /// A lock that nobody ever asked for has no directory to watch, and one is not made for those who only look.
    fn observe(&self, lock: &LockName, hint: Arc<Notify>) -> Option<Box<dyn Any + Send>> {
        let path = self.root.path().join(names::directory(lock));
        Watching::begin(&self.host, &path, Wake::Observer(hint)).map(|watching| Box::new(watching) as _)
    }
}
