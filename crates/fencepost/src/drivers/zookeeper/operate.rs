//! What operators ask, and what is made once.

use std::{any::Any, sync::Arc};

use tokio::sync::Notify;

use super::{
    Zk,
    enter::{children, holder_of},
    names::{self, Contender},
    one, remove,
};
use crate::{
    driver::{Fail, ForcedOut, Holder, Operator, Status},
    host::Fut,
    name::LockName,
    owner::Owner,
    token::{Lineage, Token},
    zookeeper::{Code, Kind, Names, Options, Reply, Request, Session, Visitor, slash},
};

/// How many nodes are read in one piece.
const BATCH: usize = 256;

impl Visitor {
    /// Makes the root for locks if it is missing, and answers the lineage of the tokens, which is written once.
    pub(super) async fn prepare(&self) -> Result<Lineage, Fail> {
        let options = self.options();
        let session = self.session().await?;
        let (home, written) = (format!("{}/fencepost", options.chroot), written(options));
        let look = [
            Request::Exists { path: slash(&options.chroot), watch: false },
            Request::Exists { path: options.top_or_slash(), watch: false },
            Request::GetData { path: written.clone(), watch: false },
        ];
        let replies = session.send(&look).await?;
        let [chroot, top, lineage] = replies.as_slice() else {
            return Err(Fail::Internal("zookeeper answered too few requests".into()));
        };
        if chroot.stat() == Err(Code::NO_NODE) {
            return Err(Fail::Invalid(format!(
                "zookeeper has no node for the url's path; make it first, or leave it out: path={}",
                options.chroot
            )));
        }
        if top.stat() == Err(Code::NO_NODE) {
            let below = &options.top()[options.chroot.len()..];
            let ends = below.match_indices('/').map(|(at, _)| at).skip(1).chain([below.len()]);
            let paths = ends.map(|end| format!("{}{}", options.chroot, &below[..end]));
            self.make(&session, paths.map(|path| (path, Vec::new())).collect()).await?;
        }
        match (&options.lineage, lineage.data()) {
            (Some(named), _) => Ok(Lineage::new(named.as_str())),
            (None, Ok((data, _))) => read_lineage(data),
            (None, Err(Code::NO_NODE)) => {
                let host = self.host();
                let fresh = format!("zookeeper-{:016x}{:016x}", host.random(), host.random());
                let made = vec![(home, Vec::new()), (written.clone(), fresh.into_bytes())];
                self.make(&session, made).await?;
                let read =
                    one(session.send(&[Request::GetData { path: written.clone(), watch: false }]).await?)?;
                read_lineage(read.data().map_err(|code| code.fail(&written))?.0)
            }
            (None, Err(code)) => Err(code.fail(&written)),
        }
    }
}

/// Looks whether a new session is at the ensemble that we knew, and answers how far that has come. One that was rebuilt, or
/// restored from a copy of its past, would hand out tokens again that others have under the same lineage.
pub(super) async fn same_ensemble(
    session: &Session,
    options: &Options,
    known: &Lineage,
    highest: i64,
) -> Result<i64, Fail> {
    let written = written(options);
    // After a sync a server is not behind anything that was answered before.
    let look = [
        Request::Sync { path: options.top_or_slash() },
        Request::GetData { path: written.clone(), watch: false },
    ];
    let replies = session.send(&look).await?;
    match replies.last().map(Reply::data) {
        _ if options.lineage.is_some() => {}
        Some(Ok((data, _))) if data == known.as_str().as_bytes() => {}
        Some(Ok(_) | Err(Code::NO_NODE)) | None => {
            return Err(Fail::Invalid(
                "zookeeper was rebuilt since we connected, and its tokens begin anew; connect again, and rebind the gates".into(),
            ));
        }
        Some(Err(code)) => return Err(code.fail(&written)),
    }
    let seen = session.seen();
    if seen >= highest {
        return Ok(seen);
    }
    Err(Fail::Invalid(format!(
        "zookeeper was put back to an earlier state since we connected, and would repeat its tokens; docs/zookeeper.md has the way out: change={seen} seen={highest}"
    )))
}

/// The node that holds the lineage.
fn written(options: &Options) -> String {
    format!("{}/fencepost/lineage", options.chroot)
}

fn read_lineage(data: Vec<u8>) -> Result<Lineage, Fail> {
    match String::from_utf8(data) {
        Ok(text) if !text.is_empty() => Ok(Lineage::new(text)),
        _ => Err(Fail::Invalid(
            "the node fencepost/lineage holds no lineage; write a name into it, or delete it".into(),
        )),
    }
}

impl Zk {
    async fn look(&self, session: &Session, lock: &LockName) -> Result<Status, Fail> {
        let path = names::path(&self.options, lock)?;
        let line = names::line(&children(session, &path).await?);
        read(session, lock, &path, &line).await
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Status>, Fail> {
        let session = self.operator.session().await?;
        let top = self.options.top();
        let mut found = Vec::new();
        // With names as they are, a lock's node may have other locks below it.
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let path = slash(&format!("{top}{folder}"));
            let children = children(&session, &path).await?;
            let line = names::line(&children);
            if let Some(lock) = folder.get(1..).and_then(|below| names::lock(&self.options, below))
                && !line.is_empty()
                && lock.as_str().starts_with(prefix)
            {
                found.push(read(&session, &lock, &path, &line).await?);
            }
            if folder.is_empty() || self.options.names == Names::Raw {
                let is_other = |name: &&String| Contender::parse(name).is_none();
                let own = |name: &&String| !(path == "/" && *name == "zookeeper");
                folders.extend(
                    children.iter().filter(is_other).filter(own).map(|name| format!("{folder}/{name}")),
                );
            }
        }
        found.retain(|status| status.holder.is_some());
        found.sort_by(|a, b| a.lock.cmp(&b.lock));
        Ok(found)
    }

