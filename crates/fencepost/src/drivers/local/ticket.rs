//! Tickets: one file per claim, named by its number, locked through its owner's open descriptor.
//!
//! Invariants:
//! 1. A ticket is linked under its number only when it is locked and its record is complete.
//! 2. Its lock ends with the last copy of its owner's descriptor, whatever the reason: closed is dead.
//! 3. A number is never used twice. A ticket stands in line only while its name leads to its owner's file: one that was
//!    removed is of no use, even if its owner still has it open or a backup has linked it under another name.
//! 4. The record is the state (`W` or `H`), the holder's token in 20 digits, and the owner as JSON.
//! 5. Others look at a ticket through a read-only descriptor and a shared lock: closing a writable one would tell
//!    every watcher that the owner is gone, and an exclusive probe would make two probers take each other for owners.

use std::path::{Path, PathBuf};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, FlockOperation, Mode, OFlags},
    io::{self, Errno},
};

use super::{
    place::{Id, id},
    room::with_room,
};
use crate::{
    driver::Holder,
    owner::{Owner, wall_ms},
    token::Token,
};

const WAITING: &str = "W";
const HOLDING: &str = "H";

/// No record is longer: a label has 255 bytes, a host name 64, a value 1024, and JSON at most doubles what has no control
/// characters.
const MAX_RECORD: usize = 4096;

/// How often a record is read until it was the same twice.
const READS: usize = 8;

/// The name under which a ticket is prepared. One is enough: tickets are made under the directory lock.
const DRAFT: &str = ".draft";

pub(super) fn file_name(number: u64) -> String {
    format!("{number:020}")
}

/// The number in a ticket's file name; `None` for a file that is not ours.
pub(super) fn number_in(name: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(name).ok().filter(|name| name.len() == 20)?;
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// This claim's own ticket.
pub(super) struct Ticket {
    file: OwnedFd,
    path: PathBuf,
    id: Id,
    record_len: usize,
    pub(super) number: u64,
    /// Set once the ticket is the holder's.
    pub(super) token: Option<Token>,
}

impl Ticket {
    /// Makes a ticket in `dir`, under its directory lock. `EXIST` if the number is taken.
    pub(super) fn issue(
        dir: BorrowedFd<'_>,
        at: &Path,
        number: u64,
        token: Option<Token>,
        owner: &Owner,
        mode: Mode,
    ) -> io::Result<Self> {
        let file = draft(dir, mode)?;
        // Nobody else can have opened the draft: the lock is free.
        fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let record = record(token, owner);
        write_whole(&file, &record)?;
        let name = file_name(number);
        let linked = fs::linkat(dir, DRAFT, dir, &name, AtFlags::empty());
        fs::unlinkat(dir, DRAFT, AtFlags::empty())?;
        linked?;
        let id = id(&fs::fstat(&file)?);
        Ok(Self { file, path: at.join(name), id, record_len: record.len(), number, token })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether somebody removed the ticket. Its name is asked and not its count of links, since a backup of hard links
    /// keeps the count above zero.
    pub(super) fn is_unlinked(&self) -> io::Result<bool> {
        match fs::lstat(&self.path) {
            Ok(stat) => Ok(id(&stat) != self.id),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Turns a waiting ticket into the holder's, under the directory lock.
    pub(super) fn promote(&mut self, token: Token, owner: &Owner) -> io::Result<()> {
        self.rewrite(record(Some(token), owner))?;
        self.token = Some(token);
        Ok(())
    }

    /// Writes a holder's record again, with the time at which it became the holder.
    pub(super) fn proclaim(&mut self, owner: &Owner) -> io::Result<()> {
        let since = read(&self.file).owner.map_or(owner.since_ms, |before| before.since_ms);
        self.rewrite(record_of(self.token, &Owner { since_ms: since, ..owner.clone() }))
    }

    fn rewrite(&mut self, mut record: Vec<u8>) -> io::Result<()> {
        // Padded to the old length, so that one write replaces the whole record.
        record.resize(self.record_len.max(record.len()), b' ');
        self.record_len = record.len();
        write_whole(&self.file, &record)
    }

    /// A copy of the descriptor: the lock lives until the last copy is closed.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        with_room(|| io::fcntl_dupfd_cloexec(&self.file, 3))
    }

    /// Ends the ticket; false if it was gone.
    ///
    /// Unlinked first and then closed, never closed alone: a process that is being forked may hold a copy of the
    /// descriptor for a moment, and the next in line must not wait for it.
    pub(super) fn end(self) -> io::Result<bool> {
        // A ticket that cannot be looked at is not known to be gone.
        if self.is_unlinked().unwrap_or(false) {
            return Ok(false);
        }
        match fs::unlink(&self.path) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            // It cannot be unlinked, but it can be dead; the next claim removes it.
            Err(_) => fs::flock(&self.file, FlockOperation::Unlock).map(|()| true),
        }
    }

    /// Ends this process's share in a ticket whose descriptor somebody inherited.
    pub(super) fn disown(self) -> io::Result<bool> {
        let (gone, path) = (self.is_unlinked().unwrap_or(false), self.path.clone());
        drop(self);
        if !gone && let Some(seen) = Seen::open(fs::CWD, &path, 0)?.filter(|seen| !seen.is_locked()) {
            drop(seen);
            let _ = fs::unlink(&path);
        }
        Ok(!gone)
    }
}

fn draft(dir: BorrowedFd<'_>, mode: Mode) -> io::Result<OwnedFd> {
    // Writable: only the close of a writable descriptor is told to those who watch.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let create = || with_room(|| fs::openat(dir, DRAFT, flags, mode));
    let file = match create() {
        // Left behind by a claim that died while it made its ticket.
        Err(Errno::EXIST) => {
            fs::unlinkat(dir, DRAFT, AtFlags::empty())?;
            create()?
        }
        other => other?,
    };
    set_mode(&file, mode)?;
    Ok(file)
}

/// Gives a new file the rights of a shared root, which the umask may have taken away.
pub(super) fn set_mode(file: impl AsFd, mode: Mode) -> io::Result<()> {
    if mode.intersects(Mode::RWXG) { fs::fchmod(file, mode) } else { Ok(()) }
}

pub(super) fn write_whole(file: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    // A few hundred bytes at once: a short write means that the disk is full.
    match io::pwrite(file, bytes, 0)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(Errno::NOSPC),
    }
}

/// A record as of now: a holder's says since when it holds.
fn record(token: Option<Token>, owner: &Owner) -> Vec<u8> {
    match token {
        None => record_of(None, owner),
        Some(_) => record_of(token, &Owner { since_ms: wall_ms(), ..owner.clone() }),
    }
}

fn record_of(token: Option<Token>, owner: &Owner) -> Vec<u8> {
    let (state, number) = token.map_or((WAITING, 0), |token| (HOLDING, token.get()));
    let mut bytes = format!("{state}{number:020}").into_bytes();
    serde_json::to_writer(&mut bytes, owner).expect("an owner is plain data");
    bytes.push(b'\n');
    bytes
}

/// What a ticket says, as far as it can be read.
pub(super) struct Record {
    /// Also if it does not say that it waits: whoever passes it over must know that it holds nothing.
    pub(super) is_held: bool,
    pub(super) token: Option<Token>,
    pub(super) owner: Option<Owner>,
}

impl Record {
    /// The holder, if this is the holder's record.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.is_held.then(|| Holder { token: self.token, owner: self.owner.clone(), expires_in: None })
    }
}

