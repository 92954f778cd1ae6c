//! The wall clock of one server, which steps when the test says so, while the server runs.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use super::home;

/// What the build script made of `shim/clock.rs`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.so"));

/// A wall clock for the processes that are started with it, and for their children. It begins at the real time.
///
/// Every reading through the C library is shifted, of CLOCK_REALTIME only. Left alone are monotonic clocks, a
/// statically linked program, and a Go program, which asks the kernel itself. Keep it longer than the server.
#[derive(Debug)]
pub struct Clock {
    home: TempDir,
    file: File,
    offset_ns: Mutex<i64>,
}

impl Clock {
    /// Makes a clock and tries it on one program.
    ///
    /// # Errors
    ///
    /// When its files cannot be written, or not preloaded: from a directory that is mounted `noexec`, for instance.
    pub fn new() -> io::Result<Self> {
        let home = home("clock")?;
        // Servers of other users read them too.
        fs::set_permissions(home.path(), Permissions::from_mode(0o755))?;
        fs::write(home.path().join("clock.so"), LIBRARY)?;
        let file = File::create(home.path().join("offset"))?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        let clock = Self { home, file, offset_ns: Mutex::new(0) };
        clock.try_out()?;
        Ok(clock)
    }

    /// Lets a command run by this clock.
    pub fn preload(&self, command: &mut Command) {
        let home = self.home.path();
        command.env("LD_PRELOAD", home.join("clock.so")).env("FENCEPOST_CLOCK", home.join("offset"));
    }

    /// Steps it ahead, at once, for all processes that run by it.
    ///
    /// # Errors
    ///
    /// When the step cannot be written, or would be beyond 292 years.
    pub fn forward(&self, by: Duration) -> io::Result<()> {
        self.step(i64::try_from(by.as_nanos()).ok())
    }

    /// Steps it back, at once, for all processes that run by it.
    ///
    /// # Errors
    ///
    /// As [`Clock::forward`].
    pub fn back(&self, by: Duration) -> io::Result<()> {
        self.step(i64::try_from(by.as_nanos()).ok().map(i64::wrapping_neg))
    }

    fn step(&self, by_ns: Option<i64>) -> io::Result<()> {
        let mut offset_ns = self.offset_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let too_far = || io::Error::other("a clock cannot be shifted by more than 292 years");
        let sum = by_ns.and_then(|by| offset_ns.checked_add(by)).ok_or_else(too_far)?;
        // Eight bytes at once: whoever has the file mapped sees the old number or the new one.
        self.file.write_all_at(&sum.to_ne_bytes(), 0)?;
        *offset_ns = sum;
        Ok(())
    }

    /// The loader only warns about a library that it cannot load, and the server would run by the real clock.
    fn try_out(&self) -> io::Result<()> {
        const STEP: i64 = 1_000_000;
        let date = |command: &mut Command| {
            let output = command.arg("+%s").output()?;
            String::from_utf8_lossy(&output.stdout).trim().parse::<i64>().map_err(io::Error::other)
        };
        self.step(Some(STEP * 1_000_000_000))?;
        let mut shifted = Command::new("date");
        self.preload(&mut shifted);
        let real = date(&mut Command::new("date"))?;
        let gained = date(&mut shifted)? - real;
        self.step(Some(-STEP * 1_000_000_000))?;
        if (STEP..STEP + 60).contains(&gained) {
            return Ok(());
        }
        let home = self.home.path().display();
        Err(io::Error::other(format!(
            "the clock cannot be preloaded, set TMPDIR to a directory without noexec: dir={home}"
        )))
    }
}
