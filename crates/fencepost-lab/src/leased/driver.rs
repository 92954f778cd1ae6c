//! The driver: the contract's verbs as requests of this protocol, and pushes as pokes and facts.

use std::{any::Any, net::SocketAddr, sync::Arc, time::Duration};

use fencepost::{
    Error, ErrorKind, ForcedOut, Holder, LeaseKind, Level, Lineage, LockName, Owner, Status, Url,
    driver::{
        About, Claim, Driver, Entered, Fail, Fut, Host, Intent, Lease, Left, Operator, Proclaimed, Renewed,
        Report,
    },
};
use tokio::sync::Notify;

use super::{
    link::{Link, unexpected},
    routes::{Routes, on_push},
    wire::{Answer, Ask, Enter, Holding, Life, Line, Mark, Terms},
};

/// Connects to the server that `url` names: `lab://host:port?lease=claim|session[&path=subject]`.
///
/// # Errors
///
/// `Invalid` for an option that is not one of these, `Unavailable` if nobody answers there.
pub async fn connect(url: &str, host: Arc<dyn Host>) -> Result<Arc<dyn Driver>, Error> {
    let mut url: Url = url.parse()?;
    let invalid = |text: String| Error::new(ErrorKind::Invalid, text);
    let addr: SocketAddr = url
        .authority
        .parse()
        .map_err(|_| invalid("the url needs an address, such as lab://127.0.0.1:7000?lease=claim".into()))?;
    let terms = match url.take("lease").as_deref() {
        Some("claim") => Terms::Claim,
        Some("session") => Terms::Session,
        _ => return Err(invalid("the option lease is missing or unknown; write claim or session".into())),
    };
    let subject = match url.take("path").as_deref() {
        None => false,
        Some("subject") => true,
        Some(other) => return Err(invalid(format!("the option path={other:?} is unknown; write subject"))),
    };
    url.finish(&["lease", "path"])?;
    let routes = Arc::new(Routes::default());
    let link = Link::new(host.clone(), addr, subject, on_push(routes.clone()));
    let lineage = Lineage::new(link.lineage().await?);
    Ok(Arc::new(Lab { link: Arc::new(link), host, routes, about: about(addr, terms, lineage) }))
}

fn about(addr: SocketAddr, terms: Terms, lineage: Lineage) -> About {
    About {
        scheme: "lab",
        backend: format!("lab://{addr}"),
        lineage,
        lease: match terms {
            Terms::Claim => LeaseKind::PerClaim,
            Terms::Session => LeaseKind::Shared,
        },
        ttl: Duration::from_millis(50)..=Duration::from_secs(24 * 60 * 60),
        decides: "one test server",
        fifo: true,
        level: Some(Level::Tokens),
        caveat: "it is made for tests",
        leave_is_final: false,
        notice: None,
    }
}

struct Lab {
    link: Arc<Link>,
    host: Arc<dyn Host>,
    routes: Arc<Routes>,
    about: About,
}

fn mark(claim: &Claim) -> Mark {
    Mark { lock: claim.lock().as_str().to_owned(), claim: claim.id().to_hex() }
}

/// The lease's length; known, since claims are made on open leases only.
fn term(lease: &Lease) -> Duration {
    lease.term().unwrap_or(lease.ttl())
}

impl Lab {
    fn life(&self, lease: &Lease) -> Life {
        match self.about.lease {
            LeaseKind::Shared => Life::Session(lease.id().to_hex()),
            _ => Life::Own(term(lease)),
        }
    }

    async fn ask_to_enter(&self, claim: &Arc<Claim>, intent: Intent) -> Result<Entered, Fail> {
        self.routes.add_claim(claim);
        let enter = Enter {
            mark: mark(claim),
            life: self.life(claim.lease()),
            owner: claim.owner().clone(),
            floor: claim.floor(),
            wait: intent == Intent::Wait,
        };
        // A waiter's heartbeat: the server lets those fall that do not enter again within a lease.
        let pause = term(claim.lease()) / 3;
        match self.link.call(Ask::Enter(enter)).await? {
            Answer::Granted(token) => Ok(Entered::Granted { token }),
            Answer::Held(holding) => {
                let holder = holding.map(holder);
                Ok(match intent {
                    Intent::Wait => Entered::Queued { recheck: pause, holder },
                    Intent::Try => Entered::Busy { retry: pause, holder },
                })
            }
            Answer::Gone => Ok(Entered::Gone),
            Answer::NoLease => Err(Fail::NoLease),
            other => Err(unexpected(&other)),
        }
    }

