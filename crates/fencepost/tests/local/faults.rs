//! Roots and machines that cannot be used, each told in one sentence that names the fix.

use std::{fs, os::unix::fs::PermissionsExt, process::Command, time::Duration};

use fencepost::{About, ErrorKind, LeaseKind, Level, Locker, blocking::wait};
use rustix::process::Signal;

use crate::{
    roles::{Actor, command},
    support::{LOCK, TestRoot, now, until_waiting},
};

fn refusal(url: &str) -> (ErrorKind, String) {
    let error = wait(Locker::connect(url)).map(|_| ()).unwrap_err();
    (error.kind(), error.to_string())
}

#[track_caller]
fn assert_refused(url: &str, kind: ErrorKind, part: &str) {
    let (found, text) = refusal(url);
    assert_eq!(found, kind, "{text}");
    assert!(text.contains(part) && !text.contains('\n'), "{text}");
}

#[test]
fn urls_that_cannot_be_meant_are_refused() {
    for (url, part) in [
        ("local:locks", "absolute"),
        ("local://host/locks", "local:/path"),
        ("local:?ttl=3", "\"ttl\""),
        ("local:/proc/self/exe", "not a directory"),
        ("local:/proc/self/exe/locks", "not a directory"),
    ] {
        assert_refused(url, ErrorKind::Invalid, part);
    }
}

#[test]
fn the_promises_are_told() {
    let root = TestRoot::new();
    let locker = root.connect();
    let About { scheme, backend, lease, fifo, level, .. } = locker.about().clone();
    assert_eq!((scheme, backend), ("local", root.url()));
    assert_eq!((lease, fifo, level), (LeaseKind::None, true, Some(Level::Tokens)));
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    assert_eq!(guard.deadline(), None);
    let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("."), mode(LOCK), mode(".root")), (0o700, 0o700, 0o600));
    assert_eq!(mode(&format!("{LOCK}/.lock")), 0o600);
    assert_eq!(mode(&format!("{LOCK}/{:020}", guard.token().get())), 0o600);
}

#[test]
fn the_url_that_is_told_leads_to_the_same_root() {
    let root = TestRoot::new();
    for (typed, name) in [("r%2541", "r%41"), ("a%3Fb", "a?b"), ("c%23d", "c#d"), ("e%0Af", "e\nf")] {
        let locker = wait(Locker::connect(&format!("{}{typed}", root.url()))).unwrap();
        assert!(root.path().with_file_name(format!("root{name}")).is_dir());
        let again = wait(Locker::connect(&locker.about().backend)).unwrap();
        assert_eq!(again.about().lineage, locker.about().lineage, "{name}");
    }
}

#[test]
fn a_root_that_others_may_write_is_refused() {
    let root = TestRoot::new();
    root.connect();
    for (mode, part) in [(0o777, "chmod 700"), (0o1777, "anybody"), (0o770, "chmod 2770")] {
        fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
        assert_refused(&root.url(), ErrorKind::Denied, part);
    }
}

#[test]
fn a_shared_root_gives_its_group_all_rights_whatever_the_umask() {
    let root = TestRoot::new();
    fs::create_dir(root.path()).unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o2770)).unwrap();
    let holder = Actor::spawn(&mut shell("umask 077", &command("hold", &root.url())));
    let token: u64 = holder.hear().parse().unwrap();
    let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(LOCK), mode(".root")), (0o2770, 0o660));
    assert_eq!(mode(&format!("{LOCK}/.lock")), 0o660);
    assert_eq!(mode(&format!("{LOCK}/{token:020}")), 0o660);
    holder.signal(Signal::KILL);
}

#[test]
fn what_a_crash_left_to_one_member_of_a_group_is_shared_again() {
    let root = TestRoot::new();
    let dir = root.path().join(LOCK);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(".lock"), "").unwrap();
    let set_mode = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(root.path(), 0o2770);
    set_mode(dir.clone(), 0o700);
    set_mode(dir.join(".lock"), 0o600);
    wait(wait(root.connect().lock(LOCK).acquire()).unwrap().release()).unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(dir.clone()), mode(dir.join(".lock"))), (0o2770, 0o660));
}

