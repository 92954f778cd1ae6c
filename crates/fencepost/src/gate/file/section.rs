//! What is done while the fence file is locked.
//!
//! Invariants:
//! 1. Whoever is inside holds a flock on the fence file that is at its path: a new fence file is locked before it is renamed
//!    there, and who gets the lock of an old one looks again.
//! 2. The fence file is replaced whole, flushed, and its directory flushed, before the data is renamed.
//! 3. There is one draft per file, written only inside: what a crash left of it is removed by the next one.

use std::{
    fs::File,
    io::{self, Read, Write},
    thread,
    time::Duration,
};

use rustix::{
    fd::OwnedFd,
    fs::{
        self, AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, StatxAttributes, StatxFlags, Uid,
    },
    io::Errno,
    process::geteuid,
};

use super::{
    super::{
        mark::{Decision, Mark},
        pass::Pass,
        refusal::unknown_outcome,
    },
    FileGate, fault,
};
use crate::{
    error::{Error, ErrorKind},
    file_system,
};

/// The longest pause between two looks at a lock that somebody else has. Short, since a holder that writes without a pause
/// leaves only moments between two of its writes.
const PAUSE: Duration = Duration::from_millis(1);

const PRIVATE: Mode = Mode::from_raw_mode(0o600);
/// Of a fence file that has not got its first mark yet. An empty one of another mode has lost its mark.
const NEWBORN: Mode = Mode::from_raw_mode(0o700);

/// The lock on one gate's fence file; it ends with the value.
pub(super) struct Section<'a> {
    gate: &'a FileGate,
    directory: OwnedFd,
    fence: File,
}

/// Which of the fence files that followed each other at one path this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edition {
    inode: u64,
    /// Its change time, since an inode is used again.
    changed: (i64, u64),
}

/// Reads the mark without the lock: a fence file is whole at any moment.
pub(super) fn look(gate: &FileGate) -> Result<Mark, Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = gate.directory.join(gate.fence_name());
    match fs::open(&path, flags, Mode::empty()) {
        Ok(fence) => {
            let is_there = gate.path().exists();
            parse(gate, &mut File::from(fence), is_there)
        }
        // Without the directory there would be no file either, and that is worth an error.
        Err(Errno::NOENT) if gate.directory.is_dir() => Ok(Mark::default()),
        Err(error) => {
            let owner = fs::lstat(&path).ok().map(|stat| stat.st_uid);
            Err(fault::of_fence(&path, error, owner))
        }
    }
}

/// The mark in a fence file; `is_there` says whether the data is.
fn parse(gate: &FileGate, fence: &mut File, is_there: bool) -> Result<Mark, Error> {
    let mut text = Vec::new();
    fence.read_to_end(&mut text).map_err(|error| fault::of(&gate.path(), error))?;
    let stat = fs::fstat(&*fence).map_err(|error| fault::of(&gate.path(), error.into()))?;
    // It is made empty, and gets its first mark by being replaced.
    let is_newborn = stat.st_mode & 0o777 == NEWBORN.as_raw_mode();
    if text.is_empty() && (is_newborn || !is_there) {
        Ok(Mark::default())
    } else {
        serde_json::from_slice(&text).map_err(|_| broken(gate))
    }
}

fn broken(gate: &FileGate) -> Error {
    let why = "the fence file is not one that Fencepost wrote: restore it, or rebind the gate with the highest token";
    Error::new(
        ErrorKind::Invalid,
        format!("{why}, path={}", gate.directory.join(gate.fence_name()).display()),
    )
}

