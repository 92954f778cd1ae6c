//! PostgreSQL.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use fencepost_lab::server::ignored;
use fencepost_lab::server::postgres::{Options, Postgres, installed};
use libtest_mimic::{Failed, Trial};

use super::{is_alive, process, state};

pub(crate) fn trials() -> Vec<Trial> {
    let found = installed();
    let skip = ignored(&found);
    let trial = |name: &str, test: fn() -> Result<(), Failed>| {
        let found = found.clone();
        let run = move || found.map_err(Failed::from).and_then(|_| test());
        Trial::test(format!("postgres::{name}"), run).with_ignored_flag(skip)
    };
    vec![
        trial("runs_as_an_ordinary_user", ordinary_user),
        trial("statements_print_and_fail", statements),
        trial("a_pause_stops_every_process", pause),
        trial("a_crash_keeps_what_was_committed", crash),
        trial("a_dropped_server_leaves_nothing", dropped),
        trial("every_process_dies_with_the_program_that_started_them", dies_with_its_program),
        trial("passwords_are_asked_for_on_the_port", passwords),
        trial("a_wrong_option_shows_the_log", wrong_option),
    ]
}

/// All processes below one, by a look of our own at what the kernel says.
fn descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    for next in 0.. {
        let Some(parent) = found.get(next).copied() else { break };
        for entry in fs::read_dir("/proc").expect("a file system").flatten() {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            if status.lines().any(|line| line == format!("PPid:\t{parent}")) {
                found.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
            }
        }
    }
    found
}

