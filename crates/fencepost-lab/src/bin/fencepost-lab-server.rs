//! The leased test backend as a process of its own, so that tests can stop, kill and restart it.
//!
//! `fencepost-lab-server [PORT [FILE]]` prints its port and serves until its standard input ends, so that it never
//! outlives the test that started it.

use std::{env, io, path::PathBuf};

use fencepost_lab::leased::Server;

fn main() -> io::Result<()> {
    let mut args = env::args().skip(1);
    let port = args.next().map_or(Ok(0), |port| port.parse().map_err(io::Error::other))?;
    let server = Server::start_at(port, args.next().map(PathBuf::from))?;
    println!("{}", server.addr().port());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
