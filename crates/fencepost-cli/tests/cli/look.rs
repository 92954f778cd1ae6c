//! `status`, `ls`, `watch` and `force-unlock`, for people and for programs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use nix::sys::signal::Signal::{SIGKILL, SIGTERM};
use serde_json::{Value, json};

use crate::scene::{kill, trial, until};
use crate::world::{Running, World};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 7] = [
        ("look_at_a_free_lock", free),
        ("look_json_shape", shape),
        ("look_for_people", people),
        ("look_at_a_list", list),
        ("look_watch", watch),
        ("look_watch_ends_with_its_reader", watch_ends),
        ("look_force_unlock", force_unlock),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

fn holder(world: &World, name: &str) -> Running {
    let running = world.start(&format!("run --ttl 20s --label job {name} sleep 60"), &[]);
    let held = || world.ask(&format!("ls --json {name}"), &[]).out.contains("\"held\":true");
    until("the holder", || held().then_some(()));
    running
}

fn end(running: Running) {
    kill(running.pid(), SIGTERM);
    running.said().quiet(143);
}

fn free() {
    for world in [World::local(), World::leased("claim")] {
        let said = world.ask("status x", &[]).quiet(0);
        assert!(said.starts_with("x\tfree, at ") && said.lines().count() == 1, "{said}");
        let status = world.status();
        let backend = world.url.split('?').next().expect("an address");
        let expected =
            json!({ "lock": "x", "backend": backend, "held": false, "holder": null, "waiters": [] });
        assert_eq!(status, expected);
        world.ask("ls", &[]).says(0, &["no lock is held or waited for at", backend]);
        assert_eq!(world.ask("ls -q", &[]).quiet(0), "");
        assert_eq!(world.ask("ls --json", &[]).quiet(0), "");
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// The stable form: a change of it breaks those who read it.
fn shape() {
    for world in [World::local(), World::leased("claim"), World::leased("session")] {
        let first = holder(&world, "x");
        let waiter = world.start("run x true", &[]);
        world.waiters(1);
        let status = world.status();
        assert_eq!(keys(&status), ["backend", "held", "holder", "lock", "waiters"]);
        let holder = &status["holder"];
        assert_eq!(keys(holder), ["expires_in_ms", "owner", "token"]);
        assert!(holder["token"].as_str().is_some_and(|token| token.parse::<u64>().is_ok()), "{status}");
        match world.leased {
            None => assert_eq!(holder["expires_in_ms"], Value::Null),
            Some(_) => {
                assert!(holder["expires_in_ms"].as_u64().is_some_and(|left| left <= 20_000), "{status}")
            }
        }
        for (owner, pid, label) in [
            (&holder["owner"], first.pid(), json!("job")),
            (&status["waiters"][0], waiter.pid(), Value::Null),
        ] {
            assert_eq!(keys(owner), ["host", "label", "pid", "since", "value"]);
            assert_eq!((&owner["pid"], &owner["label"]), (&pid.into(), &label));
            let since = owner["since"].as_str().expect("a time");
            assert!(since.len() == 24 && since.ends_with('Z'), "{since}");
        }
        end(first);
        waiter.said().quiet(0);
    }
}

fn people() {
    for (world, expires) in [(World::local(), false), (World::leased("claim"), true)] {
        let first = holder(&world, "x");
        let waiter = world.start("run x true", &[]);
        world.waiters(1);
        let out = world.ask("status x", &[]).quiet(0);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2, "{out}");
        assert!(lines[0].starts_with(&format!("x\theld by pid {} on ", first.pid())), "{out}");
        assert!(lines[0].contains(" (job) for ") && lines[0].contains(", token "), "{out}");
        assert_eq!(lines[0].contains(", expires in "), expires, "{out}");
        assert!(lines[1].starts_with(&format!("\twaiting: pid {} on ", waiter.pid())), "{out}");
        end(first);
        waiter.said().quiet(0);
    }
}

fn list() {
    for world in [World::local(), World::leased("claim")] {
        let held: Vec<_> = ["b", "a/1", "a/2", "ab"].map(|name| holder(&world, name)).into();
        let names = |prefix: &str| {
            let out = world.ask(&format!("ls {prefix}"), &[]).quiet(0);
            out.lines().map(|line| line.split('\t').next().expect("a name").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["a/1", "a/2", "ab", "b"]);
        assert_eq!(names("a/"), ["a/1", "a/2"]);
        let out = world.ask("ls --json a/", &[]).quiet(0);
        let locks: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!([&locks[0]["lock"], &locks[1]["lock"]], ["a/1", "a/2"]);
        held.into_iter().for_each(end);
    }
}

fn watch() {
    for world in [World::local(), World::leased("claim")] {
        let watching = world.start("watch x --json", &[]);
        let states = || {
            let out = watching.out();
            let whole = out.rfind('\n').map_or("", |end| &out[..end]);
            let value = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
            whole.lines().map(value).map(|status| status["held"] == true).collect::<Vec<_>>()
        };
        until("the first state", || (states() == [false]).then_some(()));
        let first = holder(&world, "x");
        until("the holder", || states().ends_with(&[true]).then_some(()));
        end(first);
        until("the release", || states().ends_with(&[true, false]).then_some(()));
        // Changes only: no two states that are the same, but for who waits.
        kill(watching.pid(), SIGKILL);
        assert!(states().len() <= 4, "{:?}", states());
    }
}

fn watch_ends() {
    for world in [World::local(), World::leased("claim")] {
        let mut command = world.command("watch x", &[]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut watching = command.spawn().expect("it starts");
        let mut line = String::new();
        let mut reader = BufReader::new(watching.stdout.take().expect("a pipe"));
        reader.read_line(&mut line).expect("a line");
        assert!(line.starts_with("x\tfree, at "), "{line}");
        // Nothing changes, and yet it ends.
        drop(reader);
        let status = until("its end", || watching.try_wait().expect("our child"));
        let said = std::io::read_to_string(watching.stderr.take().expect("a pipe")).expect("text");
        assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    }
    let world = World::local();
    let said = world.shell("$FENCEPOST watch x | head -1; echo ${PIPESTATUS[@]}").quiet(0);
    assert!(said.starts_with("x\tfree, at ") && said.ends_with("\n0 0\n"), "{said}");
}

fn force_unlock() {
    for world in [World::local(), World::leased("claim")] {
        world.ask("force-unlock x", &[]).says(64, &["asks first", "--yes"]);
        let first = holder(&world, "x");
        world.ask("force-unlock x", &[]).says(64, &["--yes"]);
        let held =
            world.status()["holder"]["token"].as_str().expect("a string").parse::<u64>().expect("a token");
        let who = format!("lock=x was held by pid {}", first.pid());
        let forced =
            world.ask("force-unlock x --yes", &[]).says(0, &[&who, "(job)", "raise its gate with token="]);
        let forced: u64 = forced.trim().parse().expect("a token");
        assert!(forced > held);
        first.said().says(76, &[]);
        let next = world.ask("run x --", &["sh", "-c", "echo $FENCEPOST_TOKEN"]).quiet(0);
        assert!(next.trim().parse::<u64>().expect("a token") > forced);
        let nobody = world.ask("force-unlock x --yes", &[]).says(0, &["lock=x was held by nobody"]);
        assert!(nobody.trim().parse::<u64>().expect("a token") > forced);
    }
    // At a terminal it asks. `script` gives it one.
    let world = World::local();
    let command = world.command("", &[]);
    for (answer, changes) in [("n", false), ("", false), ("y", true)] {
        let first = holder(&world, "x");
        let mut script = Command::new("script");
        script.args(["-qec", "$FENCEPOST force-unlock x", "/dev/null"]).env_clear().stdin(Stdio::piped());
        script.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut script = script.stdout(Stdio::piped()).spawn().expect("script of util-linux is installed");
        let mut input = script.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut input, format!("{answer}\n").as_bytes()).expect("it reads");
        let status = until("the answer", || script.try_wait().expect("our child"));
        let said = std::io::read_to_string(script.stdout.take().expect("a pipe")).expect("text");
        assert!(said.contains("take x away, held by pid") && said.contains("[y/N]"), "{said}");
        assert_eq!(status.code(), Some(if changes { 0 } else { 75 }), "{said}");
        assert_eq!(world.is_held(), !changes);
        if changes {
            first.said().says(76, &[]);
        } else {
            end(first);
        }
    }
}
