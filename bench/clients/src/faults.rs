//! What a client does when its connection breaks, and when a caller gives up.

use std::{future::poll_fn, net::SocketAddr, task::Poll, time::Duration};

use fencepost_lab::{
    clock::{now_ns, sleep_until},
    proxy::{Direction, Mode, Proxy},
};
use redis::{
    Client, ConnectionInfo, IntoConnectionInfo,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use tokio::runtime::Handle;

use crate::{
    Outcome,
    candidates::{Answer, Call, FredOptions, connect_fred, connect_redis, count_fred, count_redis, info},
    server::Server,
    table::row,
};

/// How long a call may take before it counts as waiting for something.
const LIMIT: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy)]
enum Kind {
    Redis,
    RedisManager,
    Fred,
    FredCareful,
}

const KINDS: [Kind; 4] = [Kind::Redis, Kind::RedisManager, Kind::Fred, Kind::FredCareful];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis, one connection",
            Self::RedisManager => "redis, ConnectionManager",
            Self::Fred => "fred, as it comes",
            Self::FredCareful => "fred, fail_fast, one attempt",
        }
    }

    async fn connect(self, addr: SocketAddr) -> Outcome<Call> {
        Ok(match self {
            Self::Redis => {
                let connection = connect_redis(addr, &Handle::current()).await?;
                Box::new(move |key| count_redis(connection.clone(), key))
            }
            Self::RedisManager => {
                let target: ConnectionInfo = format!("redis://{addr}").into_connection_info()?;
                let client = Client::open(target.set_redis_settings(info()))?;
                let config = ConnectionManagerConfig::new().set_response_timeout(None);
                let config = config.set_min_delay(Duration::from_millis(10));
                let manager = ConnectionManager::new_with_config(client, config).await?;
                Box::new(move |key| count_redis(manager.clone(), key))
            }
            Self::Fred | Self::FredCareful => {
                let options = FredOptions { careful: matches!(self, Self::FredCareful) };
                let client = connect_fred(addr, options).await?;
                Box::new(move |key| count_fred(&client, options, key))
            }
        })
    }
}

/// One row for each client and each fault.
pub(crate) async fn measure(server: &mut Server) -> Outcome<Vec<Vec<String>>> {
    let mut rows = vec![row(["fault", "client", "the caller got", "after", "ran"])];
    for kind in KINDS {
        rows.push(lost(server, kind, Direction::ToClient, "reply lost, connection cut").await?);
    }
    for kind in KINDS {
        rows.push(lost(server, kind, Direction::ToServer, "request lost, connection cut").await?);
    }
    for kind in KINDS {
        rows.push(while_down(server, kind).await?);
    }
    for kind in KINDS {
        rows.push(restarted(server, kind).await?);
    }
    for kind in KINDS {
        rows.push(given_up(server, kind).await?);
    }
    for kind in KINDS {
        rows.push(given_up_unsent(server, kind).await?);
    }
    Ok(rows)
}

/// A command in flight when the connection breaks, on its way there or back. The network heals at once.
async fn lost(server: &Server, kind: Kind, on: Direction, fault: &str) -> Outcome<Vec<String>> {
    let proxy = proxy(server.addr()).await?;
    let call = kind.connect(proxy.addr()).await?;
    proxy.set(on, Mode::Hold);
    let flight = Handle::current().spawn(limited(call("flight")));
    // Either way the command has left the client by now.
    sleep(100).await;
    let before = server.count("flight")?;
    if before != i64::from(on == Direction::ToClient) {
        return Err(format!("the fault was not the one that was meant: ran={before}").into());
    }
    let start = now_ns();
    proxy.cut();
    proxy.set(on, Mode::Pass);
    proxy.heal()?;
    let got = flight.await?;
    finish(server, kind, fault, got, start, "flight").await
}

/// A command that is given while nothing answers.
async fn while_down(server: &Server, kind: Kind) -> Outcome<Vec<String>> {
    let proxy = proxy(server.addr()).await?;
    let call = kind.connect(proxy.addr()).await?;
    proxy.cut();
    sleep(100).await;
    let start = now_ns();
    let got = limited(call("down")).await;
    proxy.heal()?;
    finish(server, kind, "called while the server is away", got, start, "down").await
}