fn parse(bytes: &[u8]) -> Record {
    let token = bytes.get(1..21).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Record {
        is_held: !bytes.starts_with(WAITING.as_bytes()),
        token: token.and_then(Token::new),
        owner: bytes.get(21..).and_then(|owner| serde_json::from_slice(owner).ok()),
    }
}

/// Somebody's ticket, as it was found.
pub(super) struct Seen {
    file: OwnedFd,
    pub(super) number: u64,
}

impl Seen {
    /// Opens a ticket to look at it; `None` if it is gone or is no file.
    pub(super) fn open(dir: BorrowedFd<'_>, name: &Path, number: u64) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match with_room(|| fs::openat(dir, name, flags, Mode::empty())) {
            Ok(file) => Ok(Some(Self { file, number })),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether its owner, or one who inherited from it, still has it open.
    pub(super) fn is_locked(&self) -> bool {
        fs::flock(&self.file, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// Whether it still stands in line in `dir`. Numbers are used once, so its name is proof enough.
    pub(super) fn is_live(&self, dir: BorrowedFd<'_>) -> io::Result<bool> {
        match fs::statat(dir, file_name(self.number), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(self.is_locked()),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn read(&self) -> Record {
        read(&self.file)
    }
}

/// What a ticket says. A leader writes its own again at any time, and a read beside a write may find half of each.
fn read(file: impl AsFd) -> Record {
    let mut found = bytes(&file);
    for _ in 1..READS {
        let before = std::mem::replace(&mut found, bytes(&file));
        if found == before {
            break;
        }
    }
    parse(&found)
}

fn bytes(file: impl AsFd) -> Vec<u8> {
    let mut bytes = vec![0; MAX_RECORD];
    // One that cannot be read says nothing.
    let len = io::pread(file, &mut bytes, 0).unwrap_or(0);
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_twenty_digits_are_a_ticket() {
        assert_eq!(number_in(file_name(42).as_bytes()), Some(42));
        assert_eq!(number_in(file_name(u64::MAX).as_bytes()), Some(u64::MAX));
        for name in ["", "42", "+0000000000000000042", "99999999999999999999", "0000000000000000004x"] {
            assert_eq!(number_in(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_record_is_read_back_and_one_that_is_cut_is_read_as_far_as_it_goes() {
        let owner = Owner::here(Some("é \"quoted\"".into()));
        let waiting = record(None, &owner);
        let (read, token) = (parse(&waiting), Token::new(u64::MAX).unwrap());
        assert_eq!((read.is_held, read.token, read.owner), (false, None, Some(owner.clone())));
        let held = record(Some(token), &owner);
        assert_eq!(held.len(), waiting.len(), "one write replaces the other");
        for len in 0..held.len() {
            let read = parse(&held[..len]);
            assert!(read.is_held);
            assert_eq!(read.token, (len > 20).then_some(token));
            assert!(read.owner.is_none() || len >= held.len() - 1);
        }
        assert!(parse(&held).holder().unwrap().owner.is_some());
        assert!(parse(b"\xff\xfe").holder().is_some(), "nobody may pass over what is not known to wait");
    }
}
