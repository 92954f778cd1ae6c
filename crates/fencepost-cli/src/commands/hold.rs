//! `fencepost hold` and `release`: a lock across several commands of a script.
//!
//! The lock is kept by a process of its own, forked before anything else happens and in a session that no terminal
//! reaches. It lives as long as the process that it was told to watch, or until `release` asks it to end.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use fencepost::{ErrorKind, Guard, Locker, SystemHost};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    libc,
    sys::{
        signal::{SigSet, SigmaskHow, Signal, sigprocmask},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::pipe2,
};
use serde::{Deserialize, Serialize};

use super::{COURTESY, close, connected, is_ready, lock, not_taken, poll_beside, show, take};
use crate::{
    args::{Global, Hold, Release},
    backend::Backend,
    exit,
    handle::{self, Handle, HandleFile, Standing, started},
    report,
    run::block_on,
    sys::{self, Fork},
};

/// How long `release` waits for the holder to end.
const RELEASE_LIMIT: Duration = Duration::from_secs(15);

/// What the holder tells the process that the caller waits for.
#[derive(Serialize, Deserialize)]
enum Told {
    /// The lock is held; these are the variables to print.
    Held { token: String, handle: String },
    /// It is not, for a reason that stands on stderr.
    Failed { code: u8 },
}

pub(crate) fn hold(global: &Global, args: &Hold) -> u8 {
    let backend = match Backend::find(global) {
        Ok(backend) => backend,
        Err(code) => return code,
    };
    let forked = sys::pidfd(args.pid).map_err(|_| no_process(args.pid)).and_then(|watched| {
        let (told, teller) = pipe2(OFlag::O_CLOEXEC).map_err(cannot)?;
        Ok((watched, told, teller, sys::fork().map_err(cannot)?))
    });
    match forked {
        Err(code) => code,
        Ok((_, told, teller, Fork::Parent(_))) => {
            drop(teller);
            hear(told)
        }
        Ok((watched, told, teller, Fork::Child)) => {
            drop(told);
            // What we inherited is not ours to keep open for as long as the lock is held.
            sys::close_all_but(&[watched.as_fd(), teller.as_fd()]);
            let keeper = Keeper { global, args, backend, watched, teller: Some(teller) };
            keeper.keep().unwrap_or_else(cannot)
        }
    }
}

fn no_process(pid: i32) -> u8 {
    report::fail(exit::USAGE, format_args!("--pid: there is no such process; in a script give $$: pid={pid}"))
}

fn cannot(error: impl std::fmt::Display) -> u8 {
    report::fail(exit::INTERNAL, format_args!("cannot hold the lock: {error}"))
}

/// The caller's side: waits for the holder's word and prints it in a form that a shell evaluates.
fn hear(told: OwnedFd) -> u8 {
    let mut text = String::new();
    match File::from(told).read_to_string(&mut text).map(|_| serde_json::from_str(&text)) {
        Ok(Ok(Told::Held { token, handle })) => {
            let handle = handle.replace('\'', r"'\''");
            println!("export FENCEPOST_TOKEN='{token}'\nexport FENCEPOST_HANDLE='{handle}'");
            exit::OK
        }
        Ok(Ok(Told::Failed { code })) => code,
        _ => report::fail(exit::INTERNAL, "the holder ended without a word"),
    }
}

/// The holder's side.
struct Keeper<'a> {
    global: &'a Global,
    args: &'a Hold,
    backend: Backend,
    watched: OwnedFd,
    /// Closed by the reader when the caller gives up, and by us once we have told.
    teller: Option<OwnedFd>,
}

