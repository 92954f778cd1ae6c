//! Paths that a gate cannot stand at, and files that are not what they seem.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    process::Command,
    time::Duration,
};

use fencepost::{
    ErrorKind, Token,
    gate::{FileGate, Mark},
};
use rustix::fs::{FlockOperation, flock};

use crate::{Place, assert_refused, pass};

#[test]
fn paths_that_name_no_file_are_refused() {
    let long = format!("/tmp/{}", "x".repeat(246));
    for path in ["", "/", ".", "..", "a/..", "a/.", "a/", ".fence", "x.fence", "x.fence.tmp", long.as_str()] {
        assert_refused(FileGate::new(path), ErrorKind::Invalid, "names no file");
    }
    let place = Place::new();
    let longest = place.0.path().join("x".repeat(245));
    FileGate::new(longest).unwrap().open(pass(1)).unwrap().write("text").unwrap();
}

#[test]
fn only_a_regular_file_is_protected() {
    let place = Place::new();
    symlink("elsewhere", place.path()).unwrap();
    assert_refused(place.gate().open(pass(1)), ErrorKind::Invalid, "symbolic link");
    fs::remove_file(place.path()).unwrap();
    fs::create_dir(place.path()).unwrap();
    assert_refused(place.gate().open(pass(1)), ErrorKind::Invalid, "regular file");
    fs::remove_dir(place.path()).unwrap();
    assert!(Command::new("mkfifo").arg(place.path()).status().unwrap().success());
    assert_refused(place.gate().open(pass(1)), ErrorKind::Invalid, "regular file");
    fs::remove_file(place.path()).unwrap();
    assert!(place.names().is_empty(), "a refusal left a fence file");
    place.write(1, "text").unwrap();
}

#[test]
fn a_missing_directory_is_not_made() {
    let place = Place::new();
    let gate = FileGate::new(place.path().join("file")).unwrap();
    assert_refused(gate.open(pass(1)), ErrorKind::Invalid, "make it first");
    assert_refused(gate.mark(), ErrorKind::Invalid, "make it first");
    place.write(1, "text").unwrap();
    assert_refused(gate.open(pass(1)), ErrorKind::Invalid, "not a directory");
}

#[test]
fn two_ways_to_one_directory_lead_to_one_fence() {
    let place = Place::new();
    let other = tempfile::tempdir().unwrap();
    symlink(place.0.path(), other.path().join("way")).unwrap();
    let gate = FileGate::new(other.path().join("way/stock")).unwrap();
    gate.open(pass(42)).unwrap().write("text").unwrap();
    assert_refused(place.write(41, "late"), ErrorKind::Stale, "presented=41 highest=42 resource=");
    assert_eq!(place.names(), ["stock", "stock.fence"]);
}

#[test]
fn a_fence_file_that_is_none_is_refused_until_a_rebind() {
    let place = Place::new();
    place.write(42, "text").unwrap();
    for text in
        ["x", "{\"highest\":42}", "{\"highest\":\"0\"}", "{\"highest\":\"42\"", "{\"other\":\"1\"}", "\0\0\0"]
    {
        fs::write(place.fence(), text).unwrap();
        assert_refused(place.write(43, "next"), ErrorKind::Invalid, "rebind the gate");
        assert_refused(place.gate().mark(), ErrorKind::Invalid, "rebind the gate");
        assert_eq!(fs::read_to_string(place.path()).unwrap(), "text");
    }
    // One that has lost its content says nothing about who was here.
    fs::write(place.fence(), "").unwrap();
    assert_refused(place.write(43, "next"), ErrorKind::Invalid, "rebind the gate");
    assert_refused(place.gate().mark(), ErrorKind::Invalid, "rebind the gate");
    let mark = Mark { highest: Token::new(42), lineage: None };
    assert_eq!(place.gate().rebind(mark.clone()).unwrap(), Mark::default());
    assert_eq!(place.gate().rebind(mark.clone()).unwrap(), mark);
    assert_eq!(fs::read_to_string(place.fence()).unwrap(), "{\"highest\":\"42\"}\n");
    place.write(42, "more").unwrap();
    fs::remove_file(place.fence()).unwrap();
    symlink("elsewhere", place.fence()).unwrap();
    assert_refused(place.write(42, "text"), ErrorKind::Invalid, "symbolic link");
}

#[test]
fn what_a_crash_left_over_is_removed() {
    let place = Place::new();
    let draft = place.0.path().join("stock.fence.tmp");
    fs::write(&draft, "half a").unwrap();
    place.write(42, "text").unwrap();
    assert_eq!(place.names(), ["stock", "stock.fence"]);
    assert_eq!(fs::read_to_string(place.path()).unwrap(), "text");
}

#[test]
fn a_process_that_is_stopped_in_its_write_is_told_of() {
    let place = Place::new();
    place.write(41, "text").unwrap();
    let inside = File::open(place.fence()).unwrap();
    flock(&inside, FlockOperation::LockExclusive).unwrap();
    let gate = place.gate().patience(Duration::from_millis(50));
    assert_refused(gate.open(pass(42)), ErrorKind::Unavailable, "resume or end it");
    assert_eq!(gate.mark().unwrap().highest, Token::new(41), "looking needs no lock");
    drop(inside);
    gate.open(pass(42)).unwrap();
}

#[test]
fn a_file_of_any_content_comes_back() {
    let place = Place::new();
    let open_gate = place.gate();
    let file = open_gate.open(pass(1)).unwrap();
    assert_eq!(file.read().unwrap(), None);
    for content in [Vec::new(), b"\0\xff\n".to_vec(), vec![7; 3 << 20]] {
        file.write(&content).unwrap();
        assert_eq!(file.read().unwrap(), Some(content));
    }
    fs::remove_file(place.path()).unwrap();
    assert_eq!(file.read().unwrap(), None, "somebody removed it");
}
