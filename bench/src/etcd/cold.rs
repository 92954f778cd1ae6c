//! From nothing to a job's end: the command, beside `etcdctl lock`.

use std::{path::Path, process::Command};

use fencepost_lab::server::etcd::{Etcd, installed};

use crate::{
    outcome::Outcome,
    pairs::in_turn,
    places::Place,
    processes::{install, program, run},
    table::Table,
};

pub(super) fn measure(
    table: &mut Table,
    cluster: &Etcd,
    asked: Option<&Path>,
    place: &Place,
    effort: usize,
) -> Outcome<()> {
    let program = install(&program(asked)?, place)?;
    let (_, etcdctl) = installed()?;
    let url = cluster.url();
    let endpoints = url.trim_start_matches("etcd://").to_owned();
    let theirs = || {
        let mut command = Command::new(&etcdctl);
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoints, "lock", "cold", "--", "true"]);
        run(&mut command)
    };
    let ours = || run(Command::new(&program).env("FENCEPOST_URL", &url).args(["run", "cold", "--", "true"]));
    let pairs = in_turn(10 * effort, theirs, ours)?;
    table.pairs("fencepost run x true, etcd", "etcdctl lock x true", &pairs, Some(1.0));
    Ok(())
}
