//! Locks over a redis-server of our own, beside the requests that no such lock can do without.

mod alone;
mod floor;
pub(crate) mod held;
mod line;
mod peers;
mod stats;
mod tasks;

use fencepost_lab::server::redis::{Options, Redis, installed};

use crate::{outcome::Outcome, table::Table};

pub(crate) fn measure(table: &mut Table, effort: usize) -> Outcome<()> {
    if let Err(missing) = installed() {
        table.plain("nothing over redis", missing.to_string());
        return Ok(());
    }
    let server = Redis::start(Options::default())?;
    alone::measure(table, &server, effort)?;
    tasks::measure(table, &server, effort)?;
    line::measure(table, &server, effort)?;
    held::measure(table, &server, effort)
}
