//! A gate around a value in memory: a mutex that asks for a token.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{mark::Mark, pass::Pass};
use crate::error::Error;

/// A value that only the latest holder of a lock reads and changes.
///
/// For tests, and for what lives in one process: a service that is handed tokens by its clients. The mark lives as long as the
/// value, and so is durable enough for it.
///
/// ```
/// # fn main() -> Result<(), fencepost::Error> {
/// use fencepost::{Token, gate::MemoryGate};
/// let token = |number| Token::new(number).expect("not zero");
///
/// let stock = MemoryGate::new(100);
/// let first = stock.open(token(41))?;
/// let second = stock.open(token(42))?;     // the first holder was paused, and lost its lock
/// second.update(|stock| *stock -= 1)?;
/// assert!(first.update(|stock| *stock -= 1).is_err());
/// assert_eq!(second.read()?, 99);
/// # Ok(()) }
/// ```
pub struct MemoryGate<T>(Mutex<Guarded<T>>);

struct Guarded<T> {
    mark: Mark,
    value: T,
}

impl<T> MemoryGate<T> {
    /// A gate around `value` that has not seen a token yet.
    pub fn new(value: T) -> Self {
        Self(Mutex::new(Guarded { mark: Mark::default(), value }))
    }

    /// Raises the mark, and gives reads and writes under this pass.
    ///
    /// # Errors
    ///
    /// `Stale` and `OtherLineage`; then nothing changes.
    pub fn open(&self, pass: impl Into<Pass>) -> Result<OpenMemory<'_, T>, Error> {
        let pass = pass.into();
        self.fence(&pass)?;
        Ok(OpenMemory { gate: self, pass })
    }

    /// Raises the mark and does nothing else, as after a forced unlock.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn fence(&self, pass: impl Into<Pass>) -> Result<(), Error> {
        Ok(self.guarded().mark.raise(&pass.into())?)
    }

    /// What the gate has recorded.
    pub fn mark(&self) -> Mark {
        self.guarded().mark.clone()
    }

    /// Sets the mark to what an operator knows to be right, lower ones too, and returns the one that was there.
    pub fn rebind(&self, mark: Mark) -> Mark {
        std::mem::replace(&mut self.guarded().mark, mark)
    }

    fn guarded(&self) -> MutexGuard<'_, Guarded<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for MemoryGate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryGate").field("mark", &self.mark()).finish_non_exhaustive()
    }
}

/// The way through a [`MemoryGate`] that one pass has opened; a later holder closes it.
#[derive(Debug)]
pub struct OpenMemory<'a, T> {
    gate: &'a MemoryGate<T>,
    pass: Pass,
}

impl<T> OpenMemory<'_, T> {
    /// Changes the value in one step with the check. Nobody else comes between, so keep it short. If it panics, the value stays as it left it.
    ///
    /// # Errors
    ///
    /// As [`MemoryGate::open`], and `change` is not called then.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Error> {
        let mut guarded = self.gate.guarded();
        guarded.mark.raise(&self.pass)?;
        Ok(change(&mut guarded.value))
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// As [`MemoryGate::open`]: a holder that has a successor is told when it reads, too.
    pub fn read(&self) -> Result<T, Error>
    where
        T: Clone,
    {
        self.update(|value| value.clone())
    }

    /// Replaces the value.
    ///
    /// # Errors
    ///
    /// As [`MemoryGate::open`].
    pub fn write(&self, value: T) -> Result<(), Error> {
        self.update(|place| *place = value)
    }
}
