//! A gate for keys of one Redis server: the check and the commands that it protects are one script.

mod call;
mod open;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

pub use open::OpenRedis;

use super::{mark::Mark, pass::Pass, resource::Resource};
use crate::{
    SystemHost,
    connect::Url,
    driver::Host,
    error::{Error, ErrorKind},
    lock::DEFAULT_PATIENCE,
    redis::{Client, Command, Options, Reply, Script, Transport},
    token::{Lineage, Token},
};

static RUN: Script = Script::new(|| Cow::Owned(format!("{}\n{}", RedisGate::ADMIT, include_str!("run.lua"))));
static REBIND: Script = Script::new(|| Cow::Borrowed(include_str!("rebind.lua")));

/// Keys of a Redis server that only the latest holder of a lock reads and changes.
///
/// The mark of a resource is the hash at [`key`](Self::key), without an expiry. It is as durable as the data beside it: what a
/// server without persistence loses, or a failover, it loses of both. A server that evicts any key (`maxmemory-policy allkeys-…`)
/// may evict a mark; use `noeviction` or a `volatile-…` policy.
///
/// - It protects from whoever goes through a gate. A client that sends its SET past it is not stopped.
/// - On a Cluster's node all keys of a script are in one slot: give the keys of a resource its name as their hash tag, such
///   as `{orders/4821}:stock`, which is that of the mark.
/// - A script of your own is gated with [`ADMIT`](Self::ADMIT).
///
/// ```no_run
/// # async fn example(guard: fencepost::Guard) -> Result<(), fencepost::Error> {
/// use fencepost::gate::RedisGate;
///
/// let gate = RedisGate::connect("redis://cache1:6379/0").await?;
/// let keys = gate.open("orders/4821", &guard).await?;   // from here on, whoever held the lock before us is refused
/// let stock = keys.get("{orders/4821}:stock").await?;
/// let stock = stock.and_then(|text| String::from_utf8(text).ok()?.parse().ok()).unwrap_or(100);
/// keys.set("{orders/4821}:stock", (stock - 1).to_string()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisGate {
    transport: Arc<dyn Transport>,
    host: Arc<dyn Host>,
    patience: Duration,
}

impl RedisGate {
    /// The Lua function `fencepost_admit(key, token, lineage)`, to stand before the lines of your own script. It answers nil if the
    /// pass is accepted; otherwise the error reply that the script must return at once: `STALE <highest>`, `LINEAGE <recorded>` or
    /// `INVALID <why>`. Call it before anything else, with the key that [`key`](Self::key) names, the token as a decimal
    /// string, and the lineage or an empty string.
    pub const ADMIT: &str = include_str!("admit.lua");

    /// A gate at the server that a `redis://` or `rediss://` URL names. The connection is made at first use. The URL's options
    /// are those of a lock's; `prefix` is about the keys of locks and changes no mark's.
    ///
    /// # Errors
    ///
    /// `Invalid`, naming the part of the URL to fix.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let url: Url = url.parse()?;
        if !matches!(url.scheme.as_str(), "redis" | "rediss") {
            let text =
                format!("the scheme {:?} has no Redis behind it; give redis:// or rediss://", url.scheme);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let host: Arc<dyn Host> = Arc::new(SystemHost);
        let client = Client::new(Options::from_url(url)?, host.clone());
        Ok(Self::over(Arc::new(client), host))
    }

    /// A gate over a transport of the caller's own, such as a [`Borrowed`](crate::redis::Borrowed) connection.
    pub fn over(transport: Arc<dyn Transport>, host: Arc<dyn Host>) -> Self {
        Self { transport, host, patience: DEFAULT_PATIENCE }
    }

    /// How long the server may take to answer (10 s unless set).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The key of a resource's mark. A brace or percent sign in the name is escaped, so that no name changes the hash tag.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is no name of a resource.
    pub fn key(resource: impl AsRef<str>) -> Result<String, Error> {
        let resource: Resource = resource.as_ref().parse()?;
        let tag = resource.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        Ok(format!("gate:{{{tag}}}"))
    }

    /// Raises the mark, and gives reads and writes under this pass.
    ///
    /// # Errors
    ///
    /// `Stale` and `OtherLineage`, and then nothing changes; `Unknown` if the reply was lost: open it again, which is harmless;
    /// otherwise as they say.
    ///
    /// # Cancel safety
    ///
    /// Safe: the mark may be raised, as by a fence.
    pub async fn open(&self, resource: impl AsRef<str>, pass: impl Into<Pass>) -> Result<OpenRedis, Error> {
        let resource = resource.as_ref();
        let open = OpenRedis::new(self.clone(), resource.to_owned(), Self::key(resource)?, pass.into());
        open.run(Vec::new()).await?;
        Ok(open)
    }

    /// Raises the mark and does nothing else, as after a forced unlock.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    ///
    /// Safe: the mark may be raised.
    pub async fn fence(&self, resource: impl AsRef<str>, pass: impl Into<Pass>) -> Result<(), Error> {
        self.open(resource, pass).await.map(drop)
    }

    /// What the gate has recorded; nothing if it was never used.
    ///
    /// # Errors
    ///
    /// As they say; `Invalid` if the key holds something else.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn mark(&self, resource: impl AsRef<str>) -> Result<Mark, Error> {
        let key = Self::key(resource)?;
        let command = Command::new("HMGET").arg(&key).arg("highest").arg("lineage");
        let reply = self.ask(command, &key).await?;
        mark(&reply).ok_or_else(|| call::not_a_mark(&key))
    }

    /// Sets the mark to what an operator knows to be right, lower ones too, and returns the one that was there.
    ///
    /// # Errors
    ///
    /// As they say.
    ///
    /// # Cancel safety
    ///
    /// The mark may be set.
    pub async fn rebind(&self, resource: impl AsRef<str>, to: Mark) -> Result<Mark, Error> {
        let key = Self::key(resource)?;
        let highest = to.highest.map(|highest| highest.to_string()).unwrap_or_default();
        let lineage = to.lineage.as_ref().map_or("", Lineage::as_str);
        let command = REBIND.command(&[&key], &[&highest, lineage]);
        let reply = self.run(&REBIND, command, &key).await?;
        Ok(mark(&reply).unwrap_or_default())
    }
}

/// A mark as the hash has it: what is not there is missing or empty.
fn mark(reply: &Reply) -> Option<Mark> {
    let [highest, lineage] = reply.list() else { return None };
    let field = |reply: &Reply| match reply {
        Reply::Nil => Some(None),
        reply => reply.text().map(|text| Some(text.to_owned()).filter(|text| !text.is_empty())),
    };
    let highest = match field(highest)? {
        Some(text) => Some(text.parse::<Token>().ok()?),
        None => None,
    };
    Some(Mark { highest, lineage: field(lineage)?.map(Lineage::new) })
}

impl fmt::Debug for RedisGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisGate").field(&self.transport.name()).finish()
    }
}
