//! `run` over `local:`: the command itself keeps the lock, and nothing expires.

use libtest_mimic::Trial;
use nix::sys::signal::Signal::{SIGKILL, SIGTERM};

use crate::scene::{alive, kill, me, trial, until};
use crate::sys;
use crate::world::{Running, World, files_in};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 16] = [
        ("local_supervisor_killed", supervisor_killed),
        ("local_background_survivor", survivor),
        ("local_close_fd", close_fd),
        ("local_close_fd_and_the_supervisor_killed", close_fd_supervisor_killed),
        ("local_close_fd_and_max_hold", close_fd_max_hold),
        ("local_forced_out", forced_out),
        ("local_nested", nested),
        ("local_environment", environment),
        ("local_streams", streams),
        ("local_statuses", statuses),
        ("local_min_hold", min_hold),
        ("local_max_hold", max_hold),
        ("local_require", require),
        ("local_above", above),
        ("local_with_few_descriptors", few_descriptors),
        ("local_names_are_bytes", names_are_bytes),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

fn leaf(name: &str) -> [String; 3] {
    [me().display().to_string(), "role:leaf".into(), name.into()]
}

fn supervisor_killed() {
    let world = World::local();
    let job = leaf("job");
    let first = world.start("run x --", &job.each_ref().map(String::as_str));
    let pid = world.scene.read("job");
    let mut next = world.start("run x --", &[&job[0], "role:now", "next"]);
    world.waiters(1);
    kill(first.pid(), SIGKILL);
    assert_eq!(first.said().code, -9);
    // The job lives, and so does its lock, with the old holder's name on it.
    assert!(alive(pid) && world.is_held() && next.is_running());
    std::fs::write(world.path("enough"), "").expect("the directory is ours");
    next.said().quiet(0);
    let waited = world.scene.read::<u64>("next").saturating_sub(world.scene.last_stamp("job"));
    assert!(waited < 1_000_000_000, "the next one ran {waited} ns after the end of the job");
    assert!(world.scene.read::<u64>("next") > world.scene.last_stamp("job"));
}

fn survivor() {
    let world = World::local();
    world.ask("run x --", &["sh", "-c", "sleep 60 & echo $! >survivor"]).quiet(0);
    world.ask("run -n x true", &[]).says(75, &["lock=x is held"]);
    kill(world.scene.read::<String>("survivor").trim().parse().expect("a number"), SIGKILL);
    until("the survivor's lock to end", || (world.ask("run -n x true", &[]).code == 0).then_some(()));
}

fn close_fd() {
    let world = World::local();
    world.ask("run --close-fd x --", &["sh", "-c", "sleep 60 & echo $! >survivor"]).quiet(0);
    assert!(alive(world.scene.read::<String>("survivor").trim().parse().expect("a number")));
    world.ask("run -n x true", &[]).quiet(0);
}

/// Starts a command that does not hear TERM, and one that waits for its lock; answers both.
fn close_fd_tree(world: &World, options: &str) -> (Running, Running) {
    let me = me().display().to_string();
    let first =
        world.start(&format!("run --close-fd --ttl 2s {options} x --"), &[&me, "role:tree", "stubborn"]);
    world.scene.tree_is_up();
    let next = world.start("run x --", &[&me, "role:now", "next"]);
    world.waiters(1);
    (first, next)
}

/// The lock was kept until the last process of the first command was dead, and no longer.
fn close_fd_ended(world: &World, next: Running) {
    let dead = world.scene.tree_is_dead();
    next.said().quiet(0);
    let began = world.scene.read::<u64>("next");
    assert!(dead < began, "alive for {} ms beside the next one", (dead - began) / 1_000_000);
    until("no process", || world.scene.processes().is_empty().then_some(()));
}

fn close_fd_supervisor_killed() {
    let world = World::local();
    let (first, next) = close_fd_tree(&world, "");
    kill(first.pid(), SIGKILL);
    close_fd_ended(&world, next);
}

fn close_fd_max_hold() {
    let world = World::local();
    let (first, next) = close_fd_tree(&world, "--max-hold 2s");
    kill(first.pid(), SIGKILL);
    close_fd_ended(&world, next);
    let world = World::local();
    let (first, next) = close_fd_tree(&world, "--max-hold 1s");
    first.said().says(76, &["--max-hold is over"]);
    close_fd_ended(&world, next);
    world.nothing_is_left();
}

fn forced_out() {
    let world = World::local();
    let me = me().display().to_string();
    let first = world.start("run x --", &[&me, "role:tree"]);
    world.scene.tree_is_up();
    let held: u64 = world.status()["holder"]["token"].as_str().expect("a string").parse().expect("a token");
    let forced =
        world.ask("force-unlock x --yes", &[]).says(0, &["lock=x was held by pid", "raise its gate"]);
    assert!(forced.trim().parse::<u64>().expect("a token") > held);
    first.said().says(76, &["the lock was lost, so the command was stopped"]);
    world.scene.tree_is_dead();
    world.nothing_is_left();
}

fn nested() {
    let world = World::local();
    let inner = "$FENCEPOST run inner -- sh -c 'echo $FENCEPOST_LOCK $FENCEPOST_TOKEN; $FENCEPOST held'";
    let script = format!("echo $FENCEPOST_LOCK $FENCEPOST_TOKEN; {inner}; $FENCEPOST held && echo held");
    let out = world.ask("run outer --", &["sh", "-c", &script]).quiet(0);
    let lines: Vec<&str> = out.lines().collect();
    let [outer, inner, "held"] = lines[..] else { panic!("{out}") };
    assert!(outer.starts_with("outer ") && inner.starts_with("inner "), "{out}");
    world.nothing_is_left();
}

fn environment() {
    let world = World::local();
    let script = "env | grep ^FENCEPOST_ | sort; stat -c '%a %n' $FENCEPOST_HANDLE; cat $FENCEPOST_HANDLE";
    let mut command = world.command("run orders/4821 --", &["sh", "-c", script]);
    for inherited in ["FENCEPOST_LOCK", "FENCEPOST_TOKEN", "FENCEPOST_HANDLE"] {
        command.env(inherited, "an outer one");
    }
    let out = world.spawn(command).said().quiet(0);
    let value = |name: &str| {
        out.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {out}"))
    };
    let (token, handle) = (value("FENCEPOST_TOKEN="), value("FENCEPOST_HANDLE="));
    assert!(token.parse::<u64>().is_ok(), "{out}");
    assert_eq!(value("FENCEPOST_LOCK="), "orders/4821");
    assert_eq!(value("FENCEPOST_BACKEND="), world.url);
    assert!(!value("FENCEPOST_LINEAGE=").is_empty());
    assert!(out.contains(&format!("600 {handle}")), "{out}");
    let published: serde_json::Value =
        serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&published["token"], &published["state"]), (&token.into(), &"held".into()));
    assert!(!std::path::Path::new(handle).exists());
}

