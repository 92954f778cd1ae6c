//! `fencepost held`: for the command that runs under a lock.

use std::{env, path::PathBuf, time::Duration};

use fencepost::blocking::{self, wait};

use crate::{
    args::Held,
    duration, exit,
    handle::{Handle, Standing},
    report, sys,
};

pub(crate) fn held(args: &Held) -> u8 {
    let Some(path) = env::var_os("FENCEPOST_HANDLE").filter(|path| !path.is_empty()).map(PathBuf::from)
    else {
        return report::fail(
            exit::USAGE,
            "FENCEPOST_HANDLE is not set; call this from a command that `fencepost run` runs",
        );
    };
    let Ok(handle) = Handle::read(&path) else {
        return report::fail(
            exit::LOST,
            format_args!("the lock is no longer held: its handle is gone: path={}", path.display()),
        );
    };
    match left(&handle) {
        None => report::fail(exit::LOST, format_args!("lock={} is no longer held", handle.lock)),
        Some(left) => {
            if args.left {
                println!("{}", left.map_or("forever".into(), duration::show));
            }
            exit::OK
        }
    }
}

/// The time for which the lock is surely held: `None` if it is not, for ever where nothing expires.
fn left(handle: &Handle) -> Option<Option<Duration>> {
    match handle.deadline_ns {
        _ if handle.state != Standing::Held => None,
        Some(deadline) => {
            let left = deadline.checked_sub(sys::now()).filter(|left| *left > 0)?;
            Some(Some(Duration::from_nanos(left)))
        }
        // Where nothing expires the backend itself is at hand, and is asked.
        None => {
            let locker = wait(fencepost::Locker::connect(&handle.backend)).ok()?;
            let status = blocking::wait(locker.inspect(&handle.lock)).ok()?;
            (status.holder?.token == Some(handle.token)).then_some(None)
        }
    }
}
