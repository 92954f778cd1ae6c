//! Handles: a file of mode 0600 in which a supervisor or holder publishes how its lock stands, for `held` and `release`.

use std::{
    env, fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use fencepost::{Hold, State, Token};
use serde::{Deserialize, Serialize};

/// What a handle says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Handle {
    /// The process that keeps the lock.
    pub(crate) pid: i32,
    /// When that process started, in the kernel's ticks: a process id alone may name a stranger later.
    pub(crate) started: u64,
    pub(crate) lock: String,
    pub(crate) token: Token,
    /// The backend, without credentials.
    pub(crate) backend: String,
    pub(crate) state: Standing,
    /// On the suspend-aware clock; absent where nothing expires.
    pub(crate) deadline_ns: Option<u64>,
}

/// How the lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Standing {
    Held,
    Lost,
    Released,
    /// The release was not confirmed.
    Unknown,
}

/// A handle's file. Whoever made it removes it.
pub(crate) struct HandleFile {
    path: PathBuf,
    handle: Handle,
}

impl HandleFile {
    /// Publishes a lock that was just taken.
    pub(crate) fn publish(guard: &fencepost::Guard, backend: &str) -> io::Result<Self> {
        let pid = std::process::id() as i32;
        let handle = Handle {
            pid,
            started: started(pid)?,
            lock: guard.lock().to_string(),
            token: guard.token(),
            backend: backend.into(),
            state: Standing::Held,
            deadline_ns: guard.deadline().map(fencepost::Moment::as_nanos),
        };
        let path = folder()?.join(format!("{pid}-{}", guard.token()));
        let file = Self { path, handle };
        file.write()?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Publishes a change of the hold. A renewal that cannot be written leaves an earlier deadline there, which is safe; a
    /// loss that cannot takes the file away, which says the same.
    pub(crate) fn follow(&mut self, hold: Hold) {
        self.handle.deadline_ns = hold.deadline.map(fencepost::Moment::as_nanos);
        if matches!(hold.state, State::Lost(_)) {
            self.handle.state = Standing::Lost;
        }
        self.replace();
    }

    /// Publishes that it ends, or how it ended.
    pub(crate) fn end(&mut self, state: Standing) {
        self.handle.state = state;
        self.replace();
    }

    fn replace(&self) {
        if self.write().is_err() && self.handle.state != Standing::Held {
            self.remove();
        }
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Replaces the file as a whole: a reader sees the old state or the new one.
    fn write(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&self.handle)?)?;
        fs::rename(&new, &self.path)
    }
}

impl Handle {
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let not_one = |_| io::Error::new(io::ErrorKind::InvalidData, "it is something else");
        serde_json::from_slice(&fs::read(path)?).map_err(not_one)
    }
}

/// When a process started, in ticks since boot (field 22 of `/proc/PID/stat`).
pub(crate) fn started(pid: i32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the command's name in parentheses, which may contain anything.
    let field = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(19)?.parse().ok());
    field.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The folder for handles: the session's, or else one of our own with nobody else in it. The session's may be that of
/// another user, after `su`, or gone, in a container.
fn folder() -> io::Result<PathBuf> {
    let session = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let uid = nix::unistd::geteuid();
    let own = if uid.is_root() {
        PathBuf::from("/run/fencepost")
    } else {
        env::temp_dir().join(format!("fencepost-{uid}"))
    };
    let session = session.and_then(|session| usable(session.join("fencepost")).ok());
    session.map_or_else(|| usable(own), Ok)
}

/// The folder, made if it is missing, unless others can change what is in it.
fn usable(folder: PathBuf) -> io::Result<PathBuf> {
    let path = folder.display();
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let text = format!("no folder for handles can be made: {error}: path={path}");
            return Err(io::Error::new(error.kind(), text));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        let text = format!(
            "the folder for handles must be yours alone, make it mode 0700 or remove it: path={path}"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(folder)
}
