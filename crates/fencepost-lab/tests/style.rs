//! Rules of the source that no compiler checks.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

fn read(path: &str) -> String {
    let path = workspace().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust file below a folder, with its text.
fn sources(folder: &str) -> Vec<(String, String)> {
    let (mut folders, mut found) = (vec![workspace().join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a text");
                found.push((path.display().to_string(), text));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

#[test]
fn drivers_know_neither_the_engine_nor_each_other_nor_users_of_theirs() {
    for (path, text) in sources("crates/fencepost/src/drivers") {
        for word in ["engine", "locker", "lock::"] {
            let import = format!("crate::{word}");
            assert!(!text.contains(&import), "{path} imports {import}");
        }
        assert!(!text.contains("tokio::time"), "{path} has a timer");
        assert!(!text.contains("Instant::now"), "{path} has a clock");
    }
}

#[test]
fn gates_know_neither_drivers_nor_the_engine() {
    for (path, text) in sources("crates/fencepost/src/gate") {
        for word in ["drivers", "engine", "locker", "claim", "lease"] {
            assert!(!text.contains(&format!("crate::{word}")), "{path} imports crate::{word}");
            assert!(!text.contains(&format!("    {word}::")), "{path} imports crate::{word}");
        }
        assert!(!text.contains("tokio::time"), "{path} has a timer");
        assert!(!text.contains("Instant::now"), "{path} has a clock");
        let is_of_redis = path.contains("/gate/redis/");
        assert!(is_of_redis || !text.contains("crate::redis"), "{path} knows Redis");
        let is_of_zookeeper = path.contains("/gate/zookeeper/");
        assert!(is_of_zookeeper || !text.contains("crate::zookeeper"), "{path} knows ZooKeeper");
    }
    let gates = sources("crates/fencepost/src/gate");
    let deciding = |text: &str| text.contains("token < highest");
    let own: Vec<_> = gates.iter().filter(|(_, text)| deciding(text)).map(|(path, _)| path).collect();
    assert!(own.len() == 1 && own[0].ends_with("gate/mark.rs"), "more than one file decides: {own:?}");
}

#[test]
fn the_engine_knows_no_backend() {
    for (path, text) in sources("crates/fencepost/src/engine") {
        assert!(!text.contains("drivers"), "{path} names a driver");
    }
}

#[test]
fn every_scheme_stands_in_the_readme() {
    let readme = read("README.md");
    for scheme in fencepost::SCHEMES {
        let is_named =
            readme.lines().any(|line| line.starts_with("| `") && line.contains(&format!("`{scheme}:")));
        assert!(is_named, "{scheme} is missing in the table of backends");
    }
}

#[test]
fn every_test_that_an_invariant_names_exists() {
    let (map, mutants) = (read("ARCHITECTURE.md"), read("crates/fencepost-lab/tests/mutants/engine.rs"));
    let invariants = map.split("## Invariants").nth(1).and_then(|rest| rest.split("## Decisions").next());
    let mut named = 0;
    for word in invariants.expect("the chapter").split('`') {
        let name = word.strip_prefix("mutants::").or_else(|| word.strip_prefix("::"));
        // `x` is the example that explains the notation.
        if let Some(name) = name.filter(|name| *name != "x") {
            assert!(mutants.contains(&format!("\"{name}\"")), "no mutant is called {name}");
            named += 1;
        }
    }
    assert!(named >= 10);
    let broken = read("crates/fencepost-lab/tests/gates/broken.rs");
    let faults = map.split('`').filter_map(|word| word.strip_prefix("broken::")).filter(|name| *name != "x");
    let faults: Vec<_> = faults.collect();
    assert!(faults.len() >= 5);
    for name in faults {
        let is_there =
            broken.contains(&format!("{name}: ")) || broken.contains(&format!("broken::{name}_is_caught"));
        assert!(is_there, "no broken gate is called {name}");
    }
}

#[test]
fn every_exit_status_is_documented() {
    let docs = read("docs/cli.md");
    let codes = read("crates/fencepost-cli/src/exit.rs");
    let mut found = 0;
    for line in codes.lines().filter(|line| line.contains("pub(crate) const")) {
        let number = line.rsplit("= ").next().expect("a value").trim_end_matches(';');
        assert!(number == "0" || docs.contains(number), "{number} is missing in docs/cli.md");
        found += 1;
    }
    assert!(found >= 10);
}

#[test]
fn nothing_is_left_unfinished() {
    for folder in ["crates", "bench"] {
        if !workspace().join(folder).exists() {
            continue;
        }
        for (path, text) in sources(folder) {
            for mark in [concat!("FIX", "ME"), concat!("X", "XX"), concat!("todo", "!(")] {
                assert!(!text.contains(mark), "{path} contains {mark}");
            }
        }
    }
}