    async fn renew_all(
        &self,
        lease: &Arc<Lease>,
        claims: &[Arc<Claim>],
        report: Report<'_>,
    ) -> Result<(), Fail> {
        // Waiters hang on a session too, and are not there as holders: nothing can be said of them.
        let held: Vec<usize> = (0..claims.len()).filter(|i| claims[*i].hold().deadline.is_some()).collect();
        let marks = held.iter().map(|i| mark(&claims[*i])).collect();
        match self.link.call(Ask::Renew { life: self.life(lease), claims: marks }).await? {
            Answer::Renewed(renewed) => {
                for (index, lives) in held.into_iter().zip(renewed) {
                    report(index, if lives { Renewed::Extended(term(lease)) } else { Renewed::Lost });
                }
                Ok(())
            }
            Answer::NoLease => Err(Fail::NoLease),
            other => Err(unexpected(&other)),
        }
    }

    async fn locks(&self, ask: Ask) -> Result<Vec<Status>, Fail> {
        match self.link.call(ask).await? {
            Answer::Locks(lines) => Ok(lines.into_iter().map(status).collect()),
            other => Err(unexpected(&other)),
        }
    }

    async fn do_it(&self, ask: Ask) -> Result<(), Fail> {
        match self.link.call(ask).await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a request whose answer says nothing, and whose loss costs only a later notice.
    fn tell(&self, ask: Ask) {
        let link = self.link.clone();
        self.host.spawn(Box::pin(async move {
            let _ = link.call(ask).await;
        }));
    }
}

fn holder(holding: Holding) -> Holder {
    let Holding { token, owner, expires_in } = holding;
    Holder { token: Some(token), owner: Some(owner), expires_in: Some(expires_in) }
}

fn status(line: Line) -> Status {
    Status {
        lock: line.lock.0,
        holder: line.holder.map(holder),
        waiters: line.waiters.into_iter().map(Some).collect(),
    }
}

impl Driver for Lab {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn open<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<Duration, Fail>> {
        Box::pin(async move {
            if self.about.lease == LeaseKind::Shared {
                self.routes.add_lease(lease);
                self.do_it(Ask::Open { session: lease.id().to_hex(), ttl: lease.ttl() }).await?;
            }
            Ok(lease.ttl())
        })
    }

    fn enter<'a>(&'a self, claim: &'a Arc<Claim>, intent: Intent) -> Fut<'a, Result<Entered, Fail>> {
        Box::pin(self.ask_to_enter(claim, intent))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Arc<Lease>,
        claims: &'a [Arc<Claim>],
        report: Report<'a>,
    ) -> Fut<'a, Result<(), Fail>> {
        Box::pin(self.renew_all(lease, claims, report))
    }

    fn attend(&self, claims: &[Arc<Claim>]) {
        self.tell(Ask::Attend { claims: claims.iter().map(|claim| mark(claim)).collect() });
    }

    fn proclaim<'a>(&'a self, claim: &'a Arc<Claim>, owner: &'a Owner) -> Fut<'a, Result<Proclaimed, Fail>> {
        Box::pin(async move {
            match self.link.call(Ask::Proclaim { mark: mark(claim), owner: owner.clone() }).await? {
                Answer::Proclaimed(true) => Ok(Proclaimed::Written),
                Answer::Proclaimed(false) => Ok(Proclaimed::Lost),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn leave<'a>(&'a self, claim: &'a Arc<Claim>) -> Fut<'a, Result<Left, Fail>> {
        Box::pin(async move {
            let ask = Ask::Leave { mark: mark(claim), tombstone: term(claim.lease()) };
            match self.link.call(ask).await? {
                Answer::Left(true) => Ok(Left::Removed),
                Answer::Left(false) => Ok(Left::WasGone),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn close<'a>(&'a self, lease: &'a Arc<Lease>) -> Fut<'a, Result<(), Fail>> {
        Box::pin(async move {
            match self.about.lease {
                LeaseKind::Shared => self.do_it(Ask::Close { session: lease.id().to_hex() }).await,
                _ => Ok(()),
            }
        })
    }
}

impl Operator for Lab {
    fn inspect<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<Status, Fail>> {
        Box::pin(async move {
            let found = self.locks(Ask::Inspect { lock: lock.as_str().to_owned() }).await?;
            found.into_iter().next().ok_or_else(|| Fail::Internal("the server told of no lock".into()))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Fut<'a, Result<Vec<Status>, Fail>> {
        Box::pin(self.locks(Ask::List { prefix: prefix.to_owned() }))
    }

    fn force_unlock<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<ForcedOut, Fail>> {
        Box::pin(async move {
            match self.link.call(Ask::ForceUnlock { lock: lock.as_str().to_owned() }).await? {
                Answer::ForcedOut { holder: out, token } => Ok(ForcedOut { holder: out.map(holder), token }),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn observe(&self, name: &LockName, hint: Arc<Notify>) -> Option<Box<dyn Any + Send>> {
        self.routes.add_observer(name, &hint);
        self.tell(Ask::Observe { lock: name.as_str().to_owned() });
        // The observer's own hint keeps the route: it goes at the first push after the observer.
        Some(Box::new(hint))
    }
}
