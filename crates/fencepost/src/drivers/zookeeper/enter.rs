//! Entering: how a claim gets into line, and what it looks at while it stands there.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Ahead, Node, Seat, Zk,
    names::{self, Contender, stem},
    one, remove, room,
    routes::{Routes, What},
};
use crate::{
    claim::Claim,
    driver::{Entered, Fail, Holder, Intent},
    owner::Owner,
    token::Token,
    zookeeper::{ANY_VERSION, Code, Kind, Reply, Request, Session, Stat, User},
};

/// How long one waits that is told of everything. A server that forgets a watch would be a fault that nobody has seen.
const RECHECK: Duration = Duration::from_secs(30);

/// Ask again at once: what was to be watched went between two looks.
const AT_ONCE: Duration = Duration::ZERO;

/// One claim's request, and what it needs.
struct Place<'a> {
    claim: &'a Arc<Claim>,
    session: Arc<Session>,
    routes: Arc<Routes>,
    /// The path of the lock's node.
    lock: String,
    intent: Intent,
}

impl Zk {
    pub(super) async fn ask_to_enter(&self, claim: &Arc<Claim>, intent: Intent) -> Result<Entered, Fail> {
        let (session, routes) = room(claim.lease())?;
        let place = Place { claim, session, routes, lock: names::path(&self.options, claim.lock())?, intent };
        let (node, ahead, is_unsure) =
            claim.seat(|seat: &mut Seat| (seat.node.clone(), seat.ahead.clone(), seat.is_unsure));
        match node {
            Some(node) => place.confirm(node, ahead).await,
            None if is_unsure => match place.recover().await? {
                Some((node, line)) => {
                    self.highest.fetch_max(node.czxid, Ordering::Relaxed);
                    place.judge(node, line).await
                }
                None => self.stand_in_line(&place).await,
            },
            None => {
                // A try that finds the lock held leaves no trace, and costs the ensemble no write.
                if intent == Intent::Try {
                    let line = names::line(&children(&place.session, &place.lock).await?);
                    if let Some(first) = line.first() {
                        return Ok(Entered::Busy {
                            retry: RECHECK,
                            holder: place.look_at(&first.name).await?,
                        });
                    }
                }
                self.stand_in_line(&place).await
            }
        }
    }

    async fn stand_in_line(&self, place: &Place<'_>) -> Result<Entered, Fail> {
        if self.has_container(&place.lock) {
            match self.make_node(place, &[]).await? {
                Some((node, line)) => return place.judge(node, line).await,
                // Collected since, as the server does with those that are empty.
                None => self.note_container(&place.lock, false),
            }
        }
        match self.make_node(place, &names::parents(&self.options, &place.lock)).await? {
            Some((node, line)) => {
                self.note_container(&place.lock, true);
                place.judge(node, line).await
            }
            None => {
                // The root itself is gone, if it may be made at all.
                self.operator.prepare().await?;
                Err(Fail::Unavailable(format!(
                    "zookeeper had no root for locks: path={}",
                    self.options.top()
                )))
            }
        }
    }

    /// Makes the claim's node and looks at the line, in one piece; `None` if the lock's node is not there.
    async fn make_node(
        &self,
        place: &Place<'_>,
        parents: &[String],
    ) -> Result<Option<(Node, Vec<Contender>)>, Fail> {
        let (claim, acl) = (place.claim, self.options.acl);
        let data = serde_json::to_vec(claim.owner()).map_err(|e| Fail::Internal(e.to_string()))?;
        let container = |path: &String| Request::Create {
            path: path.clone(),
            data: Vec::new(),
            kind: Kind::Container,
            acl,
        };
        let mut requests: Vec<_> = parents.iter().map(container).collect();
        let path = format!("{}/{}", place.lock, stem(claim.id()));
        requests.push(Request::Create { path, data, kind: Kind::EphemeralSequential, acl });
        requests.push(Request::GetChildren { path: place.lock.clone() });
        // Before the request: this future may be dropped, or the reply lost.
        claim.seat(|seat: &mut Seat| seat.is_unsure = true);
        let replies = match place.session.send(&requests).await {
            Ok(replies) => replies,
            Err(fail) => {
                claim.seat(|seat: &mut Seat| seat.is_unsure = matches!(fail, Fail::Unknown(_)));
                return Err(fail);
            }
        };
        let (made, [created, children]) = replies.split_at(parents.len()) else {
            return Err(Fail::Internal("zookeeper answered too few requests".into()));
        };
        let (made_at, stat) = match created.created() {
            Ok(created) => created,
            Err(code) if !code.is_a_refusal() => {
                let text = format!("zookeeper's answer does not tell whether it made a node: {code:?}");
                return Err(Fail::Unknown(text));
            }
            Err(code) => {
                claim.seat(|seat: &mut Seat| seat.is_unsure = false);
                return match code {
                    Code::NO_NODE => no_parent(made, parents).map(|()| None),
                    // Without the node's name: it has the claim's id in it.
                    code => Err(code.fail(&place.lock)),
                };
            }
        };
        let name = made_at.rsplit('/').next().unwrap_or_default().to_owned();
        let node = place.owned(name, &stat)?;
        self.highest.fetch_max(node.czxid, Ordering::Relaxed);
        claim.seat(|seat: &mut Seat| {
            seat.node = Some(node.clone());
            seat.is_unsure = false;
        });
        let children = children.children().map_err(|code| code.fail(&place.lock))?;
        Ok(Some((node, names::line(&children))))
    }
}

