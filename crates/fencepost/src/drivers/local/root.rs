//! The root: the directory of all locks. Whether it can be trusted, and what is written in it once per boot.
//!
//! A root belongs to one user (mode 0700; nobody else may write) or to a group (`chmod 2770`: group-writable, and the
//! group is passed on to what is made in it). The members of a group can hinder each other, but lead nobody out of the
//! root: no link in it is followed. The root user shares only what belongs to uid 0. Root and a user have different default roots, and do not exclude each
//! other.
//!
//! Its own file keeps the lineage and the floor. The counters of the locks survive a crash of any process, but not
//! a power loss or a deletion; the floor does, and so that no token of a lineage is ever given twice:
//!
//! 1. A number is given only if it is below the floor + [`BOOT_STEP`]. Once per boot the floor is raised by as much, or
//!    to the wall clock if that is ahead, and so above every number that was given before.
//! 2. A number is given only if it is not above the pace: the floor, and one more for each microsecond since it was set.
//!    A lock file that is new, or was emptied, starts at the pace, and so not below any number that a lost one gave.
//! 3. For a number that breaks one of these, as a caller's own floor may, the root's floor is first raised: durably, under
//!    the root's lock, and far enough that the next ones need no other raise.
//! 4. The floor and the pace never fall. A root that was deleted is made again by those who use it, above what they know.
//!
//! Raising the floor takes the only fsyncs: at the first connect of a boot, about once in 71 minutes while new lock
//! names appear, and for a caller's floor that is ahead of the pace.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, AtFlags, FlockOperation, Mode, OFlags},
    io::{self, Errno},
    process::geteuid,
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

use super::{
    room::with_room,
    ticket::{set_mode, write_whole},
};
use crate::{driver::Fail, file_system, token::Lineage};

const FILE: &str = ".root";
const LOCK_FILE: &str = ".root.lock";
const DRAFT: &str = ".root.new";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How far above the floor numbers are given before it is raised.
const BOOT_STEP: u64 = 1 << 32;

/// A caller's floor may not take the root's floor above this: the other locks of the root need tokens too.
const MAX_LEAP: u64 = 1 << 63;

/// What went wrong, before it is put into words.
#[derive(Debug)]
pub(super) enum Trouble {
    Io(Errno),
    Refused(Fail),
    NoMoreTokens,
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::Io(errno)
    }
}

impl Trouble {
    pub(super) fn explain(self, root: &Path) -> Fail {
        let root = root.display();
        match self {
            Self::Refused(fail) => fail,
            Self::NoMoreTokens => Fail::Invalid(
                "the lock has no token above its floor; give a lower floor, or use another lock name".into(),
            ),
            Self::Io(Errno::MFILE | Errno::NFILE) => Fail::Unavailable(
                "too many open files, and each claim keeps one; raise the limit with ulimit -n".into(),
            ),
            Self::Io(Errno::NOSPC | Errno::DQUOT) => {
                Fail::Unavailable(format!("the disk that holds {root} is full; free some space"))
            }
            Self::Io(Errno::ACCESS | Errno::PERM) => {
                let uid = geteuid();
                Fail::Denied(format!(
                    "uid {uid} may not write in {root}; run as its owner or use another root"
                ))
            }
            Self::Io(Errno::ROFS) => {
                Fail::Denied(format!("{root} is on a read-only file system; use another root, local:/path"))
            }
            Self::Io(Errno::NOTDIR | Errno::EXIST) => {
                Fail::Invalid(format!("{root} is not a directory; use another root, local:/path"))
            }
            Self::Io(errno) => {
                Fail::Unavailable(format!("the system refused an operation in {root}: {errno}"))
            }
        }
    }
}

/// The content of the root's own file.
#[derive(Serialize, Deserialize)]
struct Record {
    lineage: Lineage,
    boot: String,
    floor: u64,
    /// When the floor was set, in microseconds since the boot.
    #[serde(default)]
    at: u64,
}

impl Record {
    /// Where a lock without a counter starts.
    fn pace(&self, now: u64) -> u64 {
        self.floor.saturating_add(now.saturating_sub(self.at))
    }

    /// Whether a number may be given (invariants 1 and 2).
    fn covers(&self, number: u64, now: u64) -> bool {
        number < self.floor.saturating_add(BOOT_STEP) && number <= self.pace(now)
    }

