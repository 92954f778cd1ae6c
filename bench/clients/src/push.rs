//! Messages and invalidations on the connection that carries the commands.

use std::net::SocketAddr;

use fencepost_lab::clock::{now_ns, sleep_until};
use fred::{
    prelude::{
        Client, ClientInterface, ClientLike, EventInterface, LuaInterface, PubsubInterface, TrackingInterface,
    },
    types::{CustomCommand, Message, client::Invalidation},
};
use futures_util::{FutureExt, future::try_join};
use redis::{PushInfo, PushKind, aio::MultiplexedConnection};
use tokio::{
    runtime::Handle,
    sync::{
        broadcast::Receiver,
        mpsc::{UnboundedReceiver, unbounded_channel},
    },
};

use crate::{
    Outcome,
    candidates::{Answer, FredOptions, config, connect_fred, open},
    host::Host,
    server::{NOTIFY, Server, hash},
    table::median,
};

const TRACKED: &str = "tracked";
const READ: &str = "return redis.call('GET', KEYS[1])";

/// A client that listens on the connection with which it speaks.
trait Listener {
    /// Publishes to itself by a script, which answers the number of receivers.
    fn notify(&self) -> Answer<i64>;
    async fn message(&mut self) -> Outcome<()>;
    /// Reads a key by a script, and asks to be told when the key changes.
    async fn track(&self) -> Outcome<()>;
    async fn invalidated(&mut self) -> Outcome<()>;
}

struct Redis {
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

impl Redis {
    async fn connect(addr: SocketAddr, place: &Handle) -> Outcome<Self> {
        let (sender, pushes) = unbounded_channel();
        let mut connection = open(addr, place, config().set_push_sender(sender)).await?;
        connection.subscribe("redis").await?;
        Ok(Self { connection, pushes })
    }

    async fn push(&mut self, kind: PushKind) -> Outcome<()> {
        while self.pushes.recv().await.ok_or("the connection is gone")?.kind != kind {}
        Ok(())
    }
}

impl Listener for Redis {
    fn notify(&self) -> Answer<i64> {
        let mut connection = self.connection.clone();
        let mut command = redis::cmd("EVALSHA");
        command.arg(hash(NOTIFY)).arg(1).arg("redis").arg("");
        Box::pin(async move { Ok(command.query_async(&mut connection).await?) })
    }

    async fn message(&mut self) -> Outcome<()> {
        self.push(PushKind::Message).await
    }

    async fn track(&self) -> Outcome<()> {
        let connection = &mut self.connection.clone();
        let () = redis::cmd("CLIENT").arg(&["TRACKING", "ON", "OPTIN"]).query_async(connection).await?;
        let mut read = redis::pipe();
        read.cmd("CLIENT").arg(&["CACHING", "YES"]).cmd("EVAL").arg(&[READ, "1", TRACKED]);
        Ok(read.query_async(connection).await?)
    }

    async fn invalidated(&mut self) -> Outcome<()> {
        self.push(PushKind::Invalidate).await
    }
}

struct Fred {
    client: Client,
    messages: Receiver<Message>,
    invalidations: Receiver<Invalidation>,
}

impl Fred {
    async fn connect(addr: SocketAddr) -> Result<Self, fred::error::Error> {
        let client = connect_fred(addr, FredOptions::default()).await?;
        client.subscribe("fred").await?;
        Ok(Self { messages: client.message_rx(), invalidations: client.invalidation_rx(), client })
    }
}

impl Listener for Fred {
    fn notify(&self) -> Answer<i64> {
        let client = self.client.clone();
        Box::pin(async move { Ok(client.evalsha(hash(NOTIFY), "fred", "").await?) })
    }

    async fn message(&mut self) -> Outcome<()> {
        Ok(self.messages.recv().await.map(drop)?)
    }

    async fn track(&self) -> Outcome<()> {
        self.client.start_tracking(Vec::<String>::new(), false, true, false, false).await?;
        // Its option `caching` is stored with a command and never read, so the announcement is sent by hand.
        let pipeline = self.client.pipeline();
        let () = pipeline.client_caching(true).await?;
        let read = CustomCommand::new_static("EVAL", None, false);
        let () = pipeline.custom(read, vec![READ, "1", TRACKED]).await?;
        let _answers: Vec<fred::types::Value> = pipeline.all().await?;
        Ok(())
    }

    async fn invalidated(&mut self) -> Outcome<()> {
        Ok(self.invalidations.recv().await.map(drop)?)
    }
}

/// What one candidate did.
pub(crate) struct Push {
    pub(crate) name: &'static str,
    /// Microseconds until the message was there, and until the reply was.
    pub(crate) message: f64,
    pub(crate) reply: f64,
    /// Microseconds until a tracked key's deletion was told, if it was.
    pub(crate) invalidated: Option<f64>,
}

/// Both candidates in turn, each with its connection on the other thread.
pub(crate) async fn measure(server: &Server, host: &Host, turns: usize) -> Outcome<Vec<Push>> {
    let mut redis = Redis::connect(server.addr(), host.handle()).await?;
    let mut fred = host.run(Fred::connect(server.addr()))??;
    let mut times = [const { (Vec::new(), Vec::new()) }; 2];
    for _ in 0..turns {
        turn(&mut redis, &mut times[0]).await?;
        turn(&mut fred, &mut times[1]).await?;
    }
    let told = [invalidation(&mut redis, server).await?, invalidation(&mut fred, server).await?];
    fred.client.quit().await?;
    let names = ["redis", "fred"].into_iter();
    let result = |(name, ((messages, replies), invalidated))| Push {
        name,
        message: median(messages),
        reply: median(replies),
        invalidated,
    };
    Ok(names.zip(times.into_iter().zip(told)).map(result).collect())
}

async fn turn(listener: &mut impl Listener, (messages, replies): &mut (Vec<f64>, Vec<f64>)) -> Outcome<()> {
    for _ in 0..20 {
        let start = now_ns();
        let since = || (now_ns() - start) as f64 / 1e3;
        let reply = listener.notify().map(|reply| reply.map(|receivers| (receivers, since())));
        let message = listener.message().map(|message| message.map(|()| since()));
        let ((receivers, reply), message) = try_join(reply, message).await?;
        if receivers != 1 {
            return Err(
                format!("the script did not see its own connection listen: receivers={receivers}").into()
            );
        }
        replies.push(reply);
        messages.push(message);
    }
    Ok(())
}

async fn invalidation(listener: &mut impl Listener, server: &Server) -> Outcome<Option<f64>> {
    server.count_up(TRACKED)?;
    listener.track().await?;
    let start = now_ns();
    server.delete(TRACKED)?;
    tokio::select! {
        told = listener.invalidated() => told.map(|()| Some((now_ns() - start) as f64 / 1e3)),
        () = sleep_until(start + 1_000_000_000) => Ok(None),
    }
}
