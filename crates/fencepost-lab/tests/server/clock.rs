//! A wall clock that steps under a server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fencepost_lab::server::{Clock, Missing, ignored, postgres, redis, require};
use libtest_mimic::{Failed, Trial};

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn() -> Result<(), Failed>;
    let trial = |name: &str, found: Result<PathBuf, Missing>, test: Test| {
        let skip = ignored(&found);
        let run = move || found.map_err(Failed::from).and_then(|_| test());
        Trial::test(format!("clock::{name}"), run).with_ignored_flag(skip)
    };
    vec![
        trial("steps_by_any_amount", require("python3", "python3"), any_amount),
        trial("a_running_redis_sees_every_step", redis::installed(), redis_steps),
        trial("keys_expire_by_it", redis::installed(), keys_expire),
        trial("sessions_of_postgres_see_it", postgres::installed(), postgres_steps),
    ]
}

/// What a program reads: first four ways to the wall clock, then clocks that never step.
const READ: &str = "
import ctypes, time
c = ctypes.CDLL(None)
c.time.restype = ctypes.c_int64
now = (ctypes.c_int64 * 2)()
c.gettimeofday(now, None)
print(time.clock_gettime(0), time.clock_gettime(5), now[0] + now[1] / 1e6, c.time(None))
print(time.clock_gettime(1), time.clock_gettime(4), time.clock_gettime(7))
";

fn read(clock: Option<&Clock>) -> Result<Vec<f64>, Failed> {
    let mut python = Command::new(require("python3", "python3")?);
    clock.into_iter().for_each(|clock| clock.preload(&mut python));
    let printed = String::from_utf8(python.args(["-c", READ]).output()?.stdout)?;
    let numbers: Vec<f64> = printed.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    assert_eq!(numbers.len(), 7, "{printed}");
    Ok(numbers)
}

fn any_amount() -> Result<(), Failed> {
    let clock = Clock::new()?;
    let year = Duration::from_secs(365 * 86_400);
    let steps = [0.0, 2.7, -5.3, 100.0 * year.as_secs_f64(), -130.0 * year.as_secs_f64()];
    let mut offset = 0.0;
    for step in steps {
        let by = Duration::from_secs_f64(f64::abs(step));
        if step < 0.0 {
            clock.back(by)?
        } else {
            clock.forward(by)?
        }
        offset += step;
        let (before, shifted, after) = (read(None)?, read(Some(&clock))?, read(None)?);
        for kind in 0..7 {
            let (offset, grain) =
                if kind < 4 { (offset, if kind == 3 { 1.0 } else { 1e-4 }) } else { (0.0, 0.0) };
            let expected = before[kind] + offset - grain..=after[kind] + offset + grain;
            assert!(expected.contains(&shifted[kind]), "kind={kind} {expected:?} {}", shifted[kind]);
        }
    }
    let error = clock.forward(292 * year).and_then(|()| clock.forward(292 * year)).unwrap_err();
    assert!(error.to_string().contains("292 years"), "{error}");
    Ok(())
}

fn redis_with(clock: &Arc<Clock>) -> std::io::Result<redis::Redis> {
    redis::Redis::start(redis::Options { clock: Some(Arc::clone(clock)), ..redis::Options::default() })
}

/// Seconds.
fn time(redis: &redis::Redis) -> Result<f64, Failed> {
    let (seconds, micros): (f64, f64) = redis.command(&["TIME"])?;
    assert!((0.0..1e6).contains(&micros), "{micros}");
    Ok(seconds + micros / 1e6)
}

fn redis_steps() -> Result<(), Failed> {
    let clock = Arc::new(Clock::new()?);
    let (plain, shifted) = (redis::Redis::start(redis::Options::default())?, redis_with(&clock)?);
    let pid = shifted.id();
    let check = |hours: f64| {
        let (before, at, after) = (time(&plain)?, time(&shifted)?, time(&plain)?);
        let expected = before + hours * 3600.0..=after + hours * 3600.0;
        // Redis takes one reading per turn of its loop, which may be a little older.
        assert!(expected.contains(&at) || expected.start() - at < 0.2, "{expected:?} {at}");
        Ok::<_, Failed>(())
    };
    check(0.0)?;
    clock.forward(HOUR)?;
    check(1.0)?;
    clock.back(2 * HOUR)?;
    check(-1.0)?;
    clock.forward(HOUR)?;
    check(0.0)?;
    assert_eq!(shifted.id(), pid);
    Ok(())
}

fn keys_expire() -> Result<(), Failed> {
    let clock = Arc::new(Clock::new()?);
    let redis = redis_with(&clock)?;
    redis.command::<()>(&["SET", "short", "v", "PX", "3599000"])?;
    redis.command::<()>(&["SET", "long", "v", "PX", "7200000"])?;
    clock.forward(HOUR)?;
    assert_eq!(redis.command::<Option<String>>(&["GET", "short"])?, None);
    let left: i64 = redis.command(&["PTTL", "long"])?;
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    redis.command::<()>(&["SET", "brief", "v", "PX", "100"])?;
    clock.back(HOUR)?;
    thread::sleep(Duration::from_millis(300));
    let left: i64 = redis.command(&["PTTL", "brief"])?;
    assert!(left > 3_500_000, "a key lives an hour longer: {left}");
    Ok(())
}

fn postgres_steps() -> Result<(), Failed> {
    let clock = Arc::new(Clock::new()?);
    let options = postgres::Options { clock: Some(Arc::clone(&clock)), ..postgres::Options::default() };
    let server = postgres::Postgres::start(options)?;
    let now = || {
        Ok::<f64, Failed>(server.psql("postgres", "select extract(epoch from clock_timestamp())")?.parse()?)
    };
    let before = now()?;
    clock.forward(HOUR)?;
    let after = now()?;
    assert!((3600.0..3700.0).contains(&(after - before)), "{before} {after}");
    clock.back(2 * HOUR)?;
    let after = now()?;
    assert!((-3600.0..-3500.0).contains(&(after - before)), "{before} {after}");
    Ok(())
}
