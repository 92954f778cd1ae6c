//! The crate `redis`: a connection over a stream that we hand in, driven by a task of ours.

use std::net::SocketAddr;

use redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, RedisConnectionInfo,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{net::TcpStream, runtime::Handle};

use super::{Answer, Candidate};
use crate::{
    Outcome,
    host::offload,
    server::{SCRIPT, hash},
};

/// RESP3, and nothing else that costs a round trip.
pub(crate) fn info() -> RedisConnectionInfo {
    RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name()
}

/// No timeout of its own: the engine has deadlines, and a timer a command costs.
pub(crate) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None)
}

pub(crate) async fn connect(addr: SocketAddr, place: &Handle) -> Outcome<MultiplexedConnection> {
    open(addr, place, config()).await
}

/// Connects, with the connection's task on the given runtime.
pub(crate) async fn open(
    addr: SocketAddr,
    place: &Handle,
    config: AsyncConnectionConfig,
) -> Outcome<MultiplexedConnection> {
    // The stream belongs to the reactor of the runtime that makes it.
    let stream = place.spawn(stream(addr)).await??;
    let (connection, driver) = MultiplexedConnection::new_with_config(&info(), stream, config).await?;
    place.spawn(driver);
    Ok(connection)
}

pub(super) async fn stream(addr: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Runs the script once, through whatever speaks for the crate.
pub(crate) fn count(mut connection: impl ConnectionLike + Send + 'static, key: &'static str) -> Answer<i64> {
    let command = command(&hash(SCRIPT), key);
    Box::pin(async move { Ok(command.query_async(&mut connection).await?) })
}

fn command(hash: &str, key: &str) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(1).arg(key);
    command
}

fn call(connection: &MultiplexedConnection, hash: &str, key: &str) -> Answer<i64> {
    let (mut connection, command) = (connection.clone(), command(hash, key));
    Box::pin(async move { Ok(command.query_async(&mut connection).await?) })
}

pub(super) fn batch(connection: &MultiplexedConnection, hash: &str, key: &str, size: usize) -> Answer<usize> {
    let mut connection = connection.clone();
    let mut pipeline = redis::pipe();
    for _ in 0..size {
        pipeline.add_command(command(hash, key));
    }
    Box::pin(async move {
        let counts: Vec<i64> = pipeline.query_async(&mut connection).await?;
        Ok(counts.len())
    })
}

pub(super) fn candidate(name: &'static str, connection: MultiplexedConnection) -> Candidate {
    let (hash, other) = (hash(SCRIPT), connection.clone());
    let again = hash.clone();
    Candidate {
        name,
        call: Box::new(move |key| call(&connection, &hash, key)),
        batch: Some(Box::new(move |key, size| batch(&other, &again, key, size))),
    }
}

pub(super) fn offloaded(name: &'static str, connection: MultiplexedConnection, there: Handle) -> Candidate {
    let inner = candidate(name, connection);
    Candidate { call: Box::new(move |key| Box::pin(offload(there.clone(), (inner.call)(key)))), ..inner }
}