    /// Deletes the holder's node, whoever it is by then: the one that was looked at.
    ///
    /// The token must be above the holder's, and not above that of whoever is next, so that a gate raised with it lets
    /// them in. So we first stand in line ourselves: if nobody is between, ours is the token, and all that come later
    /// are above it.
    ///
    /// On a session of its own: a node of ours that is left behind, whatever goes wrong, would keep the lock.
    async fn force(&self, lock: &LockName) -> Result<ForcedOut, Fail> {
        let session = self.operator.own().await?;
        let path = names::path(&self.options, lock)?;
        let mut requests: Vec<_> = names::parents(&self.options, &path)
            .into_iter()
            .map(|path| Request::Create {
                path,
                data: Vec::new(),
                kind: Kind::Container,
                acl: self.options.acl,
            })
            .collect();
        let data = serde_json::to_vec(&Owner::here(Some("forced unlock".into())));
        let stem = format!("{path}/_c_{:016x}{:016x}-lock-", self.host.random(), self.host.random());
        requests.push(Request::Create {
            path: stem.clone(),
            data: data.map_err(|e| Fail::Internal(e.to_string()))?,
            kind: Kind::EphemeralSequential,
            acl: self.options.acl,
        });
        requests.push(Request::GetChildren { path: path.clone() });
        let replies = session.send(&requests).await?;
        let [.., created, children] = replies.as_slice() else {
            return Err(Fail::Internal("zookeeper answered too few requests".into()));
        };
        let (ours, stat) = created.created().map_err(|code| code.fail(&path))?;
        let ours = ours.rsplit('/').next().unwrap_or_default().to_owned();
        let forced = self.force_out(&session, &path, &ours, stat.czxid, children.children()).await?;
        // If it cannot be told, the session ends by itself.
        let _ = session.close().await;
        Ok(forced)
    }

    async fn force_out(
        &self,
        session: &Session,
        path: &str,
        ours: &str,
        czxid: i64,
        children: Result<Vec<String>, Code>,
    ) -> Result<ForcedOut, Fail> {
        let line = names::line(&children.map_err(|code| code.fail(path))?);
        let read = |name: &str| Request::GetData { path: format!("{path}/{name}"), watch: false };
        let ahead: Vec<_> =
            line.iter().map(|contender| contender.name.as_str()).take_while(|name| *name != ours).collect();
        let Some(first) = ahead.first() else {
            return Ok(ForcedOut { holder: None, token: token(czxid)? });
        };
        let looks = session.send(&ahead.iter().map(|name| read(name)).collect::<Vec<_>>()).await?;
        let holder = looks.first().and_then(|reply| holder_of(reply).ok());
        // The first of them that is still there: the second may have left meanwhile.
        let next = looks.iter().skip(1).find_map(|reply| holder_of(reply).ok()).and_then(|next| next.token);
        remove(session, path, &[(*first).to_owned()]).await?;
        Ok(ForcedOut { holder, token: next.map_or_else(|| token(czxid), Ok)? })
    }
}

fn token(czxid: i64) -> Result<Token, Fail> {
    let token = u64::try_from(czxid).ok().and_then(Token::new);
    token.ok_or_else(|| Fail::Internal(format!("zookeeper made a node in no change of its: czxid={czxid}")))
}

/// Reads who stands in this line; those who left meanwhile are not shown.
async fn read(session: &Session, lock: &LockName, path: &str, line: &[Contender]) -> Result<Status, Fail> {
    let mut seen: Vec<Holder> = Vec::new();
    for batch in line.chunks(BATCH) {
        let read = |contender: &Contender| Request::GetData {
            path: format!("{path}/{}", contender.name),
            watch: false,
        };
        let replies = session.send(&batch.iter().map(read).collect::<Vec<_>>()).await?;
        for reply in &replies {
            match holder_of(reply) {
                Ok(holder) => seen.push(holder),
                Err(Code::NO_NODE) => {}
                // It is there, and may not be read.
                Err(_) => seen.push(Holder { token: None, owner: None, expires_in: None }),
            }
        }
    }
    let mut seen = seen.into_iter();
    let holder = seen.next();
    Ok(Status { lock: lock.clone(), holder, waiters: seen.map(|waiter| waiter.owner).collect() })
}

impl Operator for Zk {
    fn inspect<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<Status, Fail>> {
        Box::pin(async move {
            let session = self.operator.session().await?;
            self.look(&session, lock).await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Fut<'a, Result<Vec<Status>, Fail>> {
        Box::pin(self.find(prefix))
    }

    fn force_unlock<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<ForcedOut, Fail>> {
        Box::pin(self.force(lock))
    }

    /// A watch needs a session that somebody renews; the engine asks now and then.
    fn observe(&self, _lock: &LockName, _hint: Arc<Notify>) -> Option<Box<dyn Any + Send>> {
        None
    }
}
