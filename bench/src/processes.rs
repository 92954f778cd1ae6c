//! Whole processes: a job under a lock, beside flock(1), which does the least that can be done.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    outcome::Outcome,
    pairs::in_turn,
    places::Place,
    table::{Table, show},
};

/// The fencepost to start: the one asked for, or the one beside this program, which cargo is first asked to build if
/// it started us.
pub(crate) fn program(asked: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(asked) = asked {
        return Ok(asked.to_owned());
    }
    if let Some(cargo) = env::var_os("CARGO") {
        let release = if cfg!(debug_assertions) { &[][..] } else { &["--release"][..] };
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--package", "fencepost-cli"])
            .args(release)
            .status()?;
        if !built.success() {
            return Err("fencepost could not be built".into());
        }
    }
    let beside = env::current_exe()?.with_file_name("fencepost");
    if beside.exists() {
        return Ok(beside);
    }
    Err(format!(
        "there is no {}: build it with cargo build --release, or name one with --program",
        beside.display()
    )
    .into())
}

/// A copy of the program, as one that is installed is a copy: what a linker wrote lies in the kernel's cache in small
/// pieces, and takes a tenth of a millisecond more to map.
pub(crate) fn install(program: &Path, place: &Place) -> Outcome<PathBuf> {
    let installed = place.file("fencepost");
    fs::copy(program, &installed).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(installed)
}

pub(crate) fn measure(table: &mut Table, program: &Path, place: &Place, effort: usize) -> Outcome<()> {
    let (url, file) = (place.url(), place.file("flock"));
    let fencepost = |arguments: &'static [&str]| {
        let url = url.clone();
        move || run(Command::new(program).env("FENCEPOST_URL", &url).args(arguments))
    };
    let plain = ["run", "x", "--", "true"].as_slice();
    let guarded = ["run", "--max-hold", "1h", "x", "--", "true"].as_slice();
    let status = ["status", "x"].as_slice();
    if Command::new("flock").arg("--version").stdout(Stdio::null()).status().is_ok() {
        let flock = || run(Command::new("flock").arg(&file).arg("true"));
        for (arguments, goal) in [(plain, 1.3), (guarded, 1.5)] {
            let pairs = in_turn(15 * effort, flock, fencepost(arguments))?;
            table.pairs(&format!("fencepost {}", arguments.join(" ")), "flock FILE true", &pairs, Some(goal));
        }
    } else {
        for arguments in [plain, guarded] {
            let pairs = in_turn(15 * effort, || Ok(()), fencepost(arguments))?;
            table.plain(&format!("fencepost {}", arguments.join(" ")), show(pairs.ours));
        }
        table.plain("without flock there is no floor: it is in the package util-linux", "");
    }
    let pairs = in_turn(15 * effort, || run(&mut Command::new("true")), fencepost(status))?;
    table.pairs("fencepost status x", "true", &pairs, None);
    Ok(())
}

pub(crate) fn run(command: &mut Command) -> Outcome<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
