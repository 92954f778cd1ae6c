//! Compares client libraries for Redis under the demands that Fencepost makes of one, over a real server.
//!
//! All candidates stay connected, and take turns within one run: times of different runs say more about the machine.
//! `docs/redis-client.md` has the result.

mod candidates;
mod crowd;
mod faults;
mod host;
mod latency;
mod push;
mod server;
mod table;

use std::{net::SocketAddr, rc::Rc};

use crowd::Crowd;
use host::Host;
use server::Server;
use table::row;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    if cfg!(debug_assertions) {
        eprintln!("a debug build: say --release, or no figure below means anything");
    }
    let mut server = Server::start()?;
    let host = Host::start()?;
    host::runtime()?.block_on(speed(server.addr(), &host))?;
    host::runtime()?.block_on(pushes(&server, &host))?;
    let rows = host::runtime()?.block_on(faults::measure(&mut server))?;
    table::print("Faults: what the caller got, and how often the command ran", &rows);
    Ok(())
}

async fn speed(addr: SocketAddr, host: &Host) -> Outcome<()> {
    let candidates: Vec<_> = candidates::all(addr, host).await?.into_iter().map(Rc::new).collect();
    latency::measure(&candidates, 20).await?;
    let measured = latency::measure(&candidates, 300).await?;
    let mut rows = vec![row(["client", "µs", "ratio"])];
    for (candidate, (micros, ratio)) in candidates.iter().zip(measured) {
        rows.push(row([candidate.name, &format!("{micros:.1}"), &format!("{ratio:.2}")]));
    }
    table::print("One EVALSHA on an idle connection", &rows);
    crowds("64 tasks over one connection, EVALSHA", crowd::tasks(&candidates, 15, 100).await?);
    crowds("Pipelines of 256 EVALSHA", crowd::pipelines(&candidates, 15, 20).await?);
    Ok(())
}

fn crowds(title: &str, crowds: Vec<Crowd>) {
    let mut rows = vec![row(["client", "commands/s", "ratio", "client's µs of processor a command"])];
    for Crowd { name, rate, cpu, ratio } in crowds {
        rows.push(row([name, &format!("{rate:.0}"), &format!("{ratio:.2}"), &format!("{cpu:.2}")]));
    }
    table::print(title, &rows);
}

async fn pushes(server: &Server, host: &Host) -> Outcome<()> {
    let mut rows = vec![row(["client", "message, µs", "reply, µs", "invalidation of a tracked key"])];
    for push in push::measure(server, host, 100).await? {
        let told =
            push.invalidated.map_or("not told within 1 s".into(), |micros| format!("told, {micros:.0} µs"));
        rows.push(row([push.name, &format!("{:.1}", push.message), &format!("{:.1}", push.reply), &told]));
    }
    table::print("A script publishes to its own connection (RESP3, one connection, other thread)", &rows);
    Ok(())
}