fn streams() {
    let world = World::local();
    let text = "a line of text\n".repeat(30_000);
    std::fs::write(world.path("text"), &text).expect("the directory is ours");
    assert_eq!(world.shell("exec $FENCEPOST run x cat <text").quiet(0), text);
    assert_eq!(
        world.shell("cat text | $FENCEPOST run x -- cat | wc -c").quiet(0).trim(),
        text.len().to_string()
    );
    let lines = world.shell("$FENCEPOST run x cat text | head -1; echo ${PIPESTATUS[@]}").quiet(0);
    assert_eq!(lines, "a line of text\n141 0\n");
    let closed = "$FENCEPOST run x -- sh -c 'test ! -e /proc/$$/fd/0 && test ! -e /proc/$$/fd/1' <&- >&-";
    world.shell(closed).quiet(0);
    // The command gets the descriptors that it would have without us, and no other.
    let open = "sh -c 'ls /proc/$$/fd'";
    let compare = format!("{open} >without; $FENCEPOST run --close-fd x -- {open} >with; diff without with");
    world.shell(&compare).quiet(0);
    assert_eq!(world.ask("run x -- echo -n -q --ttl", &[]).quiet(0), "-q --ttl");
}

fn statuses() {
    let world = World::local();
    world.ask("run x --", &["sh", "-c", "exit 7"]).quiet(7);
    world.ask("run x --", &["sh", "-c", "exit 75"]).quiet(75);
    world.ask("run x --", &["sh", "-c", "kill -TERM $$"]).quiet(143);
    world.ask("run x --", &["sh", "-c", "kill -KILL $$"]).quiet(137);
    let running =
        world.start("run x --", &["sh", "-c", "trap 'exit 9' TERM; : >up; while :; do sleep .01; done"]);
    until("up", || world.path("up").exists().then_some(()));
    kill(running.pid(), SIGTERM);
    assert_eq!(running.said().code, 9);
    world.ask("run x -- ./missing", &[]).says(127, &["command not found", "command=./missing"]);
    std::fs::write(world.path("text"), "").expect("the directory is ours");
    world.ask("run x -- ./text", &[]).says(126, &["cannot execute", "command=./text"]);
    world.ask("run x -- .", &[]).says(126, &["cannot execute"]);
    world.nothing_is_left();
}