    /// Whether all that `other` says still holds (invariant 4).
    fn continues(&self, other: &Self, now: u64) -> bool {
        self.boot == other.boot && self.floor >= other.floor && self.pace(now) >= other.pace(now)
    }
}

pub(super) struct Root {
    path: PathBuf,
    lineage: Lineage,
    /// As this process read it last; others may have raised the floor since.
    known: Mutex<Record>,
    is_shared: bool,
}

impl Root {
    /// Opens the root, and makes it with this lineage if it is missing.
    pub(super) fn open(path: &Path, new_lineage: Lineage) -> Result<Self, Trouble> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let dir = open_directory(path)?;
        let stat = fs::fstat(&dir)?;
        let facts = Facts {
            owner: stat.st_uid,
            mode: stat.st_mode & 0o7777,
            file_system: fs::fstatfs(&dir)?.f_type as u32,
        };
        if let Some(fail) = facts.refusal(path, geteuid().as_raw()) {
            return Err(Trouble::Refused(fail));
        }
        let is_shared = facts.is_shared();
        let record = this_boot(path, &dir, new_lineage, file_mode(is_shared))?;
        Ok(Self {
            path: path.to_owned(),
            lineage: record.lineage.clone(),
            known: Mutex::new(record),
            is_shared,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn known(&self) -> MutexGuard<'_, Record> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every token of this boot is above it.
    pub(super) fn floor(&self) -> u64 {
        self.known().floor
    }

    /// Where a lock starts whose counter is missing: not below any number that it gave.
    pub(super) fn start(&self) -> Result<u64, Trouble> {
        self.confirm()?;
        Ok(self.known().pace(uptime_micros()))
    }

    /// Makes sure that `number` may be given. Free of system calls, unless the floor must be raised.
    pub(super) fn cover(&self, number: u64) -> Result<(), Trouble> {
        let mut known = self.known();
        if known.covers(number, uptime_micros()) { Ok(()) } else { self.raise(&mut known, number) }
    }

    /// Takes the record from the root's file, after the floor was raised in it if it did not cover `number`.
    fn raise(&self, known: &mut Record, number: u64) -> Result<(), Trouble> {
        let dir = open_directory(&self.path)?;
        let _lock = lock(&self.path, &dir, self.file_mode())?;
        let now = uptime_micros();
        let before = match read(&self.path.join(FILE)) {
            Ok(record) if record.lineage != self.lineage => return Err(self.was_replaced()),
            // Another process may have raised it.
            Ok(record) if record.continues(known, now) && record.covers(number, now) => {
                *known = record;
                return Ok(());
            }
            Ok(record) if record.boot == known.boot => record.pace(now),
            Ok(record) => record.floor.saturating_add(BOOT_STEP),
            Err(Trouble::Io(Errno::NOENT)) => 0,
            Err(trouble) => return Err(trouble),
        };
        let mut floor = known.pace(now).max(before);
        if number > floor {
            if number > MAX_LEAP && number - floor > BOOT_STEP {
                return Err(Trouble::NoMoreTokens);
            }
            floor = number.saturating_add(BOOT_STEP);
        }
        let record = Record { lineage: self.lineage.clone(), boot: known.boot.clone(), floor, at: now };
        *known = store(&dir, record, self.file_mode())?;
        Ok(())
    }

    pub(super) fn dir_mode(&self) -> Mode {
        Mode::from_raw_mode(if self.is_shared { 0o2770 } else { 0o700 })
    }

    pub(super) fn file_mode(&self) -> Mode {
        file_mode(self.is_shared)
    }

    /// Gives what this user made in a shared root the rights that it needs there.
    pub(super) fn repair(&self, file: impl AsFd, mode: Mode) -> io::Result<()> {
        if self.is_shared { repair(file, mode) } else { Ok(()) }
    }

    /// Makes sure that the root is still there and of the same lineage. One that was deleted is made again and keeps
    /// its lineage; one that was replaced is refused.
    pub(super) fn confirm(&self) -> Result<(), Trouble> {
        let record = match read(&self.path.join(FILE)) {
            Ok(record) => record,
            Err(_) => {
                let root = Self::open(&self.path, self.lineage.clone())?;
                root.known.into_inner().unwrap_or_else(PoisonError::into_inner)
            }
        };
        if record.lineage != self.lineage {
            return Err(self.was_replaced());
        }
        let (mut known, now) = (self.known(), uptime_micros());
        if record.continues(&known, now) {
            *known = record;
            return Ok(());
        }
        let floor = known.floor;
        self.raise(&mut known, floor)
    }

    fn was_replaced(&self) -> Trouble {
        let text = format!("{} was replaced after this locker connected; connect again", self.path.display());
        Trouble::Refused(Fail::Unavailable(text))
    }
}

pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    with_room(|| fs::open(path, flags, Mode::empty()))
}

fn repair(file: impl AsFd, mode: Mode) -> io::Result<()> {
    let stat = fs::fstat(&file)?;
    let is_right = stat.st_mode & 0o7777 == mode.as_raw_mode();
    if is_right || stat.st_uid != geteuid().as_raw() { Ok(()) } else { fs::fchmod(file, mode) }
}

fn file_mode(is_shared: bool) -> Mode {
    Mode::from_raw_mode(if is_shared { 0o660 } else { 0o600 })
}

/// The root's record, with a floor that was set in this boot.
fn this_boot(path: &Path, dir: &OwnedFd, lineage: Lineage, mode: Mode) -> Result<Record, Trouble> {
    let boot = std::fs::read_to_string(BOOT_ID).map_err(|error| {
        let text = format!("{BOOT_ID} cannot be read ({error}); mount /proc");
        Trouble::Refused(Fail::Unavailable(text))
    })?;
    let boot = boot.trim().to_owned();
    let file = path.join(FILE);
    if let Ok(record) = read(&file)
        && record.boot == boot
    {
        return Ok(record);
    }
    let _lock = lock(path, dir, mode)?;
    let at = uptime_micros();
    let record = match read(&file) {
        Ok(record) if record.boot == boot => return Ok(record),
        Ok(old) => {
            let floor = old.floor.saturating_add(BOOT_STEP).max(wall_micros());
            Record { lineage: old.lineage, boot, floor, at }
        }
        Err(Trouble::Io(Errno::NOENT)) => Record { lineage, boot, floor: wall_micros(), at },
        Err(trouble) => return Err(trouble),
    };
    Ok(store(dir, record, mode)?)
}

/// The root's lock, held.
struct Locked(OwnedFd);

impl Drop for Locked {
    fn drop(&mut self) {
        // Unlocked rather than closed: a child that is being forked may hold a copy of the descriptor.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the root's lock, which is held for the time of two fsyncs: seconds on a busy disk.
///
/// The lock is on a file that only those may open who may write in the root: whoever may read a directory may lock it.
fn lock(path: &Path, dir: &OwnedFd, mode: Mode) -> Result<Locked, Trouble> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = with_room(|| fs::openat(dir, LOCK_FILE, flags, mode))?;
    repair(&file, mode)?;
    for _ in 0..5000 {
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.into()),
            Ok(()) => return Ok(Locked(file)),
        }
    }
    let text = format!("another process keeps {} locked; resume or end it", path.display());
    Err(Trouble::Refused(Fail::Unavailable(text)))
}

