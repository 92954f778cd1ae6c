//! Completions and manual pages, as their readers take them.

use std::process::Command;

use libtest_mimic::Trial;

use crate::scene::trial;
use crate::world::World;

pub(crate) fn trials() -> Vec<Trial> {
    let shells = ["bash", "zsh", "fish"].map(|shell| {
        let name = format!("pages_completions_{shell}");
        let test = match shell {
            "bash" => bash as fn(),
            "zsh" => zsh,
            _ => fish,
        };
        trial(&name, test).with_ignored_flag(!exists(shell))
    });
    let always: [(&str, fn()); 2] =
        [("pages_completions_name_everything", completions), ("pages_manual_names_everything", manual)];
    let groff = trial("pages_manual_renders", renders).with_ignored_flag(!exists("groff"));
    shells.into_iter().chain(always.map(|(name, test)| trial(name, test))).chain([groff]).collect()
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

const COMMANDS: [&str; 12] = [
    "run",
    "held",
    "hold",
    "release",
    "status",
    "ls",
    "watch",
    "force-unlock",
    "demo",
    "lab",
    "completions",
    "man",
];

/// The long flags of `run`, as its help shows them.
fn flags(world: &World) -> Vec<String> {
    let help = world.ask("run --help", &[]).quiet(0);
    let flags = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
    let mut flags: Vec<String> =
        flags.map(|word| word.trim_end_matches([',', ')', ']']).to_owned()).collect();
    flags.sort();
    flags.dedup();
    assert!(flags.len() > 15, "{flags:?}");
    flags
}

fn completions() {
    let world = World::local();
    for shell in ["bash", "zsh", "fish"] {
        let script = world.ask(&format!("completions {shell}"), &[]).quiet(0);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
        for flag in flags(&world) {
            let name = if shell == "fish" { format!("-l {}", &flag[2..]) } else { flag };
            assert!(script.contains(&name), "{shell}: {name}");
        }
    }
}

fn bash() {
    let world = World::local();
    let complete = |words: &str| {
        let script = format!(
            "set -eu; eval \"$($FENCEPOST completions bash)\"; COMP_WORDS=({words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _fencepost fencepost '' ${{COMP_WORDS[COMP_CWORD - 1]}}; echo ${{COMPREPLY[@]}}"
        );
        world.shell(&script).quiet(0)
    };
    let out = complete("fencepost");
    assert!(COMMANDS.iter().all(|command| out.split_whitespace().any(|word| word == *command)), "{out}");
    let out = complete("fencepost run --require");
    assert_eq!(out.trim(), "tokens consensus");
    world.shell("$FENCEPOST completions bash >script; bash -n script").quiet(0);
}

fn zsh() {
    World::local().shell("$FENCEPOST completions zsh >script; zsh -n script").quiet(0);
}

fn fish() {
    World::local().shell("$FENCEPOST completions fish >script; fish -n script").quiet(0);
}

fn manual() {
    let world = World::local();
    let page = world.ask("man", &[]).quiet(0);
    for part in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"]
        .iter()
        .chain(&COMMANDS.map(|command| command.split('-').next().expect("a word")))
    {
        assert!(page.contains(part), "{part}");
    }
    let page = world.ask("man run", &[]).quiet(0);
    for flag in flags(&world) {
        assert!(page.contains(&flag.replace('-', "\\-")), "no {flag} in {page}");
    }
    assert!(page.contains(".SH NAME") && page.contains("the lock was lost"), "{page}");
    for command in COMMANDS {
        let page = world.ask(&format!("man {command}"), &[]).quiet(0);
        assert!(
            page.contains(&format!("fencepost {command}").replace('-', "\\-"))
                || page.contains(&format!("fencepost\\-{command}").replace('-', "\\-")),
            "{page}"
        );
    }
}

fn renders() {
    let world = World::local();
    for command in ["", "run", "force-unlock"] {
        let out = world.shell(&format!("$FENCEPOST man {command} | groff -man -Tutf8 -ww -P-cbou")).quiet(0);
        assert!(out.contains("NAME") && out.contains("fencepost"), "{out}");
    }
}