impl<'a> Section<'a> {
    /// Locks the fence file, and makes it if it is missing.
    pub(super) fn enter(gate: &'a FileGate) -> Result<Self, Error> {
        let fault = |error: Errno| fault::of(&gate.path(), error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::open(&gate.directory, flags, Mode::empty()).map_err(fault)?;
        let magic = fs::fstatfs(&directory).map_err(fault)?.f_type as u32;
        if let Some(kind) = file_system::unfit(magic) {
            let why = format!("file locks cannot be trusted on {kind}: protect a file on a local disk");
            return Err(Error::new(ErrorKind::Unsupported, format!("{why}, path={}", gate.path().display())));
        }
        // Before a fence file is made, which would be in the way of the file's owner.
        let owner = data(gate, &directory)?.map(|data| (data.st_uid, data.st_gid));
        let user = geteuid().as_raw();
        if let Some((uid, gid)) = owner.filter(|(uid, _)| user != 0 && *uid != user) {
            return Err(fault::another_owner(&gate.path(), uid, gid));
        }
        if is_mount_point(gate, &directory) {
            return Err(fault::mount_point(&gate.path()));
        }
        let name = gate.fence_name();
        let fault = |error: Errno| fault::of(&gate.directory.join(&name), error.into());
        let refused = |error: Errno| {
            let stat = fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW).ok();
            fault::of_fence(&gate.directory.join(&name), error, stat.map(|stat| stat.st_uid))
        };
        let mut patience = gate.patience;
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let fence = fs::openat(&directory, &name, flags, NEWBORN).map_err(refused)?;
            lock(gate, &fence, &mut patience)?;
            let ours = fs::fstat(&fence).map_err(fault)?;
            match fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if (stat.st_dev, stat.st_ino) == (ours.st_dev, ours.st_ino) => {
                    let section = Self { gate, directory, fence: File::from(fence) };
                    section.trust(&stat)?;
                    return Ok(section);
                }
                // Who was inside has replaced it.
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(fault(error)),
            }
        }
    }

    /// In a directory that others may write to, the fence could be theirs.
    fn trust(&self, fence: &Stat) -> Result<(), Error> {
        let data = data(self.gate, &self.directory)?.map(|data| data.st_uid);
        // Who could put another one in its place anyway.
        let directory = fs::fstat(&self.directory).map_err(|error| self.fault(error.into()))?.st_uid;
        let trusted = [Some(0), Some(geteuid().as_raw()), Some(directory), data];
        let mut trusted = trusted.into_iter().flatten();
        if trusted.any(|uid| uid == fence.st_uid) {
            return Ok(());
        }
        let why = "the fence file belongs to another user, who could mislead this gate: remove it, or run as that user";
        let path = self.gate.directory.join(self.gate.fence_name());
        let text = format!("{why}, uid={} path={}", fence.st_uid, path.display());
        Err(Error::new(ErrorKind::Denied, text))
    }

    /// The mark as the last one inside left it. Asked once.
    pub(super) fn mark(&mut self) -> Result<Mark, Error> {
        let is_there = data(self.gate, &self.directory)?.is_some();
        parse(self.gate, &mut self.fence, is_there)
    }

    /// Judges a pass, and records what it raises. Afterwards the mark is durable, whoever wrote it; the answer is the fence
    /// file of which that is known. A flush takes milliseconds, so it is left out if `flushed` is that file.
    pub(super) fn admit(&mut self, pass: &Pass, flushed: Option<Edition>) -> Result<Edition, Error> {
        match self.mark()?.decide(pass).map_err(|refusal| refusal.at(self.gate.path().display()))? {
            Decision::Record(mark) => self.record(&mark)?,
            // Who wrote it may have been killed before its flush.
            Decision::Admit if flushed != Some(self.edition()?) => {
                self.flush().map_err(|error| self.fault(error))?
            }
            Decision::Admit => {}
        }
        self.edition()
    }

    fn edition(&self) -> Result<Edition, Error> {
        let stat = fs::fstat(&self.fence).map_err(|error| self.fault(error.into()))?;
        Ok(Edition { inode: stat.st_ino, changed: (stat.st_ctime, stat.st_ctime_nsec as u64) })
    }

    /// Whose the fence file shall be: the data's owner's; and as long as there is none, root leaves it to the directory's, who
    /// will write the data.
    fn owner(&self) -> Result<Option<(u32, u32)>, Error> {
        let stat = match data(self.gate, &self.directory)? {
            None if geteuid().is_root() => {
                Some(fs::fstat(&self.directory).map_err(|error| self.fault(error.into()))?)
            }
            data => data,
        };
        Ok(stat.map(|stat| (stat.st_uid, stat.st_gid)))
    }

    /// Puts this mark in the place of the one that is there.
    pub(super) fn record(&mut self, mark: &Mark) -> Result<(), Error> {
        let owner = self.owner()?;
        let mut text = serde_json::to_vec(mark).map_err(|error| self.fault(error.into()))?;
        text.push(b'\n');
        let next = self.draft(&text, PRIVATE, owner)?;
        fs::flock(&next, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| self.fault(error.into()))?;
        self.rename(&self.gate.fence_name())?;
        unlock(&std::mem::replace(&mut self.fence, next));
        self.flush().map_err(|error| self.fault(error))
    }

    /// The content of the file.
    pub(super) fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        if data(self.gate, &self.directory)?.is_none() {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&self.directory, &self.gate.name, flags, Mode::empty());
        let mut content = Vec::new();
        let read = file.map_err(io::Error::from).and_then(|file| File::from(file).read_to_end(&mut content));
        read.map_err(|error| self.fault(error))?;
        Ok(Some(content))
    }

    /// Puts this content in the place of the one that is there.
    pub(super) fn write(&self, content: &[u8]) -> Result<(), Error> {
        let before = data(self.gate, &self.directory)?;
        let mode = before.as_ref().map_or(PRIVATE, |data| Mode::from_raw_mode(data.st_mode & 0o7777));
        self.draft(content, mode, before.map(|data| (data.st_uid, data.st_gid)))?;
        self.rename(&self.gate.name)?;
        self.flush().map_err(|error| unknown_outcome(self.gate.path().display()).caused_by(error))
    }

    /// Writes and flushes what is to take a file's place.
    fn draft(&self, content: &[u8], mode: Mode, owner: Option<(u32, u32)>) -> Result<File, Error> {
        let name = self.gate.draft_name();
        match fs::unlinkat(&self.directory, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(self.fault(error.into())),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let draft =
            fs::openat(&self.directory, &name, flags, PRIVATE).map_err(|error| self.fault(error.into()))?;
        let mut draft = File::from(draft);
        self.fill(&mut draft, content, mode, owner).inspect_err(|_| self.discard())?;
        Ok(draft)
    }

    fn fill(
        &self,
        draft: &mut File,
        content: &[u8],
        mode: Mode,
        owner: Option<(u32, u32)>,
    ) -> Result<(), Error> {
        let stat = fs::fstat(&*draft).map_err(|error| self.fault(error.into()))?;
        if let Some((uid, gid)) = owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid)) {
            fs::fchown(&*draft, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                .map_err(|_| fault::another_owner(&self.gate.path(), uid, gid))?;
        }
        // After the owner, since a change of owner takes mode bits away; and whatever the umask says.
        fs::fchmod(&*draft, mode).map_err(|error| self.fault(error.into()))?;
        draft.write_all(content).and_then(|()| draft.sync_all()).map_err(|error| self.fault(error))
    }

    fn rename(&self, to: &str) -> Result<(), Error> {
        fs::renameat(&self.directory, self.gate.draft_name(), &self.directory, to).map_err(|error| {
            self.discard();
            self.fault(error.into())
        })
    }

    /// Removes a draft that came to nothing. If that fails the next write does it.
    fn discard(&self) {
        let _ = fs::unlinkat(&self.directory, self.gate.draft_name(), AtFlags::empty());
    }

    fn flush(&self) -> io::Result<()> {
        fs::fsync(&self.directory).map_err(io::Error::from)
    }

    fn fault(&self, error: io::Error) -> Error {
        fault::of(&self.gate.path(), error)
    }
}

