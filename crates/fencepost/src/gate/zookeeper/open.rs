//! Changes and reads under a pass.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use super::{ROUNDS, ZooKeeperGate, busy};
use crate::{
    error::{Error, ErrorKind},
    gate::Pass,
    zookeeper::{ANY_VERSION, Code, Kind, Reply, Request},
};

/// One change of several that happen together or not at all. Paths begin at the URL's chroot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a node that stays.
    Create {
        /// Its path.
        path: String,
        /// What is in it.
        data: Vec<u8>,
    },
    /// Changes a node that is there.
    Set {
        /// Its path.
        path: String,
        /// What is in it from now on.
        data: Vec<u8>,
    },
    /// Removes a node that has no children.
    Delete {
        /// Its path.
        path: String,
    },
}

/// The way through a [`ZooKeeperGate`] that one pass has opened; a later holder closes it.
#[derive(Clone)]
pub struct OpenZooKeeper {
    gate: ZooKeeperGate,
    path: String,
    pass: Pass,
    /// The version of the mark's node that accepted the pass.
    version: Arc<AtomicI32>,
}

impl OpenZooKeeper {
    pub(super) fn new(gate: ZooKeeperGate, path: String, pass: Pass, version: i32) -> Self {
        Self { gate, path, pass, version: Arc::new(AtomicI32::new(version)) }
    }

    /// Carries out these steps in one with the check: all of them or none.
    ///
    /// # Errors
    ///
    /// As [`ZooKeeperGate::open`]; `Invalid` if a node that was to be made is there, or one that was to be changed is not. Then
    /// nothing happened. `Unknown` if the reply was lost: all of it may have.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped call may or may not have been carried out.
    pub async fn run(&self, steps: Vec<Step>) -> Result<(), Error> {
        match self.attempt(&steps).await? {
            Ok(()) => Ok(()),
            Err((step, code)) => Err(self.failed(&steps[step], code)),
        }
    }

    /// What is in a node, if it is there.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run): a holder that has a successor is told when it reads, too.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn get(&self, path: impl AsRef<str>) -> Result<Option<Vec<u8>>, Error> {
        let path = path.as_ref();
        let full = self.gate.full(path);
        let look = vec![Request::Sync { path: full.clone() }, Request::GetData { path: full, watch: false }];
        let replies = self.gate.ask(look, &self.path).await?;
        // After the read: whoever passes now was the latest when it read.
        if let Err((_, code)) = self.attempt(&[]).await? {
            return Err(code.fail(&self.path).into());
        }
        match replies.last().map(Reply::data) {
            Some(Ok((data, _))) => Ok(Some(data)),
            Some(Err(Code::NO_NODE)) | None => Ok(None),
            Some(Err(code)) => Err(code.fail(path).into()),
        }
    }

    /// Puts something into a node, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn set(&self, path: impl AsRef<str>, data: impl AsRef<[u8]>) -> Result<(), Error> {
        let (path, data) = (path.as_ref().to_owned(), data.as_ref().to_vec());
        let change = [Step::Set { path: path.clone(), data: data.clone() }];
        let make = [Step::Create { path, data }];
        for _ in 0..ROUNDS {
            match self.attempt(&change).await? {
                Ok(()) => return Ok(()),
                Err((_, Code::NO_NODE)) => {}
                Err((_, code)) => return Err(self.failed(&change[0], code)),
            }
            match self.attempt(&make).await? {
                Ok(()) => return Ok(()),
                Err((_, Code::NODE_EXISTS)) => {}
                Err((_, code)) => return Err(self.failed(&make[0], code)),
            }
        }
        Err(busy(&self.path))
    }

    /// Removes a node; true if it was there.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn delete(&self, path: impl AsRef<str>) -> Result<bool, Error> {
        let step = Step::Delete { path: path.as_ref().to_owned() };
        match self.attempt(std::slice::from_ref(&step)).await? {
            Ok(()) => Ok(true),
            Err((_, Code::NO_NODE)) => Ok(false),
            Err((_, code)) => Err(self.failed(&step, code)),
        }
    }

    /// Sends the check and the steps; answers which step failed and why. A mark that has changed is looked at again: it may
    /// have been set by an operator, and still accept us.
    async fn attempt(&self, steps: &[Step]) -> Result<Result<(), (usize, Code)>, Error> {
        self.check_paths(steps)?;
        for _ in 0..ROUNDS {
            let version = self.version.load(Ordering::Relaxed);
            let mark = Request::Check { path: self.gate.full(&self.path), version };
            let requests = [mark].into_iter().chain(steps.iter().map(|step| self.request(step))).collect();
            let replies = self.gate.ask(vec![Request::Multi(requests)], &self.path).await?;
            let Some(reply) = replies.first() else { return Ok(Err((0, Code::MARSHALLING))) };
            match reply.steps(steps.len() + 1) {
                Ok(()) => return Ok(Ok(())),
                Err((0, Code::BAD_VERSION | Code::NO_NODE)) => {
                    let version = self.gate.raise(&self.path, &self.pass).await?;
                    self.version.store(version, Ordering::Relaxed);
                }
                Err((0, code)) => return Err(code.fail(&self.path).into()),
                Err((step, code)) => return Ok(Err((step - 1, code))),
            }
        }
        Err(busy(&self.path))
    }

    fn request(&self, step: &Step) -> Request {
        match step {
            Step::Create { path, data } => Request::Create {
                path: self.gate.full(path),
                data: data.clone(),
                kind: Kind::Persistent,
                acl: self.gate.visitor.options().acl,
            },
            Step::Set { path, data } => {
                Request::SetData { path: self.gate.full(path), data: data.clone(), version: ANY_VERSION }
            }
            Step::Delete { path } => Request::Delete { path: self.gate.full(path) },
        }
    }

    /// A mark must not be changed as if it were data.
    fn check_paths(&self, steps: &[Step]) -> Result<(), Error> {
        let path = |step: &Step| match step {
            Step::Create { path, .. } | Step::Set { path, .. } | Step::Delete { path } => path.clone(),
        };
        match steps.iter().map(path).find(|path| path.starts_with("/fencepost/gates/")) {
            None => Ok(()),
            Some(path) => {
                let text = format!("the node is a gate's own mark: name another, path={path}");
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }

    fn failed(&self, step: &Step, code: Code) -> Error {
        let (path, why) = match step {
            Step::Create { path, .. } => (path, "the node is there already, or has nothing above it"),
            Step::Set { path, .. } => (path, "the node is not there"),
            Step::Delete { path } => (path, "the node is not there, or has children"),
        };
        match code {
            Code::NO_NODE | Code::NODE_EXISTS | Code(-111) => {
                Error::new(ErrorKind::Invalid, format!("{why}; nothing was changed: path={path}"))
            }
            code => code.fail(path).into(),
        }
    }
}

impl fmt::Debug for OpenZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenZooKeeper")
            .field("path", &self.path)
            .field("pass", &self.pass)
            .finish_non_exhaustive()
    }
}