/// A session that runs for a minute, once the server knows of it.
fn sleeper(postgres: &Postgres) -> Result<Child, Failed> {
    let sql = "select pg_sleep(60)";
    let mut psql = Command::new(installed()?.join("psql"));
    let child = psql
        .arg(postgres.url("postgres"))
        .args(["-c", sql])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let running = "select count(*) from pg_stat_activity where query like 'select pg_sleep%'";
    while postgres.psql("postgres", running)? != "1" {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(child)
}

fn ordinary_user() -> Result<(), Failed> {
    let postgres = Postgres::start(Options::default())?;
    let family = descendants(postgres.id());
    // A session of a moment ago may be gone by now.
    let users: Vec<u32> =
        family.iter().flat_map(|pid| fs::metadata(format!("/proc/{pid}"))).map(|dir| dir.uid()).collect();
    assert!(users.len() > 3 && !users.contains(&0), "{users:?}");
    Ok(())
}

fn statements() -> Result<(), Failed> {
    let postgres = Postgres::start(Options::default())?;
    postgres.psql("postgres", "create database \"o'clock\"")?;
    let printed = postgres.psql(
        "o'clock",
        "create table t (a int, b text); insert into t values (1, 'x'), (2, null); table t",
    )?;
    assert_eq!(printed, "1|x\n2|");
    let error = postgres
        .psql("o'clock", "insert into t values (3, 'y'); select 1/0; insert into t values (4, 'z')")
        .unwrap_err();
    assert!(error.to_string().contains("22012"), "{error}");
    assert_eq!(postgres.psql("o'clock", "select max(a) from t")?, "3");
    let mut psql = Command::new(installed()?.join("psql"));
    let tcp = psql.args(["-XAtc", "select count(*) from t", &postgres.url("o'clock")]).output()?;
    assert_eq!(String::from_utf8_lossy(&tcp.stdout), "3\n", "{tcp:?}");
    Ok(())
}

fn pause() -> Result<(), Failed> {
    let mut postgres = Postgres::start(Options::default())?;
    let mut client = sleeper(&postgres)?;
    let backend = "select pid from pg_stat_activity where query like 'select pg_sleep%'";
    let backend = postgres.psql("postgres", backend)?.parse()?;
    for _ in 0..2 {
        postgres.pause()?;
        let family = descendants(postgres.id());
        assert!(family.contains(&backend));
        assert_eq!(state(backend), Some('T'));
        // A session that ended just before stays uncollected while the postmaster stands still.
        assert!(family.iter().all(|&pid| matches!(state(pid), Some('T' | 'Z'))), "{family:?}");
    }
    let family = descendants(postgres.id());
    postgres.resume()?;
    assert!(family.iter().all(|&pid| state(pid) != Some('T')), "{family:?}");
    assert_eq!(postgres.psql("postgres", "select 1")?, "1");
    postgres.pause()?;
    postgres.kill()?;
    assert!(family.iter().all(|&pid| !is_alive(pid)), "{family:?}");
    assert!(!client.wait()?.success());
    Ok(())
}

fn crash() -> Result<(), Failed> {
    let mut postgres = Postgres::start(Options::default())?;
    postgres.psql("postgres", "create table t (a int)")?;
    for round in 0..3 {
        postgres.psql("postgres", &format!("insert into t values ({round})"))?;
        let family = descendants(postgres.id());
        postgres.kill()?;
        assert!(family.iter().all(|&pid| !is_alive(pid)), "{family:?}");
        assert!(postgres.psql("postgres", "select 1").is_err());
        assert!(postgres.pause().unwrap_err().to_string().contains("restart it"));
        postgres.restart()?;
        assert_eq!(postgres.psql("postgres", "select count(*) from t")?, (round + 1).to_string());
    }
    Ok(())
}

/// The program that is killed: it starts a server, says where it is, and waits.
pub(crate) fn victim() -> ExitCode {
    let postgres = Postgres::start(Options::default()).expect("it is installed");
    let data = postgres.psql("postgres", "show data_directory").expect("it answers");
    println!("{} {data}", postgres.id());
    thread::sleep(Duration::from_secs(60));
    ExitCode::FAILURE
}

fn dies_with_its_program() -> Result<(), Failed> {
    let (mut program, line) = process::start_victim("postgres")?;
    let (pid, data) = line.split_once(' ').ok_or_else(|| format!("it said {line:?}"))?;
    let family = descendants(pid.parse()?);
    let segment = segment(Path::new(data))?;
    program.kill()?;
    program.wait()?;
    let alive: Vec<&u32> = family.iter().filter(|&&pid| !process::soon_gone(pid)).collect();
    assert!(alive.is_empty(), "{alive:?}");
    // Nobody was left to do it.
    fs::remove_dir_all(Path::new(data).parent().expect("its home"))?;
    assert!(Command::new("ipcrm").args(["-m", &segment]).status()?.success());
    Ok(())
}

/// The id of its shared memory.
fn segment(data: &Path) -> Result<String, Failed> {
    let lock = fs::read_to_string(data.join("postmaster.pid"))?;
    let id = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
    Ok(id.ok_or("there is no id")?.to_owned())
}

/// The shared memory of the machine: its ids, and its files.
fn shared_memory() -> HashSet<String> {
    let segments = fs::read_to_string("/proc/sysvipc/shm").expect("a file of the kernel");
    let ids = segments.lines().filter_map(|line| line.split_whitespace().nth(1)).map(Into::into);
    let files = fs::read_dir("/dev/shm").expect("a directory").flatten();
    ids.chain(files.map(|file| file.file_name().to_string_lossy().into_owned())).collect()
}

fn dropped() -> Result<(), Failed> {
    let postgres = Postgres::start(Options::default())?;
    let mut client = sleeper(&postgres)?;
    let family = descendants(postgres.id());
    let data = postgres.psql("postgres", "show data_directory")?;
    let segment = segment(Path::new(&data))?;
    assert!(shared_memory().contains(&segment), "segment={segment}");
    drop(postgres);
    assert!(family.iter().all(|&pid| !is_alive(pid)), "{family:?}");
    assert!(!shared_memory().contains(&segment), "segment={segment}");
    assert!(!Path::new(&data).exists());
    assert!(!client.wait()?.success());
    Ok(())
}

fn passwords() -> Result<(), Failed> {
    let secret = "s p@ss:/'\"\\#%";
    let postgres = Postgres::start(Options { password: Some(secret.into()), ..Options::default() })?;
    postgres.psql("postgres", "create user alice password 'wonder'")?;
    let login = |url: String| {
        let mut psql = Command::new(installed()?.join("psql"));
        psql.args(["-w", "-XAtc", "select current_user", &url]).stdin(Stdio::null());
        Ok::<_, Failed>(String::from_utf8_lossy(&psql.output()?.stdout).into_owned())
    };
    assert_eq!(login(postgres.url("postgres"))?, "postgres\n");
    assert_eq!(login(postgres.url_as("postgres", "alice", "wonder"))?, "alice\n");
    assert_eq!(login(postgres.url_as("postgres", "alice", "wander"))?, "");
    assert_eq!(login(postgres.url_as("postgres", "postgres", ""))?, "");
    assert!(!fs::read_to_string(format!("/proc/{}/cmdline", postgres.id()))?.contains(secret));
    Ok(())
}

fn wrong_option() -> Result<(), Failed> {
    let wrong = Postgres::start(Options { extra: vec!["no_such_option = 1".into()], ..Options::default() });
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("ended before it was ready") && error.contains("no_such_option"), "{error}");
    Ok(())
}
