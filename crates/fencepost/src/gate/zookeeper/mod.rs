//! A gate for nodes of one ZooKeeper ensemble: the check and the changes that it protects are one `multi`.

mod open;

use std::{fmt, sync::Arc, time::Duration};

pub use open::{OpenZooKeeper, Step};

use super::{
    mark::{Decision, Mark},
    pass::Pass,
    patience::within,
    refusal::unknown_outcome,
    resource::Resource,
};
use crate::{
    SystemHost,
    connect::Url,
    driver::Fail,
    error::{Error, ErrorKind},
    lock::DEFAULT_PATIENCE,
    zookeeper::{Code, Kind, Options, Reply, Request, Visitor, escape},
};

/// How often a mark is read again that somebody else has raised meanwhile. Each time one of us got on.
const ROUNDS: usize = 64;

/// Nodes of a ZooKeeper ensemble that only the latest holder of a lock changes.
///
/// The mark of a resource is a node of its own, [`path`](Self::path), and the version of that node is what the changes are checked
/// with. Never delete it: the mark would be gone, and its version would begin anew.
///
/// - It protects from whoever goes through a gate. A client that writes past it is not stopped; access lists can.
/// - The lock may be of any backend. A token of this ensemble's own is shown like any other.
///
/// ```no_run
/// # async fn example(guard: fencepost::Guard) -> Result<(), fencepost::Error> {
/// use fencepost::gate::ZooKeeperGate;
///
/// let gate = ZooKeeperGate::connect("zk://zoo1,zoo2,zoo3/shop").await?;
/// let nodes = gate.open("orders/4821", &guard).await?;   // from here on, whoever held the lock before us is refused
/// let stock = nodes.get("/stock").await?;
/// let stock = stock.and_then(|text| String::from_utf8(text).ok()?.parse().ok()).unwrap_or(100);
/// nodes.set("/stock", (stock - 1).to_string()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ZooKeeperGate {
    visitor: Arc<Visitor>,
    patience: Duration,
}

impl ZooKeeperGate {
    /// A gate at the ensemble that a `zk://` or `zks://` URL names. The connection is made at first use. The URL's options are those of
    /// a lock's; paths begin at its chroot.
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
        if !matches!(url.scheme.as_str(), "zk" | "zks") {
            let text =
                format!("the scheme {:?} has no ZooKeeper behind it; give zk:// or zks://", url.scheme);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let options = Arc::new(Options::from_url(url)?);
        let visitor = Arc::new(Visitor::new(options, Arc::new(SystemHost)));
        Ok(Self { visitor, patience: DEFAULT_PATIENCE })
    }

