//! Where the backend's URL comes from, and what is said about it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use libtest_mimic::Trial;

use crate::scene::trial;
use crate::world::{Said, World};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 6] = [
        ("config_precedence", precedence),
        ("config_found", found),
        ("config_broken", broken),
        ("config_unreadable", unreadable),
        ("config_on_this_machine_only", this_machine_only),
        ("config_password", password),
    ];
    let tests = tests.into_iter().map(|(name, test)| trial(name, test));
    tests.chain([trial("config_of_the_machine", of_the_machine).with_ignored_flag(!is_root())]).collect()
}

/// Prints the backend, with these variables in the environment.
fn backend(world: &World, words: &str, variables: &[(&str, &str)]) -> Said {
    let mut command = world.command(&format!("{words} run x --"), &["sh", "-c", "echo $FENCEPOST_BACKEND"]);
    command.env_remove("FENCEPOST_URL").envs(variables.iter().copied());
    world.spawn(if is_root() { privately(&command, "") } else { command }).said()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The command where the default root of the root user is a private one, after a script that prepares more.
fn privately(command: &Command, prepare: &str) -> Command {
    let script = format!("mount -t tmpfs none /var/lib && {prepare} exec \"$0\" \"$@\"");
    let mut private = Command::new("unshare");
    private.args(["--mount", "sh", "-c", &script]).arg(command.get_program()).args(command.get_args());
    private.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    private.current_dir(command.get_current_dir().expect("it was set")).stdin(Stdio::null());
    private
}

fn local(world: &World, name: &str) -> String {
    format!("local:{}", world.path(name).display())
}

/// Writes a config file below `folder`.
fn write(world: &World, folder: &str, text: &str) -> String {
    let folder = world.path(folder).join("fencepost");
    fs::create_dir_all(&folder).expect("the directory is ours");
    let path = folder.join("config.toml");
    fs::write(&path, text).expect("the directory is ours");
    path.to_str().expect("plain").to_owned()
}

fn precedence() {
    let world = World::local();
    let [flag, variable, file] = ["flag", "variable", "file"].map(|name| local(&world, name));
    write(&world, "home/.config", &format!("url = '{file}'"));
    let environment = [("FENCEPOST_URL", variable.as_str())];
    assert_eq!(backend(&world, &format!("--url {flag}"), &environment).quiet(0).trim(), flag);
    assert_eq!(backend(&world, "", &environment).quiet(0).trim(), variable);
    assert_eq!(backend(&world, "", &[]).quiet(0).trim(), file);
    // What is set to nothing is not set, as elsewhere in a shell.
    assert_eq!(backend(&world, "", &[("FENCEPOST_URL", "")]).quiet(0).trim(), file);
}

fn found() {
    let world = World::local();
    let [home, xdg] = ["in-home", "in-xdg"].map(|name| local(&world, name));
    write(&world, "home/.config", &format!("url = \"{home}\"\n"));
    write(&world, "xdg", &format!("# a comment\n\nurl = \"{xdg}\"\n"));
    let folder = world.path("xdg").display().to_string();
    assert_eq!(backend(&world, "", &[("XDG_CONFIG_HOME", &folder)]).quiet(0).trim(), xdg);
    assert_eq!(backend(&world, "", &[("XDG_CONFIG_HOME", "relative")]).quiet(0).trim(), home);
    // A file without a url says nothing, and the next place is looked at.
    write(&world, "xdg", "");
    let said = backend(&world, "", &[("XDG_CONFIG_HOME", &folder), ("XDG_STATE_HOME", "/nowhere")]);
    assert!(said.err.contains("on this machine only"), "{said:?}");
}

fn of_the_machine() {
    let world = World::local();
    let [home, machine] = ["in-home", "in-etc"].map(|name| local(&world, name));
    let prepare = format!(
        "mount -t tmpfs none /etc && mkdir /etc/fencepost && echo \"url = '{machine}'\" >/etc/fencepost/config.toml &&"
    );
    let ask = || {
        let mut command = world.command("run x --", &["sh", "-c", "echo $FENCEPOST_BACKEND"]);
        world.spawn(privately(command.env_remove("FENCEPOST_URL"), &prepare)).said().quiet(0)
    };
    assert_eq!(ask().trim(), machine);
    write(&world, "home/.config", &format!("url = '{home}'"));
    assert_eq!(ask().trim(), home);
}

fn broken() {
    let world = World::local();
    for (text, parts) in [
        ("url = 3", &["line 1", "expected a string"][..]),
        ("\n\nurl = \"redis://u:hunter2@h", &["line 3"]),
        ("a line of text", &["line 1"]),
        ("url = 'local:'\nurll = 'redis://u:hunter2@h'", &["line 2", "unknown field `urll`, expected `url`"]),
        ("url = 'redis://u:hunter2@h' 'x'", &["line 1"]),
        ("url = 'local:'\nurl = 'redis://u:hunter2@h'", &["line 2", "duplicate"]),
    ] {
        let path = write(&world, "home/.config", text);
        let said = backend(&world, "", &[]);
        assert!(!said.err.contains("hunter2"), "{said:?}");
        said.says(78, &[&["the config file is broken at", &format!("path={path}")], parts].concat());
    }
    for (text, part) in
        [("url = ''", "it has no scheme"), ("url = 'nope://u:hunter2@h'", "\"nope\" is not known")]
    {
        let path = write(&world, "home/.config", text);
        let said = backend(&world, "", &[]);
        assert!(!said.err.contains("hunter2"), "{said:?}");
        said.says(78, &[&path, part]);
    }
    // It is not even looked at where it is not needed.
    write(&world, "home/.config", "url = 3");
    world.ask("run x true", &[]).quiet(0);
}

fn unreadable() {
    let world = World::local();
    let folder = world.path("home/.config/fencepost/config.toml");
    fs::create_dir_all(&folder).expect("the directory is ours");
    backend(&world, "", &[]).says(78, &["cannot read the config file", "Is a directory: path="]);
    fs::remove_dir(&folder).expect("it is empty");
    fs::write(&folder, [0xff, 0xfe]).expect("the directory is ours");
    backend(&world, "", &[]).says(78, &["cannot read the config file", "UTF-8"]);
    let mut command = world.command("run x true", &[]);
    command.env("FENCEPOST_URL", std::ffi::OsStr::from_bytes(b"local:/\xff"));
    world.spawn(command).said().says(78, &["FENCEPOST_URL: it is not UTF-8"]);
}

fn this_machine_only() {
    let world = World::local();
    let state = world.path("state").display().to_string();
    // Root has a root of its own; any other user's is below XDG_STATE_HOME.
    let variables = [("XDG_STATE_HOME", state.as_str())];
    let root = if is_root() { "/var/lib/fencepost".into() } else { format!("{state}/fencepost") };
    let line =
        format!("fencepost: no backend is configured, so this locks on this machine only (local:{root})\n");
    let said = backend(&world, "", &variables);
    assert_eq!((said.code, said.err, said.out), (0, line, format!("local:{root}\n")));
    backend(&world, "-q", &variables).quiet(0);
    backend(&world, "--url local:", &variables).quiet(0);
    backend(&world, "", &[variables[0], ("FENCEPOST_URL", "local:")]).quiet(0);
    write(&world, "home/.config", "url = 'local:'");
    backend(&world, "", &variables).quiet(0);
}

fn password() {
    let world = World::local();
    for url in ["redis://u:hunter2@h/zero", "lab://:hunter2@127.0.0.1:1?lease=claim", "nope://u:hunter2@h"] {
        let said = backend(&world, &format!("--url {url}"), &[]);
        assert_eq!(said.code, 78, "{said:?}");
        assert!(!said.err.contains("hunter2"), "{said:?}");
        let lines: Vec<&str> = said.err.lines().collect();
        assert_eq!(lines.len(), 2, "{said:?}");
        assert!(
            lines[0].starts_with("fencepost: the password in --url is visible to every user"),
            "{said:?}"
        );
        assert!(lines[1].starts_with("fencepost: --url: "), "{said:?}");
        let said = backend(&world, "", &[("FENCEPOST_URL", url)]);
        assert!(!said.err.contains("hunter2"), "{said:?}");
        said.says(78, &["FENCEPOST_URL: "]);
    }
}
