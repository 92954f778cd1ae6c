//! Room for descriptors: every claim keeps one open.

use rustix::{
    io::{self, Errno},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Opens something; if this process has too many files open, once more after raising its soft limit to the hard one.
///
/// Not before: programs that are started from this process inherit the limit, and old ones that use select(2) break
/// above 1,024.
pub(super) fn with_room<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match open() {
        Err(Errno::MFILE) if raise_limit() => open(),
        other => other,
    }
}

fn raise_limit() -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
}