impl Keeper<'_> {
    fn keep(mut self) -> io::Result<u8> {
        nix::unistd::setsid()?;
        let term = SigSet::from(Signal::SIGTERM);
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&term), None)?;
        let asked = SignalFd::with_flags(&term, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        sys::let_go_of_stdio()?;

        let (locker, guard) = match self.take()? {
            Some(Ok(taken)) => taken,
            Some(Err(code)) => return self.failed(code),
            // A caller who gave up needs no word.
            None if !is_ready(self.watched.as_fd())? => return Ok(exit::NOT_ACQUIRED),
            None => {
                let text =
                    format!("--pid: the process ended before the lock was taken: pid={}", self.args.pid);
                return self.failed(report::fail(exit::NOT_ACQUIRED, text));
            }
        };
        show(&guard, &locker.about().backend, self.global, &self.args.wanted);
        let mut handle = match HandleFile::publish(&guard, &locker.about().backend) {
            Ok(handle) => handle,
            Err(error) => {
                // The lock is given back before anybody hears of it.
                let _ = block_on(guard.release())?;
                close(locker, COURTESY)?;
                return self.failed(cannot(error));
            }
        };
        let (token, path) = (guard.token().to_string(), handle.path().to_string_lossy().into_owned());
        if let Err(error) = self.tell(&Told::Held { token, handle: path }).and_then(|()| silence_stderr()) {
            // The caller died at this moment, and nobody else knows of the lock or of its handle.
            handle.end(Standing::Unknown);
            let _ = block_on(guard.release())?;
            close(locker, COURTESY)?;
            handle.remove();
            return Err(error);
        }

        let released = self.stay(&guard, &mut handle, asked.as_fd())?;
        let lost = !guard.is_held();
        // Before the first word to the backend: nobody may be told that it is held when it can be somebody else's.
        handle.end(Standing::Unknown);
        handle.end(match block_on(guard.release())? {
            Ok(()) if !lost => Standing::Released,
            Err(error) if error.kind() == ErrorKind::Unknown => Standing::Unknown,
            _ => Standing::Lost,
        });
        close(locker, self.args.wanted.connect_timeout)?;
        if !released {
            handle.remove();
        }
        Ok(exit::OK)
    }

    /// Connects and takes the lock; `None` if the caller gave up or the watched process ended meanwhile.
    fn take(&self) -> io::Result<Option<Result<(Locker, Guard), u8>>> {
        let wanted = &self.args.wanted;
        let teller = self.teller.as_ref().map(AsFd::as_fd);
        let others: Vec<_> = teller.into_iter().chain([self.watched.as_fd()]).collect();
        let connecting = connected(&self.backend, Arc::new(SystemHost), self.global, wanted);
        let locker = match poll_beside(connecting, &others)? {
            Some(Ok(locker)) => locker,
            Some(Err(code)) => return Ok(Some(Err(code))),
            None => return Ok(None),
        };
        let wanted_lock = lock(&locker, self.args.name.as_str(), wanted);
        let taken = poll_beside(take(&wanted_lock, wanted), &others)?;
        let failed = match taken {
            Some(Ok(guard)) => return Ok(Some(Ok((locker, guard)))),
            Some(Err(error)) => {
                let (name, at) = (self.args.name.as_str(), &locker.about().backend);
                Some(Err(not_taken(&error, name, at, self.global, wanted)))
            }
            None => None,
        };
        // Whatever is left of the claim goes before we do.
        close(locker, COURTESY)?;
        Ok(failed)
    }

    /// Hands on the exit status of a failure whose reason was told.
    fn failed(&mut self, code: u8) -> io::Result<u8> {
        self.tell(&Told::Failed { code })?;
        Ok(code)
    }

    fn tell(&mut self, told: &Told) -> io::Result<()> {
        match self.teller.take() {
            Some(teller) => File::from(teller).write_all(&serde_json::to_vec(told)?),
            None => Ok(()),
        }
    }

    /// Stays until the watched process ends (false) or `release` asks (true), and publishes every change.
    fn stay(&self, guard: &Guard, handle: &mut HandleFile, asked: BorrowedFd<'_>) -> io::Result<bool> {
        let mut changes = guard.changes();
        // What was so before the subscription is no change: a loss of that time would never be published.
        handle.follow(changes.hold());
        loop {
            match poll_beside(changes.changed(), &[asked, self.watched.as_fd()])? {
                Some(hold) => handle.follow(hold),
                None => return is_ready(asked),
            }
        }
    }
}

/// From here on nobody reads what we say, and a caller who waits for the end of our stderr must not wait for us.
fn silence_stderr() -> io::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    Ok(nix::unistd::dup2_stderr(&null)?)
}

pub(crate) fn release(args: &Release) -> u8 {
    let path = args.handle.display();
    let handle = match Handle::read(&args.handle) {
        Ok(handle) => handle,
        Err(error) => {
            return report::fail(
                exit::USAGE,
                format_args!(
                    "there is no such handle, give what `fencepost hold` printed: {error}: path={path}"
                ),
            );
        }
    };
    let ended = match end(&handle) {
        Ok(ended) => ended,
        Err(error) => {
            return report::fail(
                exit::INTERNAL,
                format_args!("cannot ask the holder to end, try again: {error}: pid={}", handle.pid),
            );
        }
    };
    if !ended {
        return report::fail(
            exit::UNKNOWN,
            format_args!("the holder does not end; look at it, then try again: pid={}", handle.pid),
        );
    }
    let standing = Handle::read(&args.handle).map_or(Standing::Unknown, |handle| handle.state);
    handle::remove(&args.handle);
    let lock = &handle.lock;
    match standing {
        Standing::Released => exit::OK,
        Standing::Lost => report::fail(exit::LOST, format_args!("lock={lock} was lost before its release")),
        Standing::Held => report::fail(
            exit::LOST,
            format_args!("the holder of lock={lock} was killed, and the lock was lost with it"),
        ),
        Standing::Unknown => report::fail(
            exit::UNKNOWN,
            format_args!("the release of lock={lock} is not confirmed; it is free when its lease ends"),
        ),
    }
}

/// Asks the holder to end, and answers whether it has. Only what proves its end may say so.
fn end(handle: &Handle) -> io::Result<bool> {
    let holder = match sys::pidfd(handle.pid) {
        Err(Errno::ESRCH) => return Ok(true),
        holder => holder?,
    };
    match started(handle.pid) {
        Ok(started) if started == handle.started => {}
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        // A process that ends while its file is read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(true),
        Err(error) => return Err(error),
    }
    match sys::pidfd_kill(&holder, libc::SIGTERM) {
        // One that has just ended cannot be asked, and need not be.
        Err(Errno::ESRCH) => Ok(true),
        asked => asked.map(|()| ends(&holder)).map_err(io::Error::from),
    }
}

/// Waits for a process to end.
fn ends(process: &OwnedFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let limit = PollTimeout::try_from(RELEASE_LIMIT).unwrap_or(PollTimeout::MAX);
    poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], limit).is_ok_and(|ready| ready > 0)
}