#[test]
fn no_link_leads_out_of_a_root() {
    let (root, elsewhere) = (TestRoot::new(), TestRoot::new());
    let other = elsewhere.connect();
    let guard = wait(other.lock(LOCK).acquire()).unwrap();
    let locker = root.connect();
    std::os::unix::fs::symlink(elsewhere.path().join(LOCK), root.path().join(LOCK)).unwrap();
    let error = wait(locker.lock(LOCK).try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("remove it"), "{error}");
    assert_eq!(wait(locker.force_unlock(LOCK)).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(wait(locker.inspect(LOCK)).unwrap().holder, None);
    assert_eq!(wait(locker.list("")).unwrap(), []);
    wait(guard.release()).unwrap();
}

#[test]
fn a_root_file_of_somebody_else_is_not_overwritten() {
    let root = TestRoot::new();
    root.connect();
    let file = root.path().join(".root");
    fs::write(&file, "my notes").unwrap();
    assert_refused(&root.url(), ErrorKind::Invalid, "not Fencepost's");
    assert_eq!(fs::read(&file).unwrap(), b"my notes");
}

/// Runs `setup` and then `command` in one shell.
fn shell(setup: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{setup} && exec \"$0\" \"$@\"")]).arg(command.get_program());
    shell.args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    shell
}

/// Plays `role` as the root user of a namespace of its own, in which `setup` was run first.
fn in_namespace(setup: &str, role: &str, root: &TestRoot) -> Actor {
    let inner = shell(setup, &command(role, &root.url()));
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
    Actor::spawn(&mut command)
}

#[test]
fn a_file_system_that_is_not_on_the_list_is_refused() {
    let root = TestRoot::new();
    fs::create_dir(root.path()).unwrap();
    let dir = root.path();
    let said = in_namespace(&format!("mount -t ramfs none {}", dir.display()), "connect", &root).hear();
    assert!(said.starts_with("Invalid: ") && said.contains("0x858458f6"), "{said}");
    let said =
        in_namespace(&format!("mount -t tmpfs -o mode=700 none {}", dir.display()), "connect", &root).hear();
    assert!(said.starts_with("token "), "{said}");
}

#[test]
fn a_full_disk_is_told() {
    let root = TestRoot::new();
    fs::create_dir(root.path()).unwrap();
    let dir = root.path().display().to_string();
    let mount = format!("mount -t tmpfs -o mode=700,size=64k none {dir}");
    let said =
        in_namespace(&format!("{mount} && (cat /dev/zero > {dir}/x 2>&- || true)"), "connect", &root).hear();
    assert!(said.starts_with("Unavailable: ") && said.contains("is full"), "{said}");
}

#[test]
fn a_name_that_found_no_room_on_the_disk_is_written_later() {
    let root = TestRoot::new();
    let locker = root.connect();
    for len in [42, 44, 46] {
        let token = wait(locker.lock(LOCK).acquire()).unwrap().token();
        let lock_file = fs::File::options().write(true).open(root.path().join(LOCK).join(".lock")).unwrap();
        lock_file.set_len(len).unwrap();
        let guard = wait(locker.lock(LOCK).acquire()).unwrap();
        assert_eq!(guard.token().get(), token.get() + 1, "the counter goes on");
        assert_eq!(wait(locker.list("")).unwrap().len(), 1, "{len}");
        wait(guard.release()).unwrap();
    }
}

#[test]
fn a_read_only_root_is_told() {
    let root = TestRoot::new();
    root.connect();
    let dir = root.path().display().to_string();
    let setup = format!("mount --bind {dir} {dir} && mount -o remount,bind,ro {dir}");
    let said = in_namespace(&setup, "connect", &root).hear();
    assert!(said.starts_with("Denied: ") && said.contains("read-only"), "{said}");
}

#[test]
fn a_process_without_room_for_descriptors_is_told_and_a_soft_limit_is_raised() {
    let root = TestRoot::in_memory();
    root.connect();
    let said = Actor::spawn(&mut shell("ulimit -n 5", &command("connect", &root.url()))).hear();
    assert!(said.starts_with("Unavailable: ") && said.contains("ulimit -n"), "{said}");
    let mut crowd = shell("ulimit -Sn 256", &command("crowd", &root.url()));
    assert_eq!(Actor::spawn(&mut crowd).hear_within(Duration::from_secs(40)), "done");
}

#[test]
fn without_inotify_a_waiter_looks_for_itself() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let poller = in_namespace("echo 0 > /proc/sys/user/max_inotify_instances", "hold", &root);
    until_waiting(&locker, 1);
    let start = now();
    wait(guard.release()).unwrap();
    poller.hear();
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
}
