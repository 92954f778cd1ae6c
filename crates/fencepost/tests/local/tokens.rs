//! Tokens rise, whatever is lost.

use std::{fs, os::unix::fs::PermissionsExt};

use fencepost::{ErrorKind, Locker, Token, blocking::wait};

use crate::{
    roles::Actor,
    support::{LOCK, TestRoot, acquire_aside, until_waiting},
};

fn next_token(root: &TestRoot) -> Token {
    wait(root.connect().lock(LOCK).acquire()).unwrap().token()
}

fn change_record(root: &TestRoot, change: impl FnOnce(&mut serde_json::Value)) {
    let file = root.path().join(".root");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut record);
    fs::write(file, record.to_string()).unwrap();
}

/// Changes the root's file as if it had been written in an earlier boot.
fn reboot(root: &TestRoot, floor: u64) {
    change_record(root, |record| {
        record["boot"] = "an earlier boot".into();
        record["floor"] = floor.into();
    });
}

/// Leaves only what was written durably.
fn lose_power(root: &TestRoot) {
    change_record(root, |record| record["boot"] = "an earlier boot".into());
    fs::remove_dir_all(root.path().join(LOCK)).unwrap();
}

/// A token far ahead of any clock.
fn leap(locker: &Locker) -> Token {
    let floor = Token::new(1_000_000_000_000_000_000).unwrap();
    wait(locker.lock(LOCK).floor(floor).acquire()).unwrap().token()
}

#[test]
fn tokens_rise_over_releases_and_crashes() {
    let root = TestRoot::new();
    let mut last = next_token(&root);
    for round in 0..6 {
        let token = if round % 2 == 0 {
            next_token(&root)
        } else {
            let actor = Actor::start("hold", &root);
            actor.hear().parse().unwrap()
        };
        assert!(token > last);
        last = token;
    }
}

#[test]
fn tokens_rise_over_a_lost_counter() {
    let root = TestRoot::new();
    let mut last = next_token(&root);
    let lock_file = root.path().join(LOCK).join(".lock");
    for loss in 0..4 {
        match loss {
            0 => fs::remove_file(&lock_file).unwrap(),
            1 => fs::write(&lock_file, "").unwrap(),
            2 => fs::write(&lock_file, [0; 64]).unwrap(),
            _ => fs::remove_dir_all(root.path()).unwrap(),
        }
        for _ in 0..3 {
            let token = next_token(&root);
            assert!(token > last, "{loss}");
            last = token;
        }
    }
}

#[test]
fn a_lost_counter_frees_no_lock_that_is_held() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    fs::remove_file(root.path().join(LOCK).join(".lock")).unwrap();
    let error = wait(locker.lock(LOCK).try_acquire()).unwrap_err();
    assert_eq!(error.holder().unwrap().token, Some(guard.token()));
    assert!(wait(locker.force_unlock(LOCK)).unwrap().token > guard.token());
}

#[test]
fn the_floor_rises_with_each_boot_and_the_lineage_stays() {
    let root = TestRoot::new();
    let lineage = root.connect().about().lineage.clone();
    // The clock was ahead by years in the earlier boot.
    let ahead = 1 << 54;
    reboot(&root, ahead);
    let token = next_token(&root);
    assert!(token.get() > ahead + (1 << 32));
    let again = next_token(&root);
    assert!(again > token && again.get() < token.get() + 100, "the floor is raised once per boot");
    // The clock was right: it gives the floor.
    reboot(&root, 1);
    fs::remove_dir_all(root.path().join(LOCK)).unwrap();
    let token = next_token(&root).get();
    assert!(token > 1_700_000_000_000_000 && token < ahead);
    assert_eq!(root.connect().about().lineage, lineage);
}

#[test]
fn who_may_only_read_a_root_cannot_block_its_first_connect() {
    let root = TestRoot::new();
    root.connect();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    reboot(&root, 1);
    let reader = fs::File::open(root.path()).unwrap();
    reader.lock().unwrap();
    next_token(&root);
    let others_may = |file: fs::DirEntry| file.metadata().unwrap().permissions().mode() & 0o077;
    for file in fs::read_dir(root.path()).unwrap() {
        assert_eq!(others_may(file.unwrap()), 0);
    }
}

#[test]
fn another_root_has_another_lineage() {
    let (one, two) = (TestRoot::new(), TestRoot::new());
    assert_ne!(one.connect().about().lineage, two.connect().about().lineage);
}

