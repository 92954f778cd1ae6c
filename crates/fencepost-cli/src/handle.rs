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
        remove(&self.path);
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
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let session = absolute("XDG_RUNTIME_DIR");
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let root = nix::unistd::geteuid().is_root().then(|| PathBuf::from("/run"));
    choose(&[session, root], state, &env::temp_dir())
}

/// The first of `places` that has a folder of our own, or can get one. In the directory that all share anybody could have
/// made it before us, to keep us from locking: the last resort is a fresh one, whose name nobody knows before.
fn choose(places: &[Option<PathBuf>], state: Option<PathBuf>, shared: &Path) -> io::Result<PathBuf> {
    let make = |state: PathBuf| {
        // Ours to make, unlike the others. If it cannot be made the folder in it shows that.
        let _ = fs::DirBuilder::new().mode(0o700).recursive(true).create(&state);
        state
    };
    let places = places.iter().flatten().cloned().chain(state.into_iter().map(make));
    if let Some(folder) = places.map(|place| place.join("fencepost")).find_map(|folder| usable(folder).ok()) {
        return Ok(folder);
    }
    let fresh = nix::unistd::mkdtemp(&shared.join(format!("{FRESH}{}", "X".repeat(6))));
    fresh.map_err(io::Error::from).map_err(|error| {
        let text = format!("no folder for handles can be made: {error}: path={}", shared.display());
        io::Error::new(error.kind(), text)
    })
}

/// How the name of a folder begins that was made for one handle.
const FRESH: &str = "fencepost-handle-";

/// Removes a handle, and the folder that was made for it alone.
pub(crate) fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let folder = path
        .parent()
        .filter(|folder| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FRESH)));
    if let Some(folder) = folder {
        let _ = fs::remove_dir(folder);
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_can_take_the_folder_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let [session, state, shared] =
            ["session", "home/state", "shared"].map(|name| directory.path().join(name));
        let places = [Some(session.clone()), None];
        fs::create_dir(&shared).unwrap();
        // A file is in the way in the first, so that no folder can be made.
        fs::create_dir(&session).unwrap();
        fs::write(session.join("fencepost"), "").unwrap();
        let chosen = choose(&places, Some(state.clone()), &shared).unwrap();
        assert_eq!(chosen, state.join("fencepost"));
        assert_eq!(fs::metadata(&chosen).unwrap().mode() & 0o777, 0o700);
        // Others may write there.
        fs::set_permissions(&chosen, fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(shared.join(format!("fencepost-{}", nix::unistd::geteuid()))).unwrap();
        let fresh = choose(&places, Some(state.clone()), &shared).unwrap();
        assert_eq!((fresh.parent(), fs::metadata(&fresh).unwrap().mode() & 0o777), (Some(&*shared), 0o700));
        assert_ne!(fresh, choose(&places, Some(state.clone()), &shared).unwrap());
        let handle = fresh.join("1-2");
        fs::write(&handle, "").unwrap();
        remove(&handle);
        assert!(!fresh.exists());
    }
}
