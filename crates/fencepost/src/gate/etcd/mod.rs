//! A gate for keys of one etcd cluster: the check and the operations that it protects are one transaction.
//!
//! The mark of a resource is two keys: the highest token, written with 20 digits so that values compare as numbers do, and its
//! lineage. A comparison of a missing key's value is false in etcd, so one transaction decides whether or not there is a mark.

mod open;

use std::{fmt, sync::Arc, time::Duration};

pub use open::{Answer, OpenEtcd, Operation};

use super::{mark::Mark, pass::Pass, patience::within, refusal::unknown_outcome, resource::Resource};
use crate::{
    SystemHost,
    connect::Url,
    driver::{Fail, Host},
    error::{Error, ErrorKind},
    etcd::{
        Api, Client, KeyValue, Options, Response, Transport, TxnRequest, TxnResponse, delete,
        first_by_creation, put, range,
    },
    lock::DEFAULT_PATIENCE,
    token::{Lineage, Token},
};

/// Keys of an etcd cluster that only the latest holder of a lock reads and changes.
///
/// The mark of a resource lies at [`key`](Self::key) and is as durable as the data beside it. It protects from whoever goes through
/// a gate; a client that writes past it is not stopped.
///
/// ```no_run
/// # async fn example(guard: fencepost::Guard) -> Result<(), fencepost::Error> {
/// use fencepost::gate::EtcdGate;
///
/// let gate = EtcdGate::connect("etcd://a,b,c").await?;
/// let keys = gate.open("orders/4821", &guard).await?;   // from here on, whoever held the lock before us is refused
/// let stock = keys.get("stock").await?;
/// let stock = stock.and_then(|text| String::from_utf8(text).ok()?.parse().ok()).unwrap_or(100);
/// keys.set("stock", (stock - 1).to_string()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct EtcdGate {
    api: Arc<Api>,
    host: Arc<dyn Host>,
    patience: Duration,
}

impl EtcdGate {
    /// A gate at the cluster that an `etcd://` or `etcds://` URL names. The connection is made at first use. The URL's options are
    /// those of a lock's; `prefix` and `names` are about the keys of locks and change no mark's.
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
        if !matches!(url.scheme.as_str(), "etcd" | "etcds") {
            let text = format!("the scheme {:?} has no etcd behind it; give etcd:// or etcds://", url.scheme);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let host: Arc<dyn Host> = Arc::new(SystemHost);
        let client = Client::new(Options::from_url(url)?, host.clone());
        Ok(Self::over(Arc::new(client), host))
    }

    /// A gate over a transport of the caller's own.
    pub fn over(transport: Arc<dyn Transport>, host: Arc<dyn Host>) -> Self {
        Self { api: Arc::new(Api::new(transport)), host, patience: DEFAULT_PATIENCE }
    }

    /// How long the cluster may take to answer (10 s unless set).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// What the keys of a resource's mark begin with. A slash or percent sign in the name is escaped, and there is no other slash:
    /// whatever a lock is called, no mark stands in its line, where it would be taken for a holder without a lease.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is no name of a resource.
    pub fn key(resource: impl AsRef<str>) -> Result<String, Error> {
        let resource: Resource = resource.as_ref().parse()?;
        let name = resource.as_str().replace('%', "%25").replace('/', "%2F");
        Ok(format!(".fencepost-gate-{name}-"))
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
    pub async fn open(&self, resource: impl AsRef<str>, pass: impl Into<Pass>) -> Result<OpenEtcd, Error> {
        let resource = resource.as_ref();
        let open = OpenEtcd::new(self.clone(), resource.to_owned(), MarkKeys::of(resource)?, pass.into());
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
    /// As they say; `Invalid` if the keys hold something else.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn mark(&self, resource: impl AsRef<str>) -> Result<Mark, Error> {
        let keys = MarkKeys::of(resource.as_ref())?;
        let ask = TxnRequest { success: keys.look(), ..TxnRequest::default() };
        mark(&self.ask(ask, &keys.prefix).await?, &keys.prefix)
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
        let keys = MarkKeys::of(resource.as_ref())?;
        let set = |key: &[u8], value: Option<String>| match value {
            Some(value) => put(key, value.into_bytes(), 0),
            None => delete(key),
        };
        let mut operations = keys.look();
        operations.push(set(&keys.highest, to.highest.map(digits)));
        operations.push(set(&keys.lineage, to.lineage.map(|lineage| lineage.as_str().to_owned())));
        let ask = TxnRequest { success: operations, ..TxnRequest::default() };
        // What was there may be what made the operator set it.
        Ok(mark(&self.ask(ask, &keys.prefix).await?, &keys.prefix).unwrap_or_default())
    }

    async fn ask(&self, ask: TxnRequest, key: &str) -> Result<TxnResponse, Error> {
        let api = self.api.clone();
        let asked = Box::pin(async move { api.txn("gate", ask).await });
        within(&self.host, self.patience, asked).await.map_err(|fail| match fail {
            Fail::Unknown(why) => unknown_outcome(key).caused_by(why),
            fail => fail.into(),
        })
    }
}

/// Where the mark of one resource lies.
#[derive(Clone)]
struct MarkKeys {
    prefix: String,
    highest: Vec<u8>,
    lineage: Vec<u8>,
}

impl MarkKeys {
    fn of(resource: &str) -> Result<Self, Error> {
        let prefix = EtcdGate::key(resource)?;
        let key = |end: &str| format!("{prefix}{end}").into_bytes();
        Ok(Self { highest: key("highest"), lineage: key("lineage"), prefix })
    }

    fn look(&self) -> Vec<crate::etcd::RequestOp> {
        [&self.highest, &self.lineage].map(|key| range(first_by_creation(key, &[]))).into()
    }
}

/// A token as values compare: by its digits from the left.
fn digits(token: Token) -> String {
    format!("{:020}", token.get())
}

/// The mark that the first two operations of a transaction found.
fn mark(reply: &TxnResponse, key: &str) -> Result<Mark, Error> {
    let strange = || {
        let why = "the key holds something other than the mark of a gate: move it away";
        Error::new(ErrorKind::Invalid, format!("{why}, key={key}"))
    };
    let text = |place: usize| match found(reply, place) {
        Some(row) => std::str::from_utf8(&row.value).map(Some).map_err(|_| strange()),
        None => Ok(None),
    };
    let highest = text(0)?.map(|text| text.parse::<u64>().ok().and_then(Token::new).ok_or_else(strange));
    Ok(Mark { highest: highest.transpose()?, lineage: text(1)?.map(Lineage::new) })
}

fn found(reply: &TxnResponse, place: usize) -> Option<&KeyValue> {
    match reply.responses.get(place).and_then(|answer| answer.response.as_ref()) {
        Some(Response::Range(rows)) => rows.kvs.first(),
        _ => None,
    }
}

impl fmt::Debug for EtcdGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdGate").field(&self.api.transport.name()).finish()
    }
}