/// The file that is protected, if it is there and is one.
fn data(gate: &FileGate, directory: &OwnedFd) -> Result<Option<Stat>, Error> {
    match fs::statat(directory, &gate.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(stat)),
            FileType::Symlink => Err(fault::of(&gate.path(), Errno::LOOP.into())),
            _ => Err(fault::not_a_file(&gate.path())),
        },
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(fault::of(&gate.path(), error.into())),
    }
}

/// Whether something is mounted at the file, which could then not be replaced. A kernel before 5.8 does not tell.
fn is_mount_point(gate: &FileGate, directory: &OwnedFd) -> bool {
    let stat = fs::statx(directory, &gate.name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Not by closing alone: a child that another thread of this process is just starting may have a copy of the descriptor.
impl Drop for Section<'_> {
    fn drop(&mut self) {
        unlock(&self.fence);
    }
}

fn unlock(fence: &File) {
    let _ = fs::flock(fence, FlockOperation::Unlock);
}

/// Waits for the lock by asking again, since flock(2) knows no limit. The pauses are counted instead of the time, which can
/// only make the wait longer.
fn lock(gate: &FileGate, fence: &OwnedFd, patience: &mut Duration) -> Result<(), Error> {
    let mut pause = Duration::from_micros(250);
    loop {
        match fs::flock(fence, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if !patience.is_zero() => {
                let now = pause.min(*patience);
                thread::sleep(now);
                *patience -= now;
                pause = (pause * 2).min(PAUSE);
            }
            Err(Errno::WOULDBLOCK) => return Err(fault::stuck(&gate.directory.join(gate.fence_name()))),
            Err(Errno::INTR) => {}
            Err(error) => return Err(fault::of(&gate.path(), error.into())),
        }
    }
}
