//! What a waiter costs: threads, memory, and time of the processor.

use std::{
    env, fs,
    future::Future,
    pin::Pin,
    process::Command,
    task::{Context, Waker},
    thread,
    time::Duration,
};

use fencepost::{Error, Guard, Locker, blocking::wait};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    outcome::Outcome,
    places::Place,
    table::{Table, show},
};

const LOCK: &str = "crowd";

/// What a crowd of one size costs.
struct Cost {
    threads: u64,
    /// Kibibytes.
    memory: u64,
    lined_up: Duration,
    /// The processor's time while nothing happens.
    idle: Duration,
}

pub(crate) fn measure(table: &mut Table, place: &Place, effort: usize) -> Outcome<()> {
    let (few, many) = (10, if effort > 1 { 10_000 } else { 1000 });
    // Those far from the front look again every ten to fourteen seconds, and that is to be seen.
    let window = Duration::from_millis(if effort > 1 { 15_000 } else { 500 });
    let floor = ask(place, few, Duration::from_millis(500))?;
    let crowd = ask(place, many, window)?;
    let goal = if crowd.threads <= floor.threads { "not more: met" } else { "not more: not met" };
    table.row([
        format!("threads of a process with {many} waiters"),
        format!("with {few} waiters"),
        floor.threads.to_string(),
        crowd.threads.to_string(),
        format!("{:.2}", crowd.threads as f64 / floor.threads as f64),
        goal.into(),
    ]);
    let (times, memory) = (many as u32, (crowd.memory as f64 - floor.memory as f64) / (many - few) as f64);
    table.plain("  memory, a waiter", format!("{memory:.2} KiB"));
    table.plain("  processor time to get in line, a waiter", show(crowd.lined_up / times));
    let share = crowd.idle.as_secs_f64() / window.as_secs_f64();
    table.plain("  processor time in line, all waiters", format!("{:.2} %", share * 100.0));
    Ok(())
}

/// Lets a process of its own find out, and reads its answer.
fn ask(place: &Place, waiters: usize, window: Duration) -> Outcome<Cost> {
    let (waiters, millis) = (waiters.to_string(), window.as_millis().to_string());
    let output =
        Command::new(env::current_exe()?).args(["crowd", &place.url(), &waiters, &millis]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let &[threads, memory, lined_up, idle] = &numbers[..] else { return Err("four numbers".into()) };
    let (lined_up, idle) = (Duration::from_nanos(lined_up), Duration::from_nanos(idle));
    Ok(Cost { threads, memory, lined_up, idle })
}

/// The part of the process of its own.
pub(crate) fn play(url: &str, waiters: usize, millis: u64) -> Outcome<()> {
    let locker = wait(Locker::connect(url))?;
    let _holder = wait(locker.lock(LOCK).acquire())?;
    let start = processor_time();
    let crowd: Vec<_> = (0..waiters).map(|_| stand_in_line(&locker)).collect();
    let lined_up = processor_time() - start;
    let in_line = wait(locker.inspect(LOCK))?.waiters.len();
    if in_line != waiters {
        return Err(
            format!("only {in_line} of {waiters} stand in line; raise the limit with ulimit -n").into()
        );
    }
    let start = processor_time();
    thread::sleep(Duration::from_millis(millis));
    let idle = processor_time() - start;
    let (threads, memory) = (status("Threads:")?, status("VmRSS:")?);
    println!("{threads} {memory} {} {}", lined_up.as_nanos(), idle.as_nanos());
    drop(crowd);
    Ok(())
}

/// One poll is all it takes: from then on the library follows the line by itself.
fn stand_in_line(locker: &Locker) -> Pin<Box<dyn Future<Output = Result<Guard, Error>>>> {
    let lock = locker.lock(LOCK);
    let mut acquire = Box::pin(async move { lock.acquire().await });
    let _ = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    acquire
}

/// A number of this process, as the kernel keeps it.
pub(crate) fn status(name: &str) -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let number = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    Ok(number.ok_or("/proc/self/status is not what it was")?.parse()?)
}

/// What this process has used so far.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
