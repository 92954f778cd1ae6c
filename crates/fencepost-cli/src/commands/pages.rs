//! `fencepost completions` and `man`: generated from the definitions of the command line.

use std::io::{self, Write, stdout};

use clap::CommandFactory;

use crate::{
    args::{Cli, Completions, Man},
    exit, report,
};

pub(crate) fn completions(args: &Completions) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fencepost", &mut script);
    written(stdout().write_all(&script))
}

pub(crate) fn man(args: &Man) -> u8 {
    let mut command = Cli::command();
    command.build();
    let found = match &args.command {
        None => Some(command),
        Some(name) => command.find_subcommand(name).cloned(),
    };
    match found {
        None => report::fail(exit::USAGE, "there is no such command; `fencepost --help` lists them"),
        Some(command) => written(clap_mangen::Man::new(command).render(&mut stdout())),
    }
}

fn written(result: io::Result<()>) -> u8 {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            report::fail(exit::INTERNAL, format_args!("cannot write the page: {error}"))
        }
        _ => exit::OK,
    }
}