    /// How long the ensemble may take to answer (10 s unless set).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The path of a resource's mark, in the chroot.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is no name of a resource.
    pub fn path(resource: impl AsRef<str>) -> Result<String, Error> {
        let resource: Resource = resource.as_ref().parse()?;
        Ok(format!("/fencepost/gates/{}", escape(resource.as_str())))
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
    pub async fn open(
        &self,
        resource: impl AsRef<str>,
        pass: impl Into<Pass>,
    ) -> Result<OpenZooKeeper, Error> {
        let (path, pass) = (Self::path(&resource)?, pass.into());
        let version = self.raise(&path, &pass).await?;
        Ok(OpenZooKeeper::new(self.clone(), path, pass, version))
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
    /// As they say; `Invalid` if the node holds something else.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn mark(&self, resource: impl AsRef<str>) -> Result<Mark, Error> {
        let path = Self::path(resource)?;
        Ok(self.read(&path).await?.map(|(mark, _)| mark).unwrap_or_default())
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
        let path = Self::path(resource)?;
        for _ in 0..ROUNDS {
            let found = self.read(&path).await?;
            if self.write(&path, &to, found.as_ref().map(|(_, version)| *version)).await?.is_some() {
                return Ok(found.map(|(mark, _)| mark).unwrap_or_default());
            }
        }
        Err(busy(&path))
    }

    /// Shows a pass to the mark, and answers the version of the mark's node that accepted it.
    async fn raise(&self, path: &str, pass: &Pass) -> Result<i32, Error> {
        for _ in 0..ROUNDS {
            let found = self.read(path).await?;
            let version = found.as_ref().map(|(_, version)| *version);
            let (mark, at) = found.unwrap_or_default();
            match mark.decide(pass)? {
                Decision::Admit => return Ok(at),
                Decision::Record(next) => {
                    if let Some(version) = self.write(path, &next, version).await? {
                        return Ok(version);
                    }
                }
            }
        }
        Err(busy(path))
    }

    /// The mark and the version of its node, as they are at the leader.
    async fn read(&self, path: &str) -> Result<Option<(Mark, i32)>, Error> {
        let full = self.full(path);
        let look = vec![Request::Sync { path: full.clone() }, Request::GetData { path: full, watch: false }];
        let replies = self.ask(look, path).await?;
        match replies.last().map(Reply::data) {
            Some(Ok((data, stat))) => {
                let mark = serde_json::from_slice(&data).map_err(|_| not_a_mark(path))?;
                Ok(Some((mark, stat.version)))
            }
            Some(Err(Code::NO_NODE)) | None => Ok(None),
            Some(Err(code)) => Err(code.fail(path).into()),
        }
    }

    /// Writes the mark where it is still of this version, or not there; answers the new version, `None` if it was not.
    async fn write(&self, path: &str, mark: &Mark, version: Option<i32>) -> Result<Option<i32>, Error> {
        let data = serde_json::to_vec(mark).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
        let full = self.full(path);
        let Some(version) = version else { return self.create(full, data, path).await };
        let replies = self.ask(vec![Request::SetData { path: full, data, version }], path).await?;
        match replies.first().map(Reply::stat) {
            Some(Ok(stat)) => Ok(Some(stat.version)),
            Some(Err(Code::BAD_VERSION | Code::NO_NODE)) | None => Ok(None),
            Some(Err(code)) => Err(code.fail(path).into()),
        }
    }

    async fn create(&self, full: String, data: Vec<u8>, path: &str) -> Result<Option<i32>, Error> {
        let acl = self.visitor.options().acl;
        let node = |path: String, data| Request::Create { path, data, kind: Kind::Persistent, acl };
        // What stands above it is made with it, the first time.
        let above = ["/fencepost", "/fencepost/gates"].map(|path| node(self.full(path), Vec::new()));
        let requests = above.into_iter().chain([node(full, data)]).collect();
        let replies = self.ask(requests, path).await?;
        for (reply, is_last) in replies.iter().zip([false, false, true]) {
            match reply.done() {
                Err(Code::NODE_EXISTS) if is_last => return Ok(None),
                Ok(()) | Err(Code::NODE_EXISTS) => {}
                Err(code) => return Err(code.fail(path).into()),
            }
        }
        Ok(Some(0))
    }

    fn full(&self, path: &str) -> String {
        format!("{}{path}", self.visitor.options().chroot)
    }

    /// Sends requests in one piece.
    async fn ask(&self, requests: Vec<Request>, path: &str) -> Result<Vec<Reply>, Error> {
        let visitor = self.visitor.clone();
        let asked = Box::pin(async move { visitor.send(&requests).await });
        within(self.visitor.host(), self.patience, asked).await.map_err(|fail| match fail {
            Fail::Unknown(why) => unknown_outcome(path).caused_by(why),
            fail => fail.into(),
        })
    }
}

fn busy(path: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the mark is changed all the time; try again: path={path}"))
}

fn not_a_mark(path: &str) -> Error {
    let why = "the node holds something other than the mark of a gate: move it away";
    Error::new(ErrorKind::Invalid, format!("{why}, path={path}"))
}

impl fmt::Debug for ZooKeeperGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZooKeeperGate").field(&self.visitor.options().name()).finish()
    }
}
