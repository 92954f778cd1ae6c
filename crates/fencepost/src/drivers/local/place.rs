//! Places: the directory of one lock, its lock file, and what is done under the directory lock.
//!
//! The lock file holds the counter (the highest number ever given, to a ticket or as a token), the head (no ticket below it is live) and
//! the lock's name, each on a line of fixed width but the last; it is written in place and never truncated. The counter
//! is written before the ticket appears, so a crash in between skips a number and repeats none.
//!
//! Invariants:
//! 1. Tickets are made, promoted and, if dead or passed over, removed only in a [`Section`], and only by a claim with a
//!    higher number.
//! 2. Taking the directory lock never blocks: a process that is stopped inside a section must not stop others.
//! 3. A section is entered only if its lock file is still the one at its path.
//!
//! What these cannot see: a root, or a lock's directory, that is moved away with live tickets in it, and a lock file that is
//! removed while others stay. Who comes later begins anew at the old path, respectively in another section, and may hold
//! the lock beside those who were there. The kernel tells a holder of none of the two; after a move it finds out when it
//! next looks, at the latest when it releases. A directory is to be moved or cleared only while nobody uses it, and a
//! lock is freed by a forced unlock, never by removing files.
//!
//! The directory of a lock is never removed, since the counter lives in it: a few hundred bytes for every name that was
//! ever used. To prune them one would, under the directory's lock, remove the lock file and then the directory: a lock
//! that is used again starts above what it gave, by the invariants of [`root`](super::root).

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, Dir, FlockOperation, Mode, OFlags, Stat},
    io::{self, Errno},
};

use super::{
    names,
    room::with_room,
    root::{Root, Trouble},
    ticket::{Seen, Ticket, file_name, number_in, write_whole},
};
use crate::{
    driver::Fail,
    name::{LockName, MAX_NAME_BYTES},
    owner::Owner,
    token::Token,
};

pub(super) const LOCK_FILE: &str = ".lock";

/// The counter and the head, each 20 digits and a line feed.
const NUMBERS: usize = 42;

/// The name of a lock and its line feed.
const MAX_NAME: usize = MAX_NAME_BYTES + 1;

/// How many numbers are tried one by one before the directory is read.
const GAP: u64 = 64;

/// How often a busy directory lock is tried: about a millisecond in all.
const TRIES: u32 = 20;

/// The directory of one lock, opened once and shared by the claims of a locker.
pub(super) struct Place {
    root: Arc<Root>,
    lock: LockName,
    path: PathBuf,
    lock_path: PathBuf,
    dir: OwnedFd,
    file: OwnedFd,
    id: Id,
    /// One claim of this process at a time: a second flock on the same descriptor would succeed.
    turn: Mutex<()>,
    /// The last attempt failed: somebody may be stopped inside, so the next ones do not linger.
    is_stuck: AtomicBool,
}

/// Which file this is: device and inode.
pub(super) type Id = (u64, u64);

pub(super) fn id(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

/// Opens the directory of a lock, and nothing that a link leads to: in a shared root others may put one there, and it may
/// lead to what only this user may change.
pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    with_room(|| fs::open(path, flags, Mode::empty()))
}

/// The answer to [`Place::enter`].
pub(super) enum Entry<'a> {
    Open(Section<'a>),
    /// Somebody is inside.
    Busy {
        retry: Duration,
    },
    /// The directory was removed or replaced: open the place again.
    Stale,
}

