//! The one inotify instance of this process: the kernel allows 128 for each user.
//!
//! Its descriptor is read by one task of the host, started when the first claim has to wait or to be guarded. Claims are held
//! weakly. A lost event never stalls a claim: every wait is bounded, and an overflow of the kernel's queue is taken as
//! an event for everything.
//!
//! The table is never locked while a claim is called or dropped: claims lock their seats and then the table.

use std::{
    collections::HashMap,
    mem::MaybeUninit,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
};

use crate::driver::{Claim, Host};

/// Whom a change concerns.
pub(super) enum Wake {
    /// A waiting claim: the ticket before it changed.
    Waiter(Weak<Claim>),
    /// A holder: its own ticket changed.
    Holder(Weak<Claim>),
    /// Somebody who follows a lock: its directory changed.
    Observer(Arc<Notify>),
}

impl Wake {
    fn events(&self) -> WatchFlags {
        match self {
            // An unlink shows as a changed attribute while somebody has the file open; a death as a close.
            Self::Waiter(_) | Self::Holder(_) => {
                WatchFlags::ATTRIB | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF
            }
            Self::Observer(_) => {
                WatchFlags::CREATE
                    | WatchFlags::DELETE
                    | WatchFlags::MODIFY
                    | WatchFlags::CLOSE_WRITE
                    | WatchFlags::DELETE_SELF
                    | WatchFlags::ONLYDIR
            }
        }
    }
}

/// One interest in one file; ends when dropped.
pub(super) struct Watching {
    wd: i32,
    interest: Arc<Interested>,
}

struct Interested {
    wake: Wake,
    was_closed: AtomicBool,
}

impl Watching {
    /// Begins to watch the file at `path`. `None` if the kernel gives no instance or no watch, or the file is gone.
    pub(super) fn begin(host: &Arc<dyn Host>, path: &Path, wake: Wake) -> Option<Self> {
        let watch = Watch::get(host)?;
        let events = wake.events();
        let interest = Arc::new(Interested { wake, was_closed: AtomicBool::new(false) });
        // Under the table's lock, so that no event is read before its reader can be found.
        let mut table = watch.table();
        let wd = inotify::add_watch(&watch.inotify, path, events).ok()?;
        table.entry(wd).or_default().push(interest.clone());
        Some(Self { wd, interest })
    }

    /// Whether a writable descriptor of the file was closed since the last call.
    pub(super) fn was_closed(&self) -> bool {
        self.interest.was_closed.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Some(watch) = WATCH.get() else { return };
        let mut table = watch.table();
        let Some(interests) = table.get_mut(&self.wd) else { return };
        interests.retain(|other| !Arc::ptr_eq(other, &self.interest));
        if interests.is_empty() {
            table.remove(&self.wd);
            // The kernel may have ended the watch with the file, and then says so here.
            let _ = inotify::remove_watch(&watch.inotify, self.wd);
        }
    }
}

static WATCH: OnceLock<Watch> = OnceLock::new();

struct Watch {
    inotify: OwnedFd,
    /// By watch descriptor, of which the kernel gives one for each file.
    table: Mutex<HashMap<i32, Vec<Arc<Interested>>>>,
    is_broken: AtomicBool,
}

impl Watch {
    fn get(host: &Arc<dyn Host>) -> Option<&'static Self> {
        let watch = match WATCH.get() {
            Some(watch) => watch,
            None => {
                let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
                let new = Self { inotify, table: Mutex::default(), is_broken: AtomicBool::new(false) };
                if WATCH.set(new).is_ok() {
                    host.spawn(Box::pin(read(WATCH.get()?)));
                }
                WATCH.get()?
            }
        };
        (!watch.is_broken.load(Ordering::Relaxed)).then_some(watch)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<i32, Vec<Arc<Interested>>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those whom an event concerns.
    fn tell(&self, wd: i32, events: ReadFlags) {
        let told: Vec<_> = {
            let mut table = self.table();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                table.values().flatten().cloned().collect()
            } else if events.contains(ReadFlags::IGNORED) {
                // The file is gone, and with it the kernel's watch.
                table.remove(&wd).unwrap_or_default()
            } else {
                table.get(&wd).cloned().unwrap_or_default()
            }
        };
        let closed = events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::QUEUE_OVERFLOW);
        for interest in told {
            if closed {
                interest.was_closed.store(true, Ordering::Relaxed);
            }
            match &interest.wake {
                Wake::Waiter(claim) => claim.upgrade().iter().for_each(Claim::poke),
                Wake::Holder(claim) => claim.upgrade().iter().for_each(super::verify),
                Wake::Observer(hint) => hint.notify_one(),
            }
        }
    }

    /// Reads all events that there are; answers why there are no more.
    fn drain(&self) -> Errno {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = Reader::new(self.inotify.as_fd(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => self.tell(event.wd(), event.events()),
                Err(error) => return error,
            }
        }
    }
}

/// The task that reads the events.
async fn read(watch: &'static Watch) {
    if let Ok(fd) = readable(watch.inotify.as_fd()) {
        while let Ok(mut ready) = fd.readable().await {
            match watch.drain() {
                Errno::WOULDBLOCK => ready.clear_ready(),
                Errno::INTR => {}
                _ => break,
            }
        }
    }
    // Without a reader, claims look again from time to time.
    watch.is_broken.store(true, Ordering::Relaxed);
}

#[allow(deprecated, reason = "unsound for a descriptor that may be closed; this one is borrowed for ever")]
fn readable(fd: BorrowedFd<'static>) -> std::io::Result<AsyncFd<BorrowedFd<'static>>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn was_told(hint: &Notify) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(hint.notified()).poll(&mut context).is_ready()
    }

    #[test]
    fn an_overflow_is_told_to_all_and_an_event_to_those_it_concerns() {
        let host: Arc<dyn Host> = Arc::new(crate::SystemHost);
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let hints = [Arc::new(Notify::new()), Arc::new(Notify::new())];
        let watch =
            |n: usize| Watching::begin(&host, dirs[n].path(), Wake::Observer(hints[n].clone())).unwrap();
        let (first, _second) = (watch(0), watch(1));
        let all = Watch::get(&host).unwrap();
        all.tell(first.wd, ReadFlags::MODIFY);
        assert_eq!(hints.each_ref().map(|hint| was_told(hint)), [true, false]);
        all.tell(-1, ReadFlags::QUEUE_OVERFLOW);
        assert_eq!(hints.each_ref().map(|hint| was_told(hint)), [true, true]);
    }

    #[test]
    fn a_watch_ends_with_the_last_who_is_interested_in_its_file() {
        let host: Arc<dyn Host> = Arc::new(crate::SystemHost);
        let (dir, hint) = (tempfile::tempdir().unwrap(), Arc::new(Notify::new()));
        let begin = || Watching::begin(&host, dir.path(), Wake::Observer(hint.clone())).unwrap();
        let (one, two) = (begin(), begin());
        assert_eq!(one.wd, two.wd);
        let (wd, all) = (one.wd, Watch::get(&host).unwrap());
        drop(one);
        assert_eq!(all.table().get(&wd).map(Vec::len), Some(1));
        drop(two);
        assert!(!all.table().contains_key(&wd));
        assert_eq!(
            inotify::remove_watch(&all.inotify, wd),
            Err(Errno::INVAL),
            "the kernel's watch is gone too"
        );
    }
}
