//! Any process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use fencepost_lab::clock::now_ns;
use fencepost_lab::server::{Port, Process, home, ignored, require};
use libtest_mimic::{Failed, Trial};

use super::{SOON, is_alive, postgres, state};

/// Set for the copy of this program that plays a test which is killed.
const VICTIM: &str = "FENCEPOST_LAB_VICTIM";

/// What the copy of this program does that plays a test which is killed.
pub(crate) fn victim() -> Option<ExitCode> {
    std::env::var(VICTIM)
        .ok()
        .map(|role| if role == "postgres" { postgres::victim() } else { spawn_and_wait_for_death() })
}

pub(crate) fn trials() -> Vec<Trial> {
    let python = require("python3", "python3");
    let skip = ignored(&python);
    let listens = move || listens(python?);
    vec![
        Trial::test("a_process_pauses_and_resumes", pauses_and_resumes),
        Trial::test("a_process_that_ends_early_shows_its_log", ends_early),
        Trial::test("a_process_that_is_never_ready_shows_its_log", never_ready),
        Trial::test("a_process_may_end_in_peace", ends_in_peace),
        Trial::test("a_process_that_will_not_end_is_killed", will_not_end),
        Trial::test("a_process_outlives_the_thread_that_spawned_it", outlives_its_thread),
        Trial::test("a_process_dies_with_the_program_that_spawned_it", dies_with_its_program),
        Trial::test("a_dropped_process_is_gone", dropped),
        Trial::test("a_server_is_ready_once_it_listens", listens).with_ignored_flag(skip),
    ]
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn pauses_and_resumes() -> Result<(), Failed> {
    let home = home("pause")?;
    let mut process = Process::spawn(shell("exec sleep 60"), &home.path().join("log"))?;
    for _ in 0..3 {
        process.pause()?;
        assert_eq!(state(process.id()), Some('T'));
        process.resume()?;
        assert_ne!(state(process.id()), Some('T'));
    }
    process.pause()?;
    assert_eq!(process.kill()?.signal(), Some(9));
    let error = process.pause().unwrap_err().to_string();
    assert!(error.contains("cannot take SIGSTOP, it has exited"), "{error}");
    Ok(())
}

fn ends_early() -> Result<(), Failed> {
    let home = home("early")?;
    let mut process = Process::spawn(shell("echo no such option >&2; exit 3"), &home.path().join("log"))?;
    let error = process.wait_ready(SOON, || false).unwrap_err().to_string();
    assert!(error.contains("ended before it was ready (exit status: 3)"), "{error}");
    assert!(error.ends_with("\nno such option"), "{error}");
    Ok(())
}

fn never_ready() -> Result<(), Failed> {
    let home = home("never")?;
    let mut process = Process::spawn(shell("echo still loading; exec sleep 60"), &home.path().join("log"))?;
    let port = Port::free()?;
    let error = process.wait_listening(port.addr(), Duration::from_millis(300)).unwrap_err().to_string();
    assert!(error.contains("was not ready within 300ms"), "{error}");
    assert!(error.ends_with("\nstill loading"), "{error}");
    Ok(())
}

fn ends_in_peace() -> Result<(), Failed> {
    let home = home("peace")?;
    let log = home.path().join("log");
    let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut process = Process::spawn(shell(script), &log)?;
    process.wait_ready(SOON, || fs::read_to_string(&log).is_ok_and(|text| text == "up\n"))?;
    process.pause()?;
    let asked = now_ns();
    assert!(process.terminate(SOON)?.success());
    assert!(u128::from(now_ns() - asked) < SOON.as_nanos(), "a paused process hears of it");
    assert_eq!(fs::read_to_string(&log)?, "up\nbye\n");
    assert!(process.terminate(SOON)?.success(), "and may be told again");
    Ok(())
}

fn will_not_end() -> Result<(), Failed> {
    let home = home("stubborn")?;
    let log = home.path().join("log");
    let mut process = Process::spawn(shell("trap '' TERM; echo up; exec sleep 60"), &log)?;
    process.wait_ready(SOON, || fs::read_to_string(&log).is_ok_and(|text| text == "up\n"))?;
    assert_eq!(process.terminate(Duration::from_millis(100))?.signal(), Some(9));
    Ok(())
}

fn outlives_its_thread() -> Result<(), Failed> {
    let home = home("thread")?;
    let log = home.path().join("log");
    let spawn = move || Process::spawn(shell("exec sleep 60"), &log);
    let mut process = thread::spawn(spawn).join().expect("spawning does not panic")?;
    thread::sleep(Duration::from_millis(100));
    assert_eq!(process.exited()?, None);
    Ok(())
}

/// A copy of this program in a role of its own, and the line that it prints.
pub(crate) fn start_victim(role: &str) -> Result<(Child, String), Failed> {
    let mut program = Command::new(std::env::current_exe()?);
    let mut program = program.env(VICTIM, role).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(program.stdout.take().expect("it is piped")).read_line(&mut line)?;
    Ok((program, line.trim().to_owned()))
}

pub(crate) fn soon_gone(pid: u32) -> bool {
    (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        !is_alive(pid)
    })
}

fn dies_with_its_program() -> Result<(), Failed> {
    let (mut program, line) = start_victim("process")?;
    let pid = line.parse()?;
    assert!(is_alive(pid));
    program.kill()?;
    program.wait()?;
    assert!(soon_gone(pid), "pid={pid} is still there");
    Ok(())
}

/// What the killed program does: it starts a process, says its id, and waits.
fn spawn_and_wait_for_death() -> ExitCode {
    let process = Process::spawn(shell("exec sleep 60"), Path::new("/dev/null")).expect("there is a shell");
    println!("{}", process.id());
    thread::sleep(Duration::from_secs(60));
    ExitCode::FAILURE
}

fn dropped() -> Result<(), Failed> {
    let home = home("drop")?;
    let process = Process::spawn(shell("exec sleep 60"), &home.path().join("log"))?;
    let pid = process.id();
    assert!(is_alive(pid));
    drop(process);
    assert_eq!(state(pid), None);
    Ok(())
}

fn listens(python: PathBuf) -> Result<(), Failed> {
    let home = home("python")?;
    let port = Port::free()?;
    let mut command = Command::new(python);
    command.args(["-m", "http.server", "--bind", "127.0.0.1", &port.number().to_string()]);
    command.current_dir(home.path());
    let mut process = Process::spawn(command, &home.path().join("log"))?;
    process.wait_listening(port.addr(), SOON)?;
    assert_eq!(process.exited()?, None);
    Ok(())
}
