//! The command over a real redis-server: what is Redis's own. What other clients write is in `foreign`, whatever happens to a
//! lease is in `lease`.

use fencepost_lab::leased::Control;
use fencepost_lab::server::certificates::Certificates;
use fencepost_lab::server::ignored;
use fencepost_lab::server::redis::{Options, Tls, installed};
use libtest_mimic::{Failed, Trial};

use crate::scene::until;
use crate::world::{World, pass};

/// A password that nothing may show.
pub(crate) const SECRET: &str = "s3cr-hunter2";

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 5] = [
        ("redis_without_channels_says_so_once", mute),
        ("redis_without_companions_is_denied", no_companions),
        ("redis_tls_from_end_to_end", tls),
        ("redis_shows_no_password", no_password),
        ("redis_deletion_without_tracking", untracked),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

/// A test that needs the server.
pub(crate) fn trial(name: &str, test: fn()) -> Trial {
    let found = installed();
    let skip = ignored(&found);
    let run = move || {
        found?;
        std::panic::catch_unwind(test).map_err(|_| Failed::from("see the panic above"))
    };
    Trial::test(name, run).with_ignored_flag(skip)
}

/// A world whose command speaks as the user `jobs` with these rights.
fn as_jobs(rights: &str) -> World {
    let users = vec![format!("jobs on >{SECRET} {rights}")];
    let mut world = World::redis(Options { users, ..Options::default() });
    world.url = world.url.replacen("//", &format!("//jobs:{SECRET}@"), 1);
    world
}

fn mute() {
    let world = as_jobs("~* resetchannels +@all");
    let said = world.ask("run x -- true", &[]);
    assert!(!said.err.contains(SECRET), "{said:?}");
    said.says(0, &["no right to publish on fencepost:wake:*", "grant the channel"]);
    world.ask("run -q x -- true", &[]).quiet(0);
    let _first = world.start("run -q x sleep 60", &[]);
    until("the first", || world.ask("status -q x --json", &[]).out.contains("\"held\":true").then_some(()));
    // Also one who waits, and so finds it out again, says it once.
    world.ask("run -w 300ms x -- true", &[]).err.lines().for_each(|line| assert!(!line.contains(SECRET)));
    let said = world.ask("run -w 300ms x -- true", &[]);
    assert_eq!((said.code, said.err.lines().count()), (75, 2), "{said:?}");
}

fn no_companions() {
    let world = as_jobs("~lock:* &* +@all");
    let said = world.ask("run x -- touch ran", &[]);
    assert!(!said.err.contains(SECRET), "{said:?}");
    said.says(77, &["~{lock:*"]);
    assert!(!world.path("ran").exists());
}

fn tls() {
    let files = Certificates::generate().expect("files");
    let options = Options {
        tls: Some(Tls { ask_clients: true, ..Tls::from(&files) }),
        users: vec![format!("jobs on >{SECRET} ~* &* +@all"), "default off".into()],
        ..Options::default()
    };
    let mut world = World::redis(options);
    std::fs::write(world.path("password"), SECRET).expect("ours");
    let (address, password) = (world.backend().proxy.addr(), world.path("password"));
    world.url = format!(
        "rediss://jobs@{address}?password_file={}&ca={}&cert={}&key={}",
        password.display(),
        files.authority().display(),
        files.client().display(),
        files.client_key().display()
    );
    let first = world.start(
        "run --ttl 2s --events events x -- sh -c",
        &["while [ ! -e enough ]; do sleep .01; done; echo $FENCEPOST_BACKEND"],
    );
    world.event("renewed");
    let next = world.start("run x -- echo next", &[]);
    world.waiters(1);
    std::fs::write(world.path("enough"), "").expect("ours");
    assert_eq!(first.said().quiet(0).trim(), format!("rediss://{address}/0"));
    assert_eq!(next.said().quiet(0).trim(), "next");
}

/// Not in the arguments of any process, the job's environment, what is recorded, or what is said.
fn no_password() {
    let mut world = as_jobs("~* &* +@all");
    let job = ["sh", "-c", "env >env; : >up; while [ ! -e enough ]; do sleep .01; done"];
    let url = std::mem::take(&mut world.url);
    std::fs::create_dir_all(world.path("home/.config/fencepost")).expect("ours");
    std::fs::write(world.path("home/.config/fencepost/config.toml"), format!("url = '{url}'")).expect("ours");
    let first = world.start("run -v --ttl 2s --events events --history history x --", &job);
    until("the job", || world.path("up").exists().then_some(()));
    world.event("renewed");
    for pid in world.scene.processes() {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&arguments).contains(SECRET), "{pid}");
    }
    world.control(Control::Delete("x".into()));
    let said = first.said();
    assert_eq!(said.code, 76, "{said:?}");
    assert!(!format!("{said:?}").contains(SECRET), "{said:?}");
    for file in ["env", "events", "history"] {
        let text = std::fs::read_to_string(world.path(file)).expect("it was written");
        assert!(!text.is_empty() && !text.contains(SECRET), "{file}: {text}");
    }
    let status = world.ask("status x --json", &[]);
    assert!(!format!("{status:?}").contains(SECRET), "{status:?}");
}

fn untracked() {
    let world = as_jobs("~* &* +@all -client|tracking");
    let first = world.start("run --ttl 3s --grace 200ms --events events x -- sleep 60", &[]);
    world.event("renewed");
    pass(100);
    world.control(Control::Delete("x".into()));
    let fault = crate::sys::now();
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    // The next renewal is a third of the lease away at most.
    let after = crate::sys::now() - fault;
    assert!(after < 2_000_000_000, "{after}");
}
