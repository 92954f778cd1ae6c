//! Compiles the library that shifts a server's clock, so that it is a part of whatever is linked with this crate: a
//! machine that only runs the lab needs no compiler, and nobody has to look for a file.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let source = "shim/clock.rs";
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let library = Path::new(&variable("OUT_DIR")).join("clock.so");
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=fencepost_clock", source, "-o"]);
    rustc.arg(library).args(["--target", &variable("TARGET")]);
    rustc.args(["-Copt-level=2", "-Cpanic=abort", "-Cstrip=symbols", "-Ctarget-feature=-crt-static"]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let status = rustc.status().expect("rustc starts");
    assert!(status.success(), "{source} does not compile");
}
