//! Modes and rights. As root, a part is done by a process that gives root up. (Owners: `tests/gates` of the lab.)

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    process::Command,
};

use fencepost::gate::FileGate;
use rustix::process::geteuid;

use crate::Place;

const PATH: &str = "FENCEPOST_TEST_PATH";
/// The user `nobody` of most systems; the number needs no entry anywhere.
const NOBODY: u32 = 65534;

/// Plays a writer in a process of its own, and tells what became of it.
#[test]
#[ignore = "a part that the other tests start"]
fn play() {
    let path = std::env::var(PATH).unwrap();
    let written = FileGate::new(path).and_then(|gate| gate.open(crate::pass(42))?.write("played"));
    match written {
        Ok(()) => println!("\n@written"),
        Err(error) => println!("\n@{:?}: {error}", error.kind()),
    }
}

/// The command that plays the writer of this place.
pub(crate) fn player(place: &Place) -> Command {
    play_by(std::env::current_exe().unwrap(), place)
}

fn play_by(program: impl AsRef<OsStr>, place: &Place) -> Command {
    let mut command = Command::new(program);
    command.args(["rights::play", "--exact", "--ignored", "--nocapture"]).env(PATH, place.path());
    command
}

/// What a player said.
pub(crate) fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix('@'));
    line.unwrap_or_else(|| panic!("{text} {}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

/// What a user says who has no rights by being root.
fn said_by_a_user(place: &Place) -> String {
    // Not by its path, which this user may not be able to walk.
    let mut command = play_by("/proc/self/exe", place);
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    said(&mut command)
}

fn chmod(path: impl AsRef<std::path::Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: impl AsRef<std::path::Path>) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_new_file_is_private_and_an_old_one_keeps_its_mode() {
    let place = Place::new();
    place.write(1, "text").unwrap();
    assert_eq!((mode(place.path()), mode(place.fence())), (0o600, 0o600));
    for (number, kept) in (2..).zip([0o640, 0o444, 0o755, 0o4711]) {
        chmod(place.path(), kept);
        place.write(number, "text").unwrap();
        assert_eq!((mode(place.path()), mode(place.fence())), (kept, 0o600));
    }
}

#[test]
fn a_directory_without_the_right_to_write_is_told() {
    let place = Place::new();
    chmod(place.0.path(), 0o555);
    let said = said_by_a_user(&place);
    chmod(place.0.path(), 0o755);
    assert!(said.starts_with("Denied: ") && said.contains("the right to write in the directory"), "{said}");
    assert!(place.names().is_empty());
}
