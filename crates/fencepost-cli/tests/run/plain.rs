//! A job finds everything as if we were not there, and its end is told as it was.

use std::fs::File;
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use nix::sys::signal::Signal::SIGKILL;

use crate::scene::{Scene, alive, kill, me, trial, until};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("exit_status_is_the_commands", exit_status),
        trial("environment_is_replaced", environment),
        trial("signal_state_is_the_callers", signal_state),
        trial("closed_descriptors_stay_closed", closed_descriptors),
        trial("pipes_end_with_the_job", pipes),
        trial("own_group_without_a_terminal", own_group),
        trial("inherited_descriptor_keeps_the_lock", inherited_descriptor),
        trial("max_hold_passes_the_descriptor_on", passed_descriptor),
        trial("close_fd_job_dies_with_its_parent", close_fd),
        trial("children_from_before_are_spared", strangers),
        trial("an_unstarted_job_after_loss", lost_before),
        trial("an_unstarted_job_after_its_deadline", late),
    ]
}

/// With a guardian, and without one.
const BOTH: [&str; 2] = ["ttl=5000 every=200", ""];

fn output(script: &str, shell: &str, job: &[&str]) -> (i32, String) {
    let scene = Scene::new();
    let program = scene.program(script, job);
    let mut command = Command::new("setsid");
    command.args(["-w", "sh", "-c", shell, "sh"]).arg(program.get_program()).args(program.get_args());
    let output = command.env("SCENE", scene.path()).output().expect("setsid of util-linux is installed");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text.trim().to_owned())
}

fn exit_status() {
    for script in BOTH {
        let code = |job: &[&str]| output(script, "\"$@\"", job);
        assert_eq!(code(&["true"]), (0, String::new()), "{script}");
        assert_eq!(code(&["sh", "-c", "exit 7"]).0, 7, "{script}");
        assert_eq!(code(&["sh", "-c", "kill -TERM $$"]).0, 143, "{script}");
        assert_eq!(code(&["sh", "-c", "kill -KILL $$"]).0, 137, "{script}");
        assert_eq!(code(&["sh", "-c", "kill -37 $$"]).0, 165, "{script}: a realtime signal");
        assert_eq!(code(&["/no/such/file"]).0, 127, "{script}");
        let (not_found, message) = code(&["no-such-command"]);
        assert_eq!(not_found, 127, "{script}");
        assert!(message.starts_with("fencepost: command not found"), "{message}");
        assert_eq!(code(&["/etc/passwd"]).0, 126, "{script}");
        assert_eq!(code(&["/"]).0, 126, "{script}");
    }
}

fn environment() {
    for script in BOTH {
        let shell = "FENCEPOST_TOKEN=outer exec \"$@\"";
        assert_eq!(output(script, shell, &["printenv", "FENCEPOST_TOKEN"]).1, "7", "{script}");
        assert_eq!(
            output(script, "\"$@\"", &["pwd"]).1,
            std::env::current_dir().unwrap().display().to_string()
        );
    }
}

fn signal_state() {
    let look = ["grep", "^Sig[BIC]", "/proc/self/status"];
    for ignored in ["HUP", "PIPE", "CHLD", "USR1,RTMIN+2", "TTOU,INT"] {
        let shell = format!("exec env --ignore-signal={ignored} \"$@\"");
        let plain = Command::new("sh").args(["-c", &shell, "sh"]).args(look).output().expect("sh is there");
        let plain = sets(&String::from_utf8_lossy(&plain.stdout));
        assert_ne!(plain[1], 0, "{ignored}");
        for script in BOTH {
            assert_eq!(sets(&output(script, &shell, &look).1), plain, "{ignored} {script}");
            assert_eq!(sets(&output(script, "\"$@\"", &look).1)[..2], [0, 0], "{script}");
        }
    }
    // A blocked signal stays blocked.
    for script in BOTH {
        let ours = output(script, "exec env --block-signal=USR2 \"$@\"", &look).1;
        assert_eq!(sets(&ours)[0], 1 << 11, "{ours}");
    }
}

/// The signals blocked, ignored and caught, without the two that glibc keeps for its threads.
fn sets(status: &str) -> Vec<u64> {
    let sets = status.lines().filter_map(|line| u64::from_str_radix(line.split_once('\t')?.1, 16).ok());
    let sets: Vec<_> = sets.map(|set| set & !(0b11 << 31)).collect();
    assert_eq!(sets.len(), 3, "{status}");
    sets
}

