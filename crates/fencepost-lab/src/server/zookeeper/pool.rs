//! Servers that are used one after the other: one takes a second of two processors to start.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{OPEN, Options, ZooKeeper};

static IDLE: Mutex<Vec<ZooKeeper>> = Mutex::new(Vec::new());
static USES: AtomicU64 = AtomicU64::new(1);

/// A plain server that nobody else uses, with a chroot that nobody has used. It is handed on when dropped.
#[derive(Debug)]
pub struct Pooled {
    /// `None` while it is handed on.
    server: Option<ZooKeeper>,
    chroot: String,
}

impl Pooled {
    /// Takes a server that is idle, or starts one.
    ///
    /// # Errors
    ///
    /// When one does not start.
    pub fn take() -> io::Result<Self> {
        let idle = idle().pop();
        let server = match idle {
            Some(server) => server,
            None => ZooKeeper::start(Options::default())?,
        };
        let chroot = format!("/use{}", USES.fetch_add(1, Ordering::Relaxed));
        let pooled = Self { server: Some(server), chroot };
        pooled.client()?.create(&pooled.chroot, b"", OPEN, 0)?;
        Ok(pooled)
    }

    /// Ends the servers that are idle, with their files. Call it at the end: nothing else would remove the files.
    pub fn finish() {
        idle().clear();
    }

    /// A URL with the chroot.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}{}", (**self).url(), self.chroot)
    }

    /// The chroot.
    #[must_use]
    pub fn chroot(&self) -> &str {
        &self.chroot
    }

    /// As [`ZooKeeper::restart_empty`], with a new chroot of the same name.
    ///
    /// # Errors
    ///
    /// When it does not get ready.
    pub fn wipe(&mut self) -> io::Result<()> {
        self.restart_empty()?;
        self.client()?.create(&self.chroot, b"", OPEN, 0).map(drop)
    }
}

fn idle() -> MutexGuard<'static, Vec<ZooKeeper>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Pooled {
    type Target = ZooKeeper;

    fn deref(&self) -> &ZooKeeper {
        self.server.as_ref().expect("it is handed on at the end")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut ZooKeeper {
        self.server.as_mut().expect("it is handed on at the end")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // One that was killed or does not go on is of no use to others.
        if let Some(mut server) = self.server.take().filter(|server| server.process.is_some())
            && server.resume().is_ok()
        {
            idle().push(server);
        }
    }
}