/// Why there is no parent: nothing if it may be there the next time.
fn no_parent(made: &[Reply], parents: &[String]) -> Result<(), Fail> {
    for (reply, path) in made.iter().zip(parents) {
        match reply.done() {
            Ok(()) | Err(Code::NODE_EXISTS | Code::NO_NODE) => {}
            Err(code) => return Err(code.fail(path)),
        }
    }
    Ok(())
}

impl Place<'_> {
    /// A node that is ours for sure: on the session that our lease is.
    fn owned(&self, name: String, stat: &Stat) -> Result<Node, Fail> {
        if stat.owner == self.session.identity().0 {
            Ok(Node { name, czxid: stat.czxid })
        } else {
            Err(Fail::NoLease)
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.lock)
    }

    /// Looks for the node that may have been made when the reply was lost, and the line with it.
    async fn recover(&self) -> Result<Option<(Node, Vec<Contender>)>, Fail> {
        let line = names::line(&proven_children(&self.session, &self.lock).await?);
        let stem = stem(self.claim.id());
        let mut found = None;
        for name in line.iter().map(|contender| &contender.name).filter(|name| name.starts_with(&stem)) {
            let exists = Request::Exists { path: self.path(name), watch: false };
            let stat = match one(self.session.send(&[exists]).await?)?.stat() {
                Ok(stat) => stat,
                Err(Code::NO_NODE) => continue,
                Err(code) => return Err(code.fail(&self.lock)),
            };
            let node = self.owned(name.clone(), &stat)?;
            if found.is_none() {
                found = Some(node);
            } else {
                // A copy of the request, which none of ours is. It must not stand behind its original.
                remove(&self.session, &self.lock, &[node.name]).await?;
            }
        }
        self.claim.seat(|seat: &mut Seat| {
            seat.node = found.clone();
            seat.is_unsure = false;
        });
        Ok(found.map(|node| (node, line)))
    }

    /// Asks again for a claim that has its node: is it still there, and whose turn is it?
    async fn confirm(&self, node: Node, ahead: Option<Ahead>) -> Result<Entered, Fail> {
        let own = Request::Exists { path: self.path(&node.name), watch: false };
        // With nobody before the one before us, its end is all that we wait for; and as long as it is watched, nothing that
        // stands before it matters. So the line, which may be long, need not be read.
        let known = ahead.filter(|ahead| {
            ahead.is_holder || self.routes.tells(&self.path(&ahead.name), self.claim, What::Ahead)
        });
        let other = match &known {
            Some(ahead) => Request::Exists { path: self.path(&ahead.name), watch: false },
            None => Request::GetChildren { path: self.lock.clone() },
        };
        let replies = self.session.send(&[own, other]).await?;
        let [own, other] = replies.as_slice() else {
            return Err(Fail::Internal("zookeeper answered too few requests".into()));
        };
        match own.stat() {
            Ok(stat) if self.owned(node.name.clone(), &stat)?.czxid == node.czxid => {}
            Ok(_) | Err(Code::NO_NODE) => return Ok(Entered::Gone),
            Err(code) => return Err(code.fail(&self.lock)),
        }
        match known {
            None => {
                let children = other.children().map_err(|code| code.fail(&self.lock))?;
                self.judge(node, names::line(&children)).await
            }
            Some(ahead) => match other.stat() {
                Err(Code::NO_NODE) if ahead.is_holder => granted(&node),
                Err(Code::NO_NODE) => {
                    // It went without having been the holder: who is before us now?
                    self.routes.remove(&self.path(&ahead.name), self.claim);
                    Ok(Entered::Queued { recheck: AT_ONCE, holder: None })
                }
                Ok(_) => self.watch(node, ahead, None).await,
                Err(code) => Err(code.fail(&self.lock)),
            },
        }
    }

    /// Says what a place in this line means.
    async fn judge(&self, node: Node, line: Vec<Contender>) -> Result<Entered, Fail> {
        let Some(at) = line.iter().position(|contender| contender.name == node.name) else {
            return Ok(Entered::Gone);
        };
        let Some(before) = at.checked_sub(1) else { return granted(&node) };
        if self.intent == Intent::Try {
            // Somebody was quicker.
            remove(&self.session, &self.lock, std::slice::from_ref(&node.name)).await?;
            self.claim.seat(|seat: &mut Seat| *seat = Seat::default());
            return Ok(Entered::Busy { retry: RECHECK, holder: self.look_at(&line[0].name).await? });
        }
        let ahead = Ahead { name: line[before].name.clone(), is_holder: before == 0 };
        self.watch(node, ahead, Some(line[0].name.clone())).await
    }

    /// Waits for the one before us to go, and for ourselves.
    async fn watch(&self, node: Node, ahead: Ahead, first: Option<String>) -> Result<Entered, Fail> {
        let (own_path, ahead_path) = (self.path(&node.name), self.path(&ahead.name));
        if self.routes.tells(&ahead_path, self.claim, What::Ahead)
            && self.routes.tells(&own_path, self.claim, What::Own)
        {
            return Ok(Entered::Queued { recheck: RECHECK, holder: None });
        }
        // Before the request: what is told may be here before the reply is looked at.
        self.routes.add(&ahead_path, self.claim, What::Ahead);
        self.routes.add(&own_path, self.claim, What::Own);
        let is_first_look = self.claim.seat(|seat: &mut Seat| seat.ahead.replace(ahead.clone()).is_none());
        // Reading leaves no watch on a node that is not there; asking whether it exists would.
        let mut requests = vec![
            Request::GetData { path: ahead_path.clone(), watch: true },
            Request::GetData { path: own_path.clone(), watch: true },
        ];
        // For whoever asks who holds the lock: once.
        let holder = first.filter(|first| is_first_look && *first != ahead.name);
        requests.extend(holder.map(|name| Request::GetData { path: self.path(&name), watch: false }));
        let sent = self.session.send(&requests).await;
        let replies = match sent {
            Ok(replies) => replies,
            Err(fail) => {
                // Whatever was armed is gone with the connection, or was never there.
                self.routes.remove(&ahead_path, self.claim);
                return Err(fail);
            }
        };
        if replies[1].data().is_err() {
            self.routes.remove(&own_path, self.claim);
            return match replies[1].done() {
                Err(Code::NO_NODE) => Ok(Entered::Gone),
                Err(code) => Err(code.fail(&self.lock)),
                Ok(()) => Err(Code::MARSHALLING.fail(&self.lock)),
            };
        }
        if let Err(code) = replies[0].data() {
            return match code {
                Code::NO_NODE => {
                    // For its owner, too: nobody else would tell it, since nothing is watched there.
                    self.routes.changed(&ahead_path, true);
                    Ok(Entered::Queued { recheck: AT_ONCE, holder: None })
                }
                code => {
                    self.routes.remove(&ahead_path, self.claim);
                    Err(code.fail(&self.lock))
                }
            };
        }
        let shown = replies.get(2).or_else(|| replies.first().filter(|_| ahead.is_holder));
        let holder = shown.and_then(|reply| holder_of(reply).ok());
        Ok(Entered::Queued { recheck: RECHECK, holder })
    }

    async fn look_at(&self, name: &str) -> Result<Option<Holder>, Fail> {
        let read = Request::GetData { path: self.path(name), watch: false };
        let reply = one(self.session.send(&[read]).await?)?;
        Ok(holder_of(&reply).ok())
    }
}

