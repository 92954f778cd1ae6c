//! Deliberately broken code: engines that the simulation must catch, and drivers that their own tests must catch.
//!
//! Those of drivers take half a minute each, and run only with `MUTANTS=all`; elsewhere they are shown as ignored.
//!
//! A mutant is a change of the engine's source, made in a copy of the library and compiled there, so that the engine itself
//! carries no switches for its tests. One that no longer applies fails here: adapt it to the new code.

mod engine;
mod etcd;
mod local;
mod redis;
mod zookeeper;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};

use libtest_mimic::{Arguments, Failed, Trial};

/// A broken engine.
struct Mutant {
    /// What it does wrong, and where that went wrong before.
    story: &'static str,
    /// The changes that make it so; more than one where the engine is protected twice.
    edits: &'static [Edit],
}

/// One change of the source.
struct Edit {
    /// The file below `crates/fencepost/src`.
    file: &'static str,
    /// The right code, which must stand there once.
    right: &'static str,
    /// The broken code.
    broken: &'static str,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They share one target folder.
    arguments.test_threads = Some(1);
    let workshop = Arc::new(Workshop::new());
    let all = std::env::var("MUTANTS").is_ok_and(|which| which == "all");
    let mut trials = Vec::new();
    for (area, mutants, tests, run) in [
        ("engine", engine::MUTANTS, &["--package", "fencepost-lab", "--test", "sim"][..], true),
        ("local", local::MUTANTS, &["--package", "fencepost", "--test", "local"], all),
        ("etcd", etcd::MUTANTS, &["--package", "fencepost-lab", "--test", "conformance", "etcd::"], all),
        (
            "etcd_cluster",
            etcd::OF_THE_CLUSTER,
            &["--package", "fencepost-lab", "--test", "etcd", "deposed"],
            all,
        ),
        ("redis", redis::MUTANTS, &["--package", "fencepost-lab", "--test", "conformance", "redis::"], all),
        (
            "redis_floor",
            redis::FLOORS,
            &["--package", "fencepost-lab", "--test", "redis", "the_floor_heals"],
            all,
        ),
        (
            "redis_order",
            redis::ORDERS,
            &["--package", "fencepost-lab", "--test", "redis", "is_not_overtaken"],
            all,
        ),
        (
            "zookeeper",
            zookeeper::MUTANTS,
            &["--package", "fencepost-lab", "--test", "conformance", "zookeeper::"],
            all,
        ),
        (
            "zookeeper_quorum",
            zookeeper::QUORUM,
            &["--package", "fencepost-lab", "--test", "zookeeper", "renews_nobody"],
            all,
        ),
        (
            "zookeeper_watches",
            zookeeper::WATCHES,
            &["--package", "fencepost-lab", "--test", "zookeeper", "made_again"],
            all,
        ),
        (
            "zookeeper_past",
            zookeeper::PAST,
            &["--package", "fencepost-lab", "--test", "zookeeper", "put_back"],
            all,
        ),
    ] {
        for (name, mutant) in mutants {
            let workshop = workshop.clone();
            let judge = move || workshop.judge(mutant, tests);
            trials.push(Trial::test(format!("{area}::{name}"), judge).with_ignored_flag(!run));
        }
        // The control: the unchanged copy passes, so what fails the mutants is their fault.
        let workshop = workshop.clone();
        let control = move || workshop.judge_right(tests);
        trials.push(Trial::test(format!("the_right_{area}_passes"), control).with_ignored_flag(!run));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A copy of the library and of the simulation, in which mutants are compiled.
struct Workshop {
    source: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

impl Workshop {
    fn new() -> Self {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned();
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        Self { source, copy: target.join("source"), target: target.join("target") }
    }

    /// Lays the copy anew, with the mutant's changes.
    fn lay(&self, changed: Option<&Mutant>) -> Result<(), Failed> {
        for file in ["Cargo.toml", "Cargo.lock", "clippy.toml"] {
            copy_if_new(&self.source.join(file), &self.copy.join(file))?;
        }
        let workspace = self.copy.join("Cargo.toml");
        let text = fs::read_to_string(&workspace)?;
        fs::write(&workspace, text.replace(r#""bench", "#, ""))?;
        for part in ["crates/fencepost", "crates/fencepost-lab", "crates/fencepost-sqlx", "docs"] {
            copy_all(&self.source.join(part), &self.copy.join(part))?;
        }
        for edit in changed.map_or(&[][..], |mutant| mutant.edits) {
            let path = self.copy.join("crates/fencepost/src").join(edit.file);
            let text = fs::read_to_string(&path)?;
            let found = text.matches(edit.right).count();
            if found != 1 {
                return Err(format!(
                    "the code to break stands {found} times in {}; adapt the mutant",
                    edit.file
                )
                .into());
            }
            fs::write(&path, text.replace(edit.right, edit.broken))?;
        }
        Ok(())
    }

    fn cargo(&self, tests: &[&str], arguments: &[&str]) -> Result<(bool, String), Failed> {
        // Broken code may hang; that is a failing test too. The first of all compiles what the library depends on.
        let limit = if arguments.contains(&"--no-run") { "1800" } else { "200" };
        let output = Command::new("timeout")
            .args([limit, env!("CARGO"), "test", "--quiet", "--offline"])
            .args(tests)
            .args(arguments)
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("SIM_SEEDS", "60")
            .stdin(Stdio::null())
            .output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }

    fn judge(&self, mutant: &Mutant, tests: &[&str]) -> Result<(), Failed> {
        self.lay(Some(mutant))?;
        let (compiles, text) = self.cargo(tests, &["--no-run"])?;
        if !compiles {
            return Err(format!("the mutant does not compile; adapt it:\n{text}").into());
        }
        match self.cargo(tests, &[])? {
            (true, _) => Err(format!("not caught: {}", mutant.story).into()),
            (false, text) => {
                let mut lines = text.lines();
                let told = lines.clone().find(|line| line.starts_with("at "));
                let seen = told.or_else(|| lines.find(|line| line.contains("panicked")));
                println!("caught: {}\n  by: {}", mutant.story, seen.unwrap_or("a failing test"));
                Ok(())
            }
        }
    }

    fn judge_right(&self, tests: &[&str]) -> Result<(), Failed> {
        self.lay(None)?;
        self.cargo(tests, &["--no-run"])?;
        match self.cargo(tests, &[])? {
            (true, _) => Ok(()),
            (false, text) => Err(text.into()),
        }
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<(), Failed> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() { copy_all(&from, &to)? } else { copy_if_new(&from, &to)? }
    }
    Ok(())
}

/// Leaves what is the same alone, so that cargo sees only what changed.
fn copy_if_new(from: &Path, to: &Path) -> Result<(), Failed> {
    let new = fs::read(from)?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().expect("a file stands in a folder"))?;
    fs::write(to, new)?;
    Ok(())
}
