//! A gate for one file: its mark lies beside it, and both are replaced whole.

mod fault;
mod section;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use section::{Edition, Section};

use super::{mark::Mark, pass::Pass};
use crate::{
    error::{Error, ErrorKind},
    lock::DEFAULT_PATIENCE,
};

/// What is added to a file's name for the file that keeps its mark.
const FENCE: &str = ".fence";
/// What is added to that for the file that is about to take the place of one of the two.
const DRAFT: &str = ".fence.tmp";
/// Source: `NAME_MAX` of linux/limits.h.
const MAX_FILE_NAME: usize = 255;

/// A file that only the latest holder of a lock reads and replaces.
///
/// The highest token lies in `<file>.fence`, which is locked (flock) from the check to the end of the write. The order of a write
/// is: compare; replace the fence file if the token is higher; write a temporary file, flush it, rename it over the
/// file, flush the directory. So a crash can leave the fence raised without the data, and never the data without the
/// fence; a reader of the file sees the old content or the new one, and never a part.
///
/// - It protects from whoever goes through a gate for the same path, on one machine. A program that writes to the file
///   itself is not stopped.
/// - A symbolic link is refused: the fence belongs beside the file. A second hard link keeps the old content, and is another
///   resource.
/// - The file's mode and owner are kept, or the write is refused; a new file has mode 0600. Access lists and other extended
///   attributes are not kept.
/// - The calls block: in async code put them into `tokio::task::spawn_blocking`.
///
/// ```
/// # fn main() -> Result<(), fencepost::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("stock");
/// # let url = format!("local:{}", dir.path().join("locks").display());
/// use fencepost::{blocking::Locker, gate::FileGate};
///
/// let locker = Locker::connect(&url)?;
/// let gate = FileGate::new(path)?;
/// let guard = locker.acquire(&locker.lock("stock"))?;
///
/// let file = gate.open(&guard)?;          // from here on, whoever held the lock before us is refused
/// let stock = file.read()?.map_or(100, |text| String::from_utf8_lossy(&text).parse().unwrap_or(0));
/// file.write((stock - 1).to_string())?;
/// # assert_eq!(file.read()?.unwrap(), b"99");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct FileGate {
    directory: PathBuf,
    name: String,
    patience: Duration,
}

impl FileGate {
    /// A gate for the file at `path`, which need not be there yet. Nothing is opened or made before the first use.
    ///
    /// # Errors
    ///
    /// `Invalid` if the path names no file.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, Error> {
        let given = path.as_ref();
        let invalid = |why: &str| {
            let text =
                format!("the path names no file that a gate can protect: {why}, path={}", given.display());
            Error::new(ErrorKind::Invalid, text)
        };
        // Asked of the text: a path's own methods look over a slash or a dot at its end, which says directory.
        let last = given.as_os_str().as_encoded_bytes().rsplit(|byte| *byte == b'/').next();
        if matches!(last, None | Some(b"" | b"." | b"..")) {
            return Err(invalid("end it with the name of a file"));
        }
        let path = std::path::absolute(given).map_err(|_| invalid("give an absolute path"))?;
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(invalid("end it with the name of a file"));
        };
        let name = name.to_str().ok_or_else(|| invalid("give the file a name in UTF-8"))?;
        // It would be another gate's mark, or replace it.
        if name.ends_with(FENCE) || name.ends_with(DRAFT) {
            return Err(invalid(
                "give it the file that is protected, whose own name ends otherwise than in .fence or .fence.tmp",
            ));
        }
        if name.len() + DRAFT.len() > MAX_FILE_NAME {
            return Err(invalid(
                "give the file a name of at most 245 bytes, so that .fence.tmp can be added",
            ));
        }
        Ok(Self { directory: directory.to_owned(), name: name.to_owned(), patience: DEFAULT_PATIENCE })
    }

    /// How long to wait for another process that is between its check and the end of its write (10 s unless set). It takes
    /// longer than a moment only if that process was stopped there.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Raises the mark, and gives reads and writes under this pass.
    ///
    /// # Errors
    ///
    /// `Stale` and `OtherLineage`, and then nothing changes; `Denied`, `Invalid` and `Unavailable` as they say: of the file system.
    pub fn open(&self, pass: impl Into<Pass>) -> Result<OpenFile<'_>, Error> {
        let pass = pass.into();
        let flushed = Section::enter(self)?.admit(&pass, None)?;
        Ok(OpenFile { gate: self, pass, flushed })
    }

    /// Raises the mark and does nothing else, as after a forced unlock.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn fence(&self, pass: impl Into<Pass>) -> Result<(), Error> {
        Section::enter(self)?.admit(&pass.into(), None).map(drop)
    }

    /// What the gate has recorded; nothing if it was never used. It needs only the right to read.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); `Invalid` if the fence file is not one.
    pub fn mark(&self) -> Result<Mark, Error> {
        section::look(self)
    }

    /// Sets the mark to what an operator knows to be right, lower ones too, and returns the one that was there. It also
    /// puts a fence file in order that cannot be read.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn rebind(&self, mark: Mark) -> Result<Mark, Error> {
        let mut section = Section::enter(self)?;
        let before = section.mark().unwrap_or_default();
        section.record(&mark)?;
        Ok(before)
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    fn fence_name(&self) -> String {
        format!("{}{FENCE}", self.name)
    }

    fn draft_name(&self) -> String {
        format!("{}{DRAFT}", self.name)
    }
}

impl fmt::Debug for FileGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileGate").field(&self.path()).finish()
    }
}

/// The way through a [`FileGate`] that one pass has opened; a later holder closes it.
#[derive(Debug)]
pub struct OpenFile<'a> {
    gate: &'a FileGate,
    pass: Pass,
    /// The fence file that was made durable when this was opened.
    flushed: Edition,
}

impl OpenFile<'_> {
    /// The file's content; `None` if there is no file yet.
    ///
    /// # Errors
    ///
    /// As [`FileGate::open`]: a holder that has a successor is told when it reads, too.
    pub fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut section = Section::enter(self.gate)?;
        section.admit(&self.pass, Some(self.flushed))?;
        section.read()
    }

    /// Replaces the file's content, durably.
    ///
    /// # Errors
    ///
    /// As [`FileGate::open`], and then the file is as it was; `Unknown` if the new content is there and the disk did not
    /// confirm that it will stay.
    pub fn write(&self, content: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut section = Section::enter(self.gate)?;
        section.admit(&self.pass, Some(self.flushed))?;
        section.write(content.as_ref())
    }
}
