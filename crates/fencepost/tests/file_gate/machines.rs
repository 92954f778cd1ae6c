//! File systems that cannot be used, each in a mount namespace that goes with its process.

use std::{fs, process::Command};

use crate::{
    Place,
    rights::{player, said},
};

/// What the writer says after these commands, in which `$D` is the directory of the place.
fn said_after(setup: &str, place: &Place) -> String {
    let inner = player(place);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-ec"]);
    command.arg(format!("{setup}; exec \"$0\" \"$@\"")).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("D", place.0.path());
    said(&mut command)
}

#[track_caller]
fn assert_said(setup: &str, place: &Place, kind: &str, part: &str) {
    let said = said_after(setup, place);
    assert!(said.starts_with(&format!("{kind}: ")) && said.contains(part), "{said}");
}

#[test]
fn file_systems_whose_locks_are_not_known_are_refused() {
    assert_said("mount -t ramfs none $D", &Place::new(), "Unsupported", "protect a file on a local disk");
    assert_eq!(said_after("mount -t tmpfs none $D", &Place::new()), "written");
}

#[test]
fn a_full_disk_leaves_the_file_as_it_was() {
    let place = Place::new();
    let fill = "mount -t tmpfs -o size=64k none $D; echo text > $D/stock; cat /dev/zero > $D/x 2>&- || true";
    // Told, with the old content and no draft; and once there is room the same writer gets through.
    let check = "(\"$0\" \"$@\" | grep -q '^@Unavailable: .*free some space'); test \"$(cat $D/stock)\" = text; \
                 test ! -e $D/stock.fence.tmp; rm $D/x";
    assert_eq!(said_after(&format!("{fill}; {check}"), &place), "written");
}

#[test]
fn a_read_only_file_system_is_told() {
    let setup = "mount --bind $D $D; mount -o remount,bind,ro $D";
    assert_said(setup, &Place::new(), "Denied", "read-only");
}

#[test]
fn a_file_that_is_a_mount_point_cannot_be_replaced() {
    let place = Place::new();
    fs::write(place.path(), "text").unwrap();
    assert_said("mount --bind $D/stock $D/stock", &place, "Invalid", "mount its directory");
    assert_eq!(fs::read_to_string(place.path()).unwrap(), "text");
    assert_eq!(place.names(), ["stock"], "it is refused before anything is made");
}
