//! A holder that dies.

use std::{
    env,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use fencepost::{Locker, blocking::wait};
use fencepost_lab::{clock::now_ns, server::Process};
use libtest_mimic::Failed;

use super::textbook::{KEY, LONG, NAME, Stage};

/// Makes this binary a holder: the backend's URL.
const HOLD: &str = "FENCEPOST_TRAPS_HOLD";

const TTL: Duration = Duration::from_millis(800);

/// How long "for ever" is looked at.
const A_WHILE: Duration = Duration::from_secs(4);

/// Plays the holder if this process was started as one, until it is killed.
pub(crate) fn holder() -> Option<ExitCode> {
    let url = env::var(HOLD).ok()?;
    let locker = wait(Locker::connect(&url)).expect("a server");
    let guard = wait(locker.lock(NAME).ttl(TTL).acquire()).expect("the lock");
    wait(guard.lost());
    Some(ExitCode::FAILURE)
}

pub(crate) fn blocks(stage: &mut Stage) -> Result<(), Failed> {
    let (mut first, mut second) = (stage.client()?, stage.client()?);
    assert_ne!(first.order(&format!("take_for_ever {NAME}"))?, "-");
    drop(first);
    thread::sleep(A_WHILE);
    assert_eq!(second.take(LONG)?, None);
    assert_eq!(stage.server.command::<i64>(&["PTTL", KEY])?, -1, "it would have ended some time");

    stage.clear()?;
    let home = fencepost_lab::server::home("traps")?;
    let mut command = Command::new(env::current_exe()?);
    command.env(HOLD, stage.server.url());
    let mut process = Process::spawn(command, &home.path().join("log"))?;
    let holds = || stage.server.command(&["EXISTS", KEY]).unwrap_or(false);
    process.wait_ready(Duration::from_secs(10), holds)?;
    // It is renewed, so that it is held for as long as its holder lives.
    thread::sleep(TTL * 2);
    assert_eq!(second.take(LONG)?, None);
    process.kill()?;
    let killed = now_ns();
    let locker = stage.locker()?;
    let guard = wait(locker.lock(NAME).ttl(LONG).wait(A_WHILE).acquire())?;
    let blocked = Duration::from_nanos(now_ns() - killed);
    println!("free {blocked:?} after the holder was killed; its lease was {TTL:?}");
    assert!(blocked < TTL + Duration::from_secs(1), "{blocked:?}");
    Ok(wait(guard.release())?)
}