#[test]
fn a_root_that_was_replaced_by_another_is_refused() {
    let (one, two) = (TestRoot::new(), TestRoot::new());
    let locker = one.connect();
    drop(wait(locker.lock(LOCK).acquire()).unwrap());
    two.connect();
    fs::remove_dir_all(one.path()).unwrap();
    fs::rename(two.path(), one.path()).unwrap();
    let error = wait(locker.lock(LOCK).patience(std::time::Duration::from_secs(1)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("connect again"), "{error}");
}

#[test]
fn the_callers_floor_is_exceeded_by_those_who_wait_too() {
    let root = TestRoot::new();
    let locker = root.connect();
    let guard = wait(locker.lock(LOCK).acquire()).unwrap();
    let floor = Token::new(guard.token().get() + 1_000_000).unwrap();
    let waiter = acquire_aside(locker.lock(LOCK).floor(floor));
    until_waiting(&locker, 1);
    let last = acquire_aside(locker.lock(LOCK));
    until_waiting(&locker, 2);
    wait(guard.release()).unwrap();
    let waiter = waiter.join().unwrap();
    assert!(waiter.token() > floor);
    let token = waiter.token();
    wait(waiter.release()).unwrap();
    assert!(last.join().unwrap().token() > token);
    let error = wait(locker.lock(LOCK).floor(Token::new(u64::MAX).unwrap()).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn a_token_above_a_callers_floor_is_not_given_again_after_a_power_loss() {
    let root = TestRoot::new();
    let locker = root.connect();
    let (token, lineage) = (leap(&locker), locker.about().lineage.clone());
    lose_power(&root);
    let next = wait(root.connect().lock(LOCK).acquire()).unwrap();
    assert_eq!(*next.lineage(), lineage);
    assert!(next.token() > token);
}

#[test]
fn counters_that_ran_ahead_of_the_floor_are_not_given_again_after_a_power_loss() {
    let root = TestRoot::new();
    let token = next_token(&root);
    // As if the clock had been ahead when the lock was made.
    change_record(&root, |record| record["floor"] = (token.get() - (1 << 40)).into());
    let token = next_token(&root);
    change_record(&root, |record| {
        assert!(record["floor"].as_u64().unwrap() + (1 << 32) > token.get(), "{record}");
    });
}

#[test]
fn a_lock_that_was_lost_while_it_was_ahead_of_the_clock_repeats_no_token() {
    let root = TestRoot::new();
    let (locker, other) = (root.connect(), root.connect());
    let mut token = leap(&locker);
    for loss in 0..4 {
        let dir = root.path().join(LOCK);
        match loss {
            0 => fs::remove_file(dir.join(".lock")).unwrap(),
            1 => fs::write(dir.join(".lock"), "").unwrap(),
            _ => fs::remove_dir_all(dir).unwrap(),
        }
        for locker in [&other, &locker] {
            let next = wait(locker.lock(LOCK).acquire()).unwrap().token();
            assert!(next > token, "{loss}");
            token = next;
        }
    }
    // A root that is made again is above what those who used it knew.
    fs::remove_dir_all(root.path()).unwrap();
    assert!(wait(locker.lock(LOCK).acquire()).unwrap().token() > token);
}

#[test]
fn new_locks_write_nothing_durably() {
    let root = TestRoot::new();
    let locker = root.connect();
    let record = || fs::read(root.path().join(".root")).unwrap();
    let before = record();
    for number in 0..50 {
        let lock = locker.lock(format!("{LOCK}{number}"));
        for _ in 0..3 {
            drop(wait(lock.clone().acquire()).unwrap());
        }
    }
    assert_eq!(record(), before);
}

#[test]
fn a_floor_near_the_last_token_spoils_no_other_lock() {
    let root = TestRoot::new();
    let locker = root.connect();
    let floor = Token::new(u64::MAX - 3).unwrap();
    let error = wait(locker.lock("spoilt").floor(floor).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let floor = Token::new((1 << 63) - 1).unwrap();
    let far = wait(locker.lock("far").floor(floor).acquire()).unwrap().token();
    let next = wait(locker.lock("far").floor(far).acquire()).unwrap().token();
    assert!(next > far);
    drop(wait(locker.lock(LOCK).acquire()).unwrap());
}
