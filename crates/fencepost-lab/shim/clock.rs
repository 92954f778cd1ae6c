//! A wall clock that steps on demand, for a program that preloads this library.
//!
//! It adds an offset to every reading of CLOCK_REALTIME through the C library. The offset stands, in nanoseconds, in a
//! file that is mapped when the library is loaded. Monotonic clocks are left alone, and so are waits until a moment of
//! the wall clock: those belong to the kernel.
//!
//! Programs call these functions before they have an allocator, and from inside it. So there is no standard library
//! here, nothing is looked up and nothing is allocated; the time comes from the system call itself.
//!
//! The build script of fencepost-lab compiles this file.

#![no_std]
#![deny(warnings)]

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

const VARIABLE: &CStr = c"FENCEPOST_CLOCK";
const NANOS: i64 = 1_000_000_000;

const CLOCK_REALTIME: c_int = 0;
const CLOCK_REALTIME_COARSE: c_int = 5;

#[cfg(target_arch = "x86_64")]
const SYS_CLOCK_GETTIME: c_long = 228;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
const SYS_CLOCK_GETTIME: c_long = 113;

/// As on every 64-bit Linux. A `timeval` has the same shape, with microseconds.
#[repr(C)]
pub struct Timespec {
    seconds: i64,
    fraction: i64,
}

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn close(file: c_int) -> c_int;
    fn mmap(at: *mut c_void, length: usize, rights: c_int, flags: c_int, file: c_int, from: i64) -> *mut c_void;
    fn syscall(number: c_long, ...) -> c_long;
    fn abort() -> !;
}

/// Null until the file is mapped, and for ever if there is none.
static OFFSET: AtomicPtr<AtomicI64> = AtomicPtr::new(null_mut());

/// The loader calls what this points to.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

extern "C" fn load() {
    const READ: c_int = 1;
    const SHARED: c_int = 1;
    const READ_ONLY_CLOSE_ON_EXEC: c_int = 0o2_000_000;
    // SAFETY: The C library is loaded before those that need it, its functions get what they ask for, and the mapping,
    // which is at least as aligned and as long as one number, is never taken away.
    unsafe {
        let path = getenv(VARIABLE.as_ptr());
        if path.is_null() {
            return;
        }
        let file = open(path, READ_ONLY_CLOSE_ON_EXEC);
        if file < 0 {
            return;
        }
        let mapped = mmap(null_mut(), size_of::<AtomicI64>(), READ, SHARED, file, 0);
        close(file);
        if mapped != without_provenance_mut(usize::MAX) {
            OFFSET.store(mapped.cast(), Ordering::Release);
        }
    }
}

fn offset() -> i64 {
    // SAFETY: It is null or points to the mapping, which stays. Others write to the file only whole numbers.
    unsafe { OFFSET.load(Ordering::Acquire).as_ref() }.map_or(0, |offset| offset.load(Ordering::Relaxed))
}

/// Replaces the function of the C library.
///
/// # Safety
///
/// As there: `now` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, now: *mut Timespec) -> c_int {
    // SAFETY: The kernel checks the pointer, and what it has accepted may be written to.
    unsafe {
        let result = syscall(SYS_CLOCK_GETTIME, c_long::from(clock), now);
        if result == 0 && matches!(clock, CLOCK_REALTIME | CLOCK_REALTIME_COARSE) {
            let offset = offset();
            let fraction = (*now).fraction + offset % NANOS;
            (*now).seconds += offset / NANOS + fraction.div_euclid(NANOS);
            (*now).fraction = fraction.rem_euclid(NANOS);
        }
        result as c_int
    }
}

/// Replaces the function of the C library. The time zone is one that nobody uses: always zero.
///
/// # Safety
///
/// As there: each is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(now: *mut Timespec, zone: *mut [c_int; 2]) -> c_int {
    // SAFETY: The caller promises what is written to, and a `timeval` has the shape of a `timespec`.
    unsafe {
        if !zone.is_null() {
            *zone = [0; 2];
        }
        if now.is_null() {
            return 0;
        }
        let result = clock_gettime(CLOCK_REALTIME, now);
        (*now).fraction /= 1000;
        result
    }
}

/// Replaces the function of the C library.
///
/// # Safety
///
/// As there: `copy` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(copy: *mut i64) -> i64 {
    let mut now = Timespec { seconds: 0, fraction: 0 };
    // SAFETY: `now` is ours, and the caller promises the other.
    unsafe {
        clock_gettime(CLOCK_REALTIME_COARSE, &mut now);
        if !copy.is_null() {
            *copy = now.seconds;
        }
    }
    now.seconds
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: It needs nothing and does not return.
    unsafe { abort() }
}