fn read(file: &Path) -> Result<Record, Trouble> {
    let bytes = std::fs::read(file).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    serde_json::from_slice(&bytes).map_err(|_| {
        let text = format!("{} is not Fencepost's; remove it, or use another root", file.display());
        Trouble::Refused(Fail::Invalid(text))
    })
}

/// Writes the record so that it is there, whole, after a power loss.
fn store(dir: &OwnedFd, record: Record, mode: Mode) -> io::Result<Record> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // One that another user left half-written in a shared root could not be opened.
    let _ = fs::unlinkat(dir, DRAFT, AtFlags::empty());
    let file = with_room(|| fs::openat(dir, DRAFT, flags, mode))?;
    set_mode(&file, mode)?;
    write_whole(&file, &serde_json::to_vec(&record).expect("a record is plain data"))?;
    fs::fsync(&file)?;
    fs::renameat(dir, DRAFT, dir, FILE)?;
    fs::fsync(dir)?;
    Ok(record)
}

/// Wall time in microseconds. Never compared with a time: it is only a number that rises faster than any counter.
fn wall_micros() -> u64 {
    micros(ClockId::Realtime)
}

/// Time since the boot, which nobody can set, in microseconds.
fn uptime_micros() -> u64 {
    micros(ClockId::Boottime)
}