fn closed_descriptors() {
    for script in BOTH {
        let job = ["sh", "-c", "for i in 0 1 2; do test -e /proc/$$/fd/$i && printf $i >&9; done; exit 0"];
        for (closing, open) in
            [("<&-", "12"), (">&-", "02"), ("2>&-", "01"), ("<&- >&- 2>&-", ""), ("", "012")]
        {
            let shell = format!("exec 9>&1; exec \"$@\" {closing}");
            assert_eq!(output(script, &shell, &job), (0, open.to_owned()), "{closing} {script}");
        }
    }
}

fn pipes() {
    for script in BOTH {
        // The reader must see the end while the job still runs, and the writer that nobody reads any more.
        let out = "\"$@\" | { cat; test -e $SCENE/ended || echo early; }";
        let job = "exec >/dev/null; sleep 0.5; : > $SCENE/ended";
        assert_eq!(output(script, out, &["sh", "-c", job]).1, "early", "{script}");
        let input = "(yes; : > $SCENE/broken) 2>/dev/null | \"$@\"";
        let job = "exec </dev/null; sleep 0.5; test -e $SCENE/broken && echo broken";
        assert_eq!(output(script, input, &["sh", "-c", job]).1, "broken", "{script}");
        assert_eq!(output(script, "echo through | \"$@\"", &["cat"]).1, "through", "{script}");
    }
}

fn own_group() {
    for script in BOTH {
        let (_, text) = output(script, "\"$@\"", &["sh", "-c", "echo $$; cut -d' ' -f5 /proc/self/stat"]);
        let (pid, group) = text.split_once('\n').expect("two lines");
        assert_eq!(pid, group, "{script}");
    }
}

fn is_locked(scene: &Scene) -> bool {
    File::open(scene.path().join("lock")).expect("it is there").try_lock().is_err()
}

fn leaf_with_lock(script: &str) -> Scene {
    let mut scene = Scene::new();
    let path = scene.path().join("lock");
    File::create(&path).expect("the directory is there");
    let script = format!("{script} inherit={}", path.display());
    let program = scene.program(&script, &[me().to_str().expect("a plain path"), "role:leaf", "job"]);
    scene.spawn(program);
    let _ = scene.last_stamp("job");
    scene
}

fn inherited_descriptor() {
    let scene = leaf_with_lock("");
    kill(scene.read("supervisor"), SIGKILL);
    let supervisor: i32 = scene.read("supervisor");
    until("supervisor's death", || (!alive(supervisor)).then_some(()));
    assert!(alive(scene.read("job")));
    assert!(is_locked(&scene));
    std::fs::write(scene.path().join("enough"), "").expect("it can be written");
    until("the lock's end", || (!is_locked(&scene)).then_some(()));
}

fn passed_descriptor() {
    let scene = leaf_with_lock("max=5000");
    assert!(is_locked(&scene));
    let holds = |pid: i32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
        let lock = scene.path().join("lock");
        fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).any(|file| file == lock)
    };
    assert!(holds(scene.read("job")));
    // The job may run before those who handed it on come to let go of it.
    until("the guardian's copy's end", || (!holds(scene.guardian())).then_some(()));
    until("the supervisor's copy's end", || (!holds(scene.read("supervisor"))).then_some(()));
}

fn close_fd() {
    let me = me();
    let scene = Scene::start("", &[me.to_str().expect("a plain path"), "role:leaf", "job"]);
    let _ = scene.last_stamp("job");
    kill(scene.read("supervisor"), SIGKILL);
    let job = scene.read("job");
    until("death", || (!alive(job)).then_some(()));
}

fn strangers() {
    for script in ["ttl=5000 every=100 lose=300", "lose=300"] {
        let scene = Scene::new();
        let program = scene.program(script, &["sleep", "60"]);
        let mut shell = Command::new("setsid");
        let from_before = "sleep 5 & echo $!; exec \"$@\" 2>/dev/null";
        shell.args(["-w", "sh", "-c", from_before, "sh"]).arg(program.get_program()).args(program.get_args());
        let mut shell = shell.env("SCENE", scene.path()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let output = shell.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
        let stranger: i32 = line.trim().parse().expect("a number");
        assert_eq!(shell.wait().expect("our child").code(), Some(76), "{script}");
        assert!(alive(stranger), "{script}");
        kill(stranger, SIGKILL);
    }
}

fn lost_before() {
    let (code, text) = output("ttl=5000 lose=0 wait=10 max=0", "\"$@\"", &["echo", "started"]);
    assert_eq!(code, 76);
    assert!(!text.contains("started"), "{text}");
}

fn late() {
    let (code, text) = output("ttl=0", "\"$@\"", &["echo", "started"]);
    assert_eq!(code, 76, "{text}");
    assert!(!text.contains("started"), "{text}");
}