impl Place {
    /// Opens the directory of `lock`, and makes it if it is missing.
    pub(super) fn open(root: &Arc<Root>, lock: &LockName) -> Result<Self, Trouble> {
        root.confirm()?;
        let path = root.path().join(names::directory(lock));
        match fs::mkdir(&path, root.dir_mode()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let dir = open_directory(&path).map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => {
                let text = format!("{} is not a directory of its own; remove it", path.display());
                Trouble::Refused(Fail::Invalid(text))
            }
            error => error.into(),
        })?;
        // Not only after it was made: a crash may have left it as the umask had it.
        root.repair(&dir, root.dir_mode())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = with_room(|| fs::openat(&dir, LOCK_FILE, flags, root.file_mode()))?;
        let stat = fs::fstat(&file)?;
        root.repair(&file, root.file_mode())?;
        Ok(Self {
            root: root.clone(),
            lock: lock.clone(),
            lock_path: path.join(LOCK_FILE),
            path,
            dir,
            file,
            id: id(&stat),
            turn: Mutex::new(()),
            is_stuck: AtomicBool::new(false),
        })
    }

    pub(super) fn id(&self) -> Id {
        self.id
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(super) fn path_of(&self, number: u64) -> PathBuf {
        self.path.join(file_name(number))
    }

    /// Takes the directory lock, or says after about a millisecond that it is busy.
    pub(super) fn enter(&self) -> Result<Entry<'_>, Trouble> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let was_stuck = self.is_stuck.load(Ordering::Relaxed);
        let is_ours = self.try_lock(if was_stuck { 1 } else { TRIES })?;
        self.is_stuck.store(!is_ours, Ordering::Relaxed);
        if !is_ours {
            let retry = Duration::from_millis(if was_stuck { 5 } else { 1 });
            return Ok(Entry::Busy { retry });
        }
        let mut section = Section { place: self, _turn: turn, counter: 0, head: 0 };
        match fs::stat(&self.lock_path) {
            Ok(stat) if id(&stat) == self.id => section.load()?,
            Ok(_) | Err(Errno::NOENT) => return Ok(Entry::Stale),
            Err(error) => return Err(error.into()),
        }
        Ok(Entry::Open(section))
    }

    fn try_lock(&self, tries: u32) -> io::Result<bool> {
        for attempt in 0..tries {
            match fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(true),
                Err(Errno::WOULDBLOCK | Errno::INTR) if attempt < TRIES / 2 => thread::yield_now(),
                Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(Duration::from_micros(50)),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// The directory lock, held.
pub(super) struct Section<'a> {
    place: &'a Place,
    _turn: MutexGuard<'a, ()>,
    counter: u64,
    head: u64,
}

impl Section<'_> {
    fn load(&mut self) -> Result<(), Trouble> {
        let mut bytes = [0; NUMBERS + MAX_NAME];
        let len = io::pread(&self.place.file, &mut bytes, 0)?;
        let number = |at: usize| std::str::from_utf8(bytes.get(at..at + 20)?).ok()?.parse::<u64>().ok();
        match (number(0), number(21)) {
            (Some(counter), Some(head)) if len >= NUMBERS => {
                (self.counter, self.head) = (counter, head);
                let name = self.place.lock.as_str().as_bytes();
                if bytes[NUMBERS..len].strip_prefix(name).is_none_or(|rest| rest.first() != Some(&b'\n')) {
                    // The disk was full when the file was made. Those who list the locks need the name, we do not.
                    let _ = self.store_whole();
                }
            }
            // A new file, or one that a power loss emptied. A lost one may have given numbers.
            _ => {
                let start = self.place.root.start()?;
                let numbers = listing(self.place.dir.as_fd())?;
                let (lowest, highest) = (numbers.iter().min(), numbers.iter().max());
                self.counter = highest.copied().unwrap_or(0).max(start);
                self.head = lowest.copied().unwrap_or(self.counter);
                self.store_whole()?;
            }
        }
        Ok(())
    }

    fn numbers(&self) -> String {
        format!("{:020}\n{:020}\n", self.counter, self.head)
    }

    fn store_whole(&self) -> io::Result<()> {
        let text = format!("{}{}\n", self.numbers(), self.place.lock);
        write_whole(&self.place.file, text.as_bytes())
    }

    fn store(&self) -> io::Result<()> {
        write_whole(&self.place.file, self.numbers().as_bytes())
    }

    /// The lowest live ticket, below `me` if that is a ticket. Dead ones on the way are removed.
    pub(super) fn lowest(&mut self, me: Option<u64>) -> io::Result<Option<Seen>> {
        let end = me.unwrap_or(self.counter.saturating_add(1));
        let lowest = self.first_live(self.head, end, Direction::Up)?;
        let head = lowest.as_ref().map_or(end, |seen| seen.number);
        // Worth a write only when it spares others a long search.
        if head > self.head + GAP / 4 {
            self.head = head;
            self.store()?;
        }
        Ok(lowest)
    }

    /// The live ticket next below `me`.
    pub(super) fn before(&self, me: u64) -> io::Result<Option<Seen>> {
        self.first_live(self.head, me, Direction::Down)
    }

    fn first_live(&self, start: u64, end: u64, direction: Direction) -> io::Result<Option<Seen>> {
        let count = end.saturating_sub(start);
        for step in 0..count.min(GAP) {
            let number = match direction {
                Direction::Up => start + step,
                Direction::Down => end - 1 - step,
            };
            if let Some(seen) = self.look(number)? {
                return Ok(Some(seen));
            }
        }
        if count <= GAP {
            return Ok(None);
        }
        let mut numbers = listing(self.place.dir.as_fd())?;
        numbers.retain(|number| (start..end).contains(number));
        numbers.sort_unstable();
        if direction == Direction::Down {
            numbers.reverse();
        }
        for number in numbers {
            if let Some(seen) = self.look(number)? {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    fn look(&self, number: u64) -> io::Result<Option<Seen>> {
        let name = file_name(number);
        let Some(seen) = Seen::open(self.place.dir.as_fd(), Path::new(&name), number)? else {
            return Ok(None);
        };
        if seen.is_locked() {
            return Ok(Some(seen));
        }
        // What cannot be removed is dead all the same.
        let _ = fs::unlinkat(&self.place.dir, name, AtFlags::empty());
        Ok(None)
    }

    /// Removes a live ticket: a holder that is forced out, or a waiter that is passed over.
    pub(super) fn remove(&self, seen: &Seen) -> io::Result<()> {
        match fs::unlinkat(&self.place.dir, file_name(seen.number), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a token above every one that was given before and above `floor`.
    pub(super) fn mint(&mut self, floor: u64) -> Result<Token, Trouble> {
        let number = self.advance(floor)?;
        self.store()?;
        Ok(number)
    }

    fn advance(&mut self, floor: u64) -> Result<Token, Trouble> {
        let last = self.counter.max(self.place.root.floor()).max(floor);
        // The last number of all stays free, so that "one more" is always a number.
        let number = last.checked_add(1).filter(|number| *number < u64::MAX).ok_or(Trouble::NoMoreTokens)?;
        // Before it is given: after a power loss nobody knows that it was.
        self.place.root.cover(number)?;
        self.counter = number;
        Token::new(number).ok_or(Trouble::NoMoreTokens)
    }

    /// Makes a ticket behind all others, none of which is live: its number is its token.
    pub(super) fn issue_held(&mut self, floor: u64, owner: &Owner) -> Result<Ticket, Trouble> {
        let token = self.advance(floor)?;
        self.head = self.counter;
        self.issue(Some(token), owner)
    }

    /// Makes a ticket behind all others, of which some are live.
    pub(super) fn issue_waiting(&mut self, owner: &Owner) -> Result<Ticket, Trouble> {
        self.advance(0)?;
        self.issue(None, owner)
    }

    fn issue(&self, token: Option<Token>, owner: &Owner) -> Result<Ticket, Trouble> {
        self.store()?;
        let (dir, mode) = (self.place.dir.as_fd(), self.place.root.file_mode());
        Ok(Ticket::issue(dir, &self.place.path, self.counter, token, owner, mode)?)
    }

    /// Makes a waiting ticket, below which nothing is live, the holder's. The token is minted now: the number was
    /// given before the tokens of those who came in front, or of an operator who forced one of them out.
    pub(super) fn promote(&mut self, ticket: &mut Ticket, floor: u64, owner: &Owner) -> Result<(), Trouble> {
        self.head = ticket.number;
        let token = self.mint(floor)?;
        Ok(ticket.promote(token, owner)?)
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        // Unlocked rather than closed: a child that is being forked may hold a copy of the descriptor for a moment.
        let _ = fs::flock(&self.place.file, FlockOperation::Unlock);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The numbers of the tickets in a directory, in no order.
pub(super) fn listing(dir: impl AsFd) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in with_room(|| Dir::read_from(&dir))? {
        numbers.extend(number_in(entry?.file_name().to_bytes()));
    }
    Ok(numbers)
}