fn min_hold() {
    let world = World::local();
    let began = sys::now();
    let first = world.start("run --min-hold 700ms x true", &[]);
    until("the first", || world.is_held().then_some(()));
    world.ask("run x true", &[]).quiet(0);
    assert!(sys::now() - began >= 700_000_000);
    first.said().quiet(0);
    // A signal cuts it short.
    let first = world.start("run --min-hold 1h x -- touch ran", &[]);
    until("the job", || world.path("ran").exists().then_some(()));
    until("the job's end", || crate::scene::children(first.pid()).is_empty().then_some(()));
    kill(first.pid(), SIGTERM);
    first.said().quiet(0);
    world.nothing_is_left();
}

fn max_hold() {
    let world = World::local();
    let me = me().display().to_string();
    let began = sys::now();
    let said = world.ask("run --max-hold 500ms --ttl 800ms x --", &[&me, "role:tree", "stubborn"]);
    said.says(76, &["--max-hold is over, so the command was stopped"]);
    let dead = world.scene.tree_is_dead();
    assert!(dead >= began + 500_000_000 && dead < began + 2_000_000_000);
    world.nothing_is_left();
}

fn require() {
    let world = World::local();
    world.ask("run --require tokens x true", &[]).quiet(0);
    let said = world.ask("run --require consensus x -- touch ran", &[]);
    said.says(78, &["--require:", "local: reaches level=tokens, not level=consensus"]);
    assert!(!world.path("ran").exists());
    world.ask("run --require much x true", &[]).says(64, &["--require", "tokens, consensus"]);
}

fn above() {
    let world = World::local();
    let script = ["sh", "-c", "echo $FENCEPOST_TOKEN"];
    let number = |out: String| out.trim().parse::<u64>().expect("a token");
    let first = number(world.ask("run x --", &script).quiet(0));
    let floor = first + 1_000_000;
    let above = number(world.ask(&format!("run --above {floor} x --"), &script).quiet(0));
    let next = number(world.ask("run x --", &script).quiet(0));
    assert!(floor < above && above < next, "{floor} {above} {next}");
    world.ask("run --above 18446744073709551615 x true", &[]).says(64, &["no token above its floor"]);
}

/// However few there may be: the command ends by itself, or it is not started, or it is stopped. The thread that the
/// supervisor starts after half a second needs some, so that it is not there in some of these.
fn few_descriptors() {
    let world = World::local();
    let script = "for n in $(seq 6 24); do (
            ulimit -n $n
            $FENCEPOST run lock-$n -- sh -c ': >began-$0; sleep .8; : >ended-$0' $n 2>err-$n
            echo $? >code-$n
        ) & done; wait";
    world.shell(script).quiet(0);
    let is_there = |name: String| world.path(&name).exists();
    let mut completed = 0;
    for n in 6..=24 {
        let code = std::fs::read_to_string(world.path(&format!("code-{n}"))).expect("it ended");
        let err = std::fs::read_to_string(world.path(&format!("err-{n}"))).expect("it was started");
        let (began, ended) = (is_there(format!("began-{n}")), is_there(format!("ended-{n}")));
        assert!(!began || !err.contains("panicked"), "{n}: {err}");
        assert!(code.trim() != "0" || (began && ended), "{n}: {err}");
        completed += u32::from(ended);
    }
    assert!(completed > 0);
}

fn names_are_bytes() {
    let world = World::local();
    // Two letters that differ by case, and one letter in two Unicode forms: four locks.
    for name in ["a", "A", "\u{e9}", "e\u{301}"] {
        let pid = format!("hold --pid {} --", std::process::id());
        world.ask(&pid, &[name]).quiet(0);
    }
    let listed = world.ask("ls --json", &[]).quiet(0);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    for handle in files_in(&world.path("run/fencepost")) {
        world.ask("release", &[world.path("run/fencepost").join(handle).to_str().expect("plain")]).quiet(0);
    }
    world.nothing_is_left();
}
