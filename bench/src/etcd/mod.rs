//! Locks over three etcd members of our own, beside the requests that no such lock can do without.

mod alone;
mod bare;
mod cold;
pub(crate) mod held;
mod line;
mod requests;

use std::path::Path;

use fencepost_lab::server::etcd::{Etcd, Options, installed};

use crate::{outcome::Outcome, places::Place, table::Table};

pub(crate) fn measure(
    table: &mut Table,
    program: Option<&Path>,
    place: &Place,
    effort: usize,
) -> Outcome<()> {
    if let Err(missing) = installed() {
        table.plain("nothing over etcd", missing.to_string());
        return Ok(());
    }
    let cluster = Etcd::start(Options { members: 3, ..Options::default() })?;
    alone::measure(table, &cluster, effort)?;
    alone::trips(table, &cluster, effort)?;
    cold::measure(table, &cluster, program, place, effort)?;
    line::measure(table, &cluster, effort)?;
    held::measure(table, &cluster, effort)
}
