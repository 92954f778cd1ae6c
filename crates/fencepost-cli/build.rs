//! Links the code that unwinds a panic into the program.
//!
//! It is a shared library otherwise, and that asks the processor for its features when it is loaded: in a virtual
//! machine, where each such question is answered by the hypervisor, more time than all of our own code takes.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let is_static = target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if target("OS") == "linux" && target("ENV") == "gnu" && !is_static {
        // A linker that does not take it from here goes on to find the shared library, as ever.
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
