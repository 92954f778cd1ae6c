//! Starting a program without copying this process for it.
//!
//! A fork copies our page tables, and then every page that either side writes to: more work than all the rest of
//! taking a lock. So the new process borrows our memory, and we stand still, until it executes the program or ends. That is how
//! posix_spawn does it, which knows neither a parent-death signal nor how to ignore a signal.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::ptr;

use nix::libc;
use nix::sched::{CloneFlags, clone};
use nix::sys::wait::waitpid;

/// What the new process needs before exec: the C library's search along PATH has the longest names in it.
const STACK: usize = 256 * 1024;

/// Starts a program, found along PATH, and answers its process id. `env` replaces what our environment has under these
/// names. `setup` runs in the new process, in our memory: it must only make system calls, and leave nothing behind.
///
/// Every signal that has a handler or a default action must be blocked: `setup` may unblock them as the last thing.
pub(super) fn spawn(
    argv: &[OsString],
    env: Vec<(OsString, OsString)>,
    mut setup: impl FnMut() -> io::Result<()>,
) -> io::Result<i32> {
    let argv: Vec<CString> = argv.iter().cloned().map(c_string).collect::<io::Result<_>>()?;
    let env: BTreeMap<OsString, OsString> = env::vars_os().chain(env).collect();
    let env: Vec<CString> = env.into_iter().map(variable).collect::<io::Result<_>>()?;
    let (argv_list, env_list) = (pointers(&argv), pointers(&env));
    let program = argv.first().ok_or(io::ErrorKind::InvalidInput)?;
    // A script without a first line that says so is given to the shell, with a list of arguments made on this stack.
    let mut stack = vec![0; STACK + size_of_val(&argv_list[..])];
    let mut failed = 0;
    let child = Box::new(|| {
        let error = match setup() {
            Ok(()) => execute(program, &argv_list, &env_list),
            Err(error) => error,
        };
        failed = error.raw_os_error().unwrap_or(libc::EINVAL);
        1
    });
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
    // SAFETY: the stack is large enough for what is said above and outlives the child's use of it, since this process
    // goes on only when the child has executed or ended. Until then the child makes system calls, and writes `failed`.
    #[allow(unsafe_code, reason = "a process that borrows our memory has no safe wrapper")]
    let pid = unsafe { clone(child, &mut stack, flags, Some(libc::SIGCHLD)) }?;
    if failed != 0 {
        waitpid(pid, None)?;
        return Err(io::Error::from_raw_os_error(failed));
    }
    Ok(pid.as_raw())
}

/// Returns only if it failed. The lists must end in a null pointer.
#[allow(unsafe_code, reason = "nix takes the lists apart, and would allocate")]
fn execute(program: &CString, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> io::Error {
    // SAFETY: the lists point to strings that outlive the call, and end in a null pointer.
    unsafe { libc::execvpe(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

fn variable((name, value): (OsString, OsString)) -> io::Result<CString> {
    let mut variable = name;
    variable.push("=");
    variable.push(value);
    c_string(variable)
}

fn c_string(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}
