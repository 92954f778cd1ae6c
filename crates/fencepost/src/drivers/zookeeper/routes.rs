//! Who is told when a watched node goes: one table for each session.
//!
//! A watch at the server is used up by what it tells, and a route with it. A connection that is made anew watches again
//! what stands here (`Session`), and so finds out what has gone meanwhile.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{claim::Claim, lease::Lease, zookeeper::User};

/// The routes of one session.
pub(super) struct Routes {
    lease: Weak<Lease>,
    table: Mutex<HashMap<String, Vec<Route>>>,
    /// Tells whose watch was used up by a change of the data, so that it is set again.
    again: Box<dyn Fn(String) + Send + Sync>,
}

struct Route {
    claim: Weak<Claim>,
    what: What,
}

/// What a watched node is to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Its own: without it the claim is nothing.
    Own,
    /// The one before it in line: without it the claim may be the holder.
    Ahead,
}

impl Routes {
    pub(super) fn new(lease: &Arc<Lease>, again: Box<dyn Fn(String) + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { lease: Arc::downgrade(lease), table: Mutex::default(), again })
    }

    /// Tells `claim` of this node, which has to be watched.
    pub(super) fn add(&self, path: &str, claim: &Arc<Claim>, what: What) {
        let mut table = self.table();
        let routes = table.entry(path.to_owned()).or_default();
        if !routes.iter().any(|route| route.is(claim, what)) {
            routes.push(Route { claim: Arc::downgrade(claim), what });
        }
    }

    /// Whether `claim` will be told of this node.
    pub(super) fn tells(&self, path: &str, claim: &Claim, what: What) -> bool {
        self.table().get(path).is_some_and(|routes| routes.iter().any(|route| route.is(claim, what)))
    }

    /// Tells `claim` of this node no more. The watch stays at the server until the node goes: to remove it would be a
    /// request.
    pub(super) fn remove(&self, path: &str, claim: &Claim) {
        let mut table = self.table();
        if let Some(routes) = table.get_mut(path) {
            routes
                .retain(|route| !std::ptr::eq(route.claim.as_ptr(), claim) && route.claim.strong_count() > 0);
            if routes.is_empty() {
                table.remove(path);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Vec<Route>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Route {
    fn is(&self, claim: &Claim, what: What) -> bool {
        std::ptr::eq(self.claim.as_ptr(), claim) && self.what == what
    }
}

impl User for Routes {
    fn changed(&self, path: &str, is_deleted: bool) {
        let routes = self.table().remove(path).unwrap_or_default();
        let mut kept = Vec::new();
        for route in routes {
            let Some(claim) = route.claim.upgrade() else { continue };
            match route.what {
                What::Own if is_deleted => claim.gone(),
                // Its owner has written it again: it is still there.
                What::Own => kept.push(route),
                // Also of another change: whoever asks sets its watch again.
                What::Ahead => claim.poke(),
            }
        }
        if !kept.is_empty() {
            self.table().entry(path.to_owned()).or_default().extend(kept);
            (self.again)(path.to_owned());
        }
    }

    fn watched(&self) -> Vec<String> {
        let mut table = self.table();
        table.retain(|_, routes| routes.iter().any(|route| route.claim.strong_count() > 0));
        table.keys().cloned().collect()
    }

    fn doubted(&self) {
        if let Some(lease) = self.lease.upgrade() {
            lease.doubt();
        }
    }

    fn expired(&self) {
        if let Some(lease) = self.lease.upgrade() {
            lease.dead();
        }
    }
}
