//! The `fencepost` command: typed arguments first, effects later.

mod args;
mod backend;
mod commands;
mod duration;
mod events;
mod exit;
mod handle;
mod live;
mod report;
mod run;
mod sys;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
#[cfg(feature = "scenes")]
use commands::lab;
use commands::{gate, held, hold, pages, run as job, unlock, view};

fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => perform(&cli),
        Err(error) => report::usage(&error),
    };
    ExitCode::from(code)
}

fn perform(cli: &Cli) -> u8 {
    let global = &cli.global;
    match &cli.command {
        Command::Run(args) => job::run(global, args),
        Command::Elect(args) => job::elect(global, args),
        Command::Held(args) => held::held(args),
        Command::Hold(args) => hold::hold(global, args),
        Command::Release(args) => hold::release(args),
        Command::Status(args) => view::status(global, args),
        Command::Ls(args) => view::ls(global, args),
        Command::Watch(args) => view::watch(global, args),
        Command::ForceUnlock(args) => unlock::force_unlock(global, args),
        Command::Gate(args) => gate::gate(global, args),
        #[cfg(feature = "scenes")]
        Command::Demo(_) => lab::demo(global),
        #[cfg(feature = "scenes")]
        Command::Lab(args) => lab::lab(global, args),
        Command::Completions(args) => pages::completions(args),
        Command::Man(args) => pages::man(args),
    }
}
