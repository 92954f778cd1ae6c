//! Roots of the embedded engine that cannot be one. The mounts are private to the one process that needs them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use libtest_mimic::Trial;

use crate::scene::trial;
use crate::world::{Said, World};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 3] = [
        ("roots_missing_are_made", missing),
        ("roots_of_the_wrong_kind", wrong_kind),
        ("roots_open_to_others", open),
    ];
    let as_root: [(&str, fn()); 3] =
        [("roots_of_others", of_others), ("roots_full", full), ("roots_on_other_file_systems", file_systems)];
    let needs_root = !nix::unistd::geteuid().is_root();
    let tests = tests.into_iter().map(|(name, test)| trial(name, test));
    tests.chain(as_root.map(|(name, test)| trial(name, test).with_ignored_flag(needs_root))).collect()
}

fn run(world: &World, root: &str) -> Said {
    world.ask(&format!("--url local:{root} run x -- touch ran"), &[])
}

fn refused(world: &World, root: &str, code: i32, parts: &[&str]) {
    run(world, root).says(code, parts);
    assert!(!world.path("ran").exists(), "{root}");
}

fn path(world: &World, name: &str) -> String {
    world.path(name).to_str().expect("plain").to_owned()
}

fn missing() {
    let world = World::local();
    run(&world, &path(&world, "a/b/c")).quiet(0);
    for folder in ["a", "a/b", "a/b/c"] {
        let mode = fs::metadata(world.path(folder)).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{folder}");
    }
    symlink(world.path("a/b/c"), world.path("link")).expect("the directory is ours");
    run(&world, &path(&world, "link")).quiet(0);
    run(&world, &path(&world, "with%20space")).quiet(0);
    assert!(world.path("with space").is_dir());
}

fn wrong_kind() {
    let world = World::local();
    fs::write(world.path("file"), "").expect("the directory is ours");
    refused(
        &world,
        &path(&world, "file"),
        78,
        &["--url: ", "/file is not a directory; use another root, local:/path"],
    );
    refused(&world, &path(&world, "file/below"), 78, &["is not a directory"]);
    symlink("nowhere/at/all", world.path("dangling")).expect("the directory is ours");
    refused(&world, &path(&world, "dangling"), 78, &["dangling"]);
    fs::create_dir(world.path("strange")).expect("the directory is ours");
    fs::write(world.path("strange/.root"), "not ours").expect("the directory is ours");
    refused(
        &world,
        &path(&world, "strange"),
        78,
        &["/strange/.root is not Fencepost's; remove it, or use another root"],
    );
}

fn open() {
    let world = World::local();
    let root = path(&world, "open");
    fs::create_dir(&root).expect("the directory is ours");
    for (mode, part) in [
        (0o777, "anybody may write in"),
        (0o1777, "chmod 700 it, or use another root"),
        (0o770, "a group may write in"),
    ] {
        fs::set_permissions(&root, Permissions::from_mode(mode)).expect("it is ours");
        refused(&world, &root, 77, &["--url: ", part, &root]);
    }
    fs::set_permissions(&root, Permissions::from_mode(0o2770)).expect("it is ours");
    run(&world, &root).quiet(0);
}

fn of_others() {
    let world = World::local();
    let root = path(&world, "nobodys");
    fs::create_dir(&root).expect("the directory is ours");
    chown(&root, Some(65534), Some(65534)).expect("we are root");
    refused(&world, &root, 77, &["belongs to uid 65534, not to uid 0, and is not shared; chmod 2770 it"]);
    // And as somebody who may not write there. The command is copied to where that user can reach it.
    fs::set_permissions(world.scene.path(), Permissions::from_mode(0o755)).expect("it is ours");
    fs::copy(crate::world::FENCEPOST, world.path("copy")).expect("the directory is ours");
    let other = format!("exec setpriv --reuid 65534 --regid 65534 --clear-groups ./copy --url local:{root}");
    world.shell(&format!("TMPDIR={root} {other} run x true")).quiet(0);
    let ours = path(&world, "ours");
    world
        .shell(&format!("{} run x touch ran", other.replace(&root, &ours)))
        .says(77, &["uid 65534 may not write in", &ours]);
    fs::create_dir(&ours).expect("the directory is ours");
    world.shell(&format!("{} run x touch ran", other.replace(&root, &ours))).says(77, &["belongs to uid 0"]);
    // Nowhere to publish the lock: `run` says so and goes on, `hold` gives the lock back.
    let nowhere = format!("TMPDIR=/nowhere XDG_RUNTIME_DIR=/nowhere {other}");
    let parts = ["no folder for handles can be made: ", "path=/nowhere"];
    world
        .shell(&format!("{nowhere} run x true"))
        .says(0, &[&["`fencepost held` will not work"], &parts[..]].concat());
    world
        .shell(&format!("{nowhere} hold --pid $$ x"))
        .says(70, &[&["cannot hold the lock: "], &parts[..]].concat());
    world.shell(&format!("TMPDIR={root} {other} run -n x true")).quiet(0);
    assert!(!world.path("ran").exists());
}

/// Mounts something at `m`, for this one script.
fn mounted(world: &World, mount: &str, script: &str) -> Said {
    world.shell(&format!("exec unshare --mount sh -c 'mkdir -p m && {mount} m && {script}'"))
}

fn full() {
    let world = World::local();
    let root = path(&world, "m/root");
    let fill = "{ cat /dev/zero >m/fill; } 2>/dev/null";
    let run = format!("exec $FENCEPOST --url local:{root} run --connect-timeout 500ms x touch ran");
    let parts = ["the disk that holds", &root, "is full; free some space"];
    let mount = "mount -t tmpfs -o size=64k none";
    mounted(&world, mount, &format!("{fill}; {run}")).says(69, &parts);
    mounted(&world, mount, &format!("$FENCEPOST --url local:{root} run y true; {fill}; {run}"))
        .says(69, &parts);
    assert!(!world.path("ran").exists());
    // It works again as soon as there is space.
    let freed = format!("{fill}; {run} 2>/dev/null; rm m/fill; {run}");
    mounted(&world, mount, &freed.replacen("exec ", "", 1)).quiet(0);
}

fn file_systems() {
    let world = World::local();
    let root = path(&world, "m/root");
    let run = format!("exec $FENCEPOST --url local:{root} run x touch ran");
    let unfit =
        "whose file locks are not known to be the kernel's own; use a root on a local disk, local:/path";
    mounted(&world, "mount -t ramfs none", &run).says(78, &["is on a file system of type 0x858458f6", unfit]);
    mounted(&world, "mount -t tmpfs -o ro none", &run)
        .says(77, &["is on a read-only file system; use another root"]);
    assert!(!world.path("ran").exists());
}