fn micros(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    (now.tv_sec as u64).saturating_mul(1_000_000) + now.tv_nsec as u64 / 1000
}

/// What decides whether a directory can be a root.
struct Facts {
    owner: u32,
    mode: u32,
    /// The magic number of statfs(2).
    file_system: u32,
}

impl Facts {
    fn is_shared(&self) -> bool {
        self.mode & 0o2020 == 0o2020
    }

    fn refusal(&self, path: &Path, user: u32) -> Option<Fail> {
        let path = path.display();
        if let Some(name) = file_system::unfit(self.file_system) {
            return Some(Fail::Invalid(format!(
                "{path} is on {name}, whose file locks are not known to be the kernel's own; use a root on a local disk, local:/path"
            )));
        }
        if self.mode & 0o002 != 0 {
            return Some(Fail::Denied(format!(
                "anybody may write in {path}; chmod 700 it, or use another root"
            )));
        }
        if self.is_shared() && user == 0 && self.owner != 0 {
            let owner = self.owner;
            return Some(Fail::Denied(format!(
                "{path} is shared by uid {owner}, who could mislead the root user; use a root that belongs to uid 0"
            )));
        }
        if self.is_shared() {
            return None;
        }
        if self.owner != user {
            let owner = self.owner;
            return Some(Fail::Denied(format!(
                "{path} belongs to uid {owner}, not to uid {user}, and is not shared; chmod 2770 it to share it with its group, or use another root"
            )));
        }
        if self.mode & 0o020 != 0 {
            return Some(Fail::Denied(format!(
                "a group may write in {path} without sharing it; chmod 700 it, or chmod 2770 to share it with the group"
            )));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_covered_below_the_step_and_not_above_the_pace() {
        let lineage = Lineage::new("l");
        let record = Record { lineage, boot: "b".into(), floor: 1000, at: 50 };
        assert!(record.covers(1000, 50) && !record.covers(1001, 50) && record.covers(1001, 51));
        assert!(record.covers(1000, 0), "a clock of another namespace may be behind");
        let last = 1000 + BOOT_STEP - 1;
        assert!(record.covers(last, u64::MAX) && !record.covers(last + 1, u64::MAX));
    }

    fn refusal(owner: u32, mode: u32, file_system: u32) -> Option<String> {
        Facts { owner, mode, file_system }
            .refusal(Path::new("/r"), 1000)
            .map(|fail| format!("{fail:?}").to_lowercase())
    }

    #[test]
    fn private_and_shared_roots_on_local_disks_are_taken() {
        for (owner, mode) in [(1000, 0o700), (1000, 0o755), (1000, 0o2770), (0, 0o2770), (0, 0o2775)] {
            assert_eq!(refusal(owner, mode, 0xEF53), None, "{mode:o}");
        }
    }

    #[test]
    fn the_root_user_shares_only_its_own() {
        let refusal = |owner| Facts { owner, mode: 0o2770, file_system: 0xEF53 }.refusal(Path::new("/r"), 0);
        assert!(refusal(0).is_none());
        assert!(matches!(refusal(1000), Some(Fail::Denied(text)) if text.contains("uid 1000")));
    }

    #[test]
    fn every_fault_of_a_root_is_refused_with_its_fix() {
        for (owner, mode, magic, parts) in [
            (1000, 0o700, 0x6969, ["invalid", "nfs"]),
            (1000, 0o700, 0x6573_5546, ["invalid", "fuse"]),
            (1000, 0o700, 0x0102_1997, ["invalid", "9p"]),
            (1000, 0o700, 0x1234, ["invalid", "0x1234"]),
            (1000, 0o777, 0xEF53, ["denied", "anybody"]),
            (1000, 0o1777, 0xEF53, ["denied", "chmod 700"]),
            (1000, 0o2777, 0xEF53, ["denied", "anybody"]),
            (1000, 0o770, 0xEF53, ["denied", "chmod 2770"]),
            (0, 0o700, 0xEF53, ["denied", "uid 0"]),
            (0, 0o770, 0xEF53, ["denied", "uid 0"]),
        ] {
            let text = refusal(owner, mode, magic).unwrap();
            assert!(parts.iter().all(|part| text.contains(part)), "{mode:o}: {text}");
        }
    }
}