/// A server that is killed and comes back empty: how long until the client answers again by itself.
async fn restarted(server: &mut Server, kind: Kind) -> Outcome<Vec<String>> {
    let mut call = kind.connect(server.addr()).await?;
    server.kill()?;
    sleep(100).await;
    server.restart()?;
    let start = now_ns();
    let (mut errors, mut by) = (0, "usable by itself");
    if matches!(kind, Kind::Redis) {
        call = kind.connect(server.addr()).await?;
        by = "usable when connected anew";
    }
    while limited(call("restarted")).await.is_err() {
        errors += 1;
        if now_ns() > start + 5_000_000_000 {
            return Err("the client did not come back".into());
        }
        sleep(1).await;
    }
    finish(server, kind, "killed and restarted", Ok(format!("{by}, errors={errors}")), start, "restarted")
        .await
}

/// A caller that drops its future while the reply is on its way. The next command must get its own reply.
async fn given_up(server: &Server, kind: Kind) -> Outcome<Vec<String>> {
    let proxy = proxy(server.addr()).await?;
    let call = kind.connect(proxy.addr()).await?;
    proxy.set(Direction::ToClient, Mode::Hold);
    tokio::select! {
        _ = call("dropped") => return Err("there was a reply through a held connection".into()),
        () = sleep(100) => {}
    }
    proxy.set(Direction::ToClient, Mode::Pass);
    let start = now_ns();
    let got = aligned(&call).await;
    finish(server, kind, "future dropped after it was sent", got, start, "dropped").await
}

/// A caller that polls its future once and drops it, before the connection's task could run.
async fn given_up_unsent(server: &Server, kind: Kind) -> Outcome<Vec<String>> {
    let call = kind.connect(server.addr()).await?;
    let mut command = call("unsent");
    let polled = poll_fn(|cx| Poll::Ready(command.as_mut().poll(cx))).await;
    if polled.is_ready() {
        return Err("it was ready at once".into());
    }
    drop(command);
    let start = now_ns();
    let got = aligned(&call).await;
    finish(server, kind, "future dropped before it was sent", got, start, "unsent").await
}

/// Whether replies still go to the commands that they belong to.
async fn aligned(call: &Call) -> Result<String, String> {
    for expected in 1..=3 {
        let got = limited(call("aligned")).await?;
        if got != expected.to_string() {
            return Ok(format!("the next command got the reply of another: {got}"));
        }
    }
    Ok("the next commands got their own replies".into())
}

/// The reply or the error as text, or that there was neither.
async fn limited(answer: Answer<i64>) -> Result<String, String> {
    tokio::select! {
        got = answer => got.map(|count| count.to_string()).map_err(|error| format!("{error} / {error:?}")),
        () = sleep(LIMIT.as_millis() as u64) => Err("nothing yet".into()),
    }
}

/// Gives a client time to repeat itself, then looks how often the command ran, and cleans up.
async fn finish(
    server: &Server,
    kind: Kind,
    fault: &str,
    got: Result<String, String>,
    start: u64,
    key: &str,
) -> Outcome<Vec<String>> {
    let after = format!("{:.1} ms", (now_ns() - start) as f64 / 1e6);
    sleep(500).await;
    let ran = server.count(key)?;
    server.delete(key)?;
    server.delete("aligned")?;
    let got = got.map_or_else(|error| format!("error: {error}"), |reply| format!("ok: {reply}"));
    Ok(row([fault, kind.name(), &got, &after, &ran.to_string()]))
}

/// Starts a proxy away from this runtime, because it makes its own.
async fn proxy(upstream: SocketAddr) -> Outcome<Proxy> {
    Ok(Handle::current().spawn_blocking(move || Proxy::start(upstream)).await??)
}

async fn sleep(millis: u64) {
    sleep_until(now_ns() + millis * 1_000_000).await;
}