fn granted(node: &Node) -> Result<Entered, Fail> {
    let token = u64::try_from(node.czxid).ok().and_then(Token::new);
    let text = || format!("zookeeper made a node in no change of its: czxid={}", node.czxid);
    token.map(|token| Entered::Granted { token }).ok_or_else(|| Fail::Internal(text()))
}

/// Who stands in line with this node.
pub(super) fn holder_of(reply: &Reply) -> Result<Holder, Code> {
    let (data, stat) = reply.data()?;
    Ok(Holder {
        token: u64::try_from(stat.czxid).ok().and_then(Token::new),
        owner: serde_json::from_slice::<Owner>(&data).ok(),
        expires_in: None,
    })
}

/// As [`children`], after a quorum has answered: a leader that was deposed and does not know it answers a `sync` too.
pub(super) async fn proven_children(session: &Session, lock: &str) -> Result<Vec<String>, Fail> {
    let check = Request::Check { path: lock.to_owned(), version: ANY_VERSION };
    // Refused or not, it was agreed on.
    below(session, lock, Request::Multi(vec![check])).await
}

/// The names of those below a lock's node, as they are at the leader; none if there is no such node.
pub(super) async fn children(session: &Session, lock: &str) -> Result<Vec<String>, Fail> {
    below(session, lock, Request::Sync { path: lock.to_owned() }).await
}

async fn below(session: &Session, lock: &str, first: Request) -> Result<Vec<String>, Fail> {
    let replies = session.send(&[first, Request::GetChildren { path: lock.to_owned() }]).await?;
    match replies.last().map(Reply::children) {
        Some(Ok(children)) => Ok(children),
        Some(Err(Code::NO_NODE)) => Ok(Vec::new()),
        Some(Err(code)) => Err(code.fail(lock)),
        None => Err(Fail::Internal("zookeeper answered nothing".into())),
    }
}
