//! From the ids in pushes to the claims, leases and observers that they are for.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use fencepost::{
    LockName,
    driver::{Claim, Lease},
};
use tokio::sync::Notify;

use super::{link::OnPush, wire::Push};

/// To whom pushes go.
#[derive(Default)]
pub(super) struct Routes {
    claims: Mutex<HashMap<String, Weak<Claim>>>,
    leases: Mutex<HashMap<String, Weak<Lease>>>,
    observers: Mutex<Vec<(String, Weak<Notify>)>>,
}

/// In a claim's or a lease's seat: takes it off the routes when it dies.
#[derive(Default)]
struct Seat(Option<Box<dyn Any + Send>>);

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Routes {
    pub(super) fn add_claim(self: &Arc<Self>, claim: &Arc<Claim>) {
        let (routes, id) = (self.clone(), claim.id().to_hex());
        claim.seat(|seat: &mut Seat| {
            if seat.0.is_none() {
                lock(&routes.claims).insert(id.clone(), Arc::downgrade(claim));
                seat.0 = Some(Box::new(OnDrop(move || drop(lock(&routes.claims).remove(&id)))));
            }
        });
    }

    pub(super) fn add_lease(self: &Arc<Self>, lease: &Arc<Lease>) {
        let (routes, id) = (self.clone(), lease.id().to_hex());
        lock(&routes.leases).insert(id.clone(), Arc::downgrade(lease));
        lease.seat(|seat: &mut Seat| {
            seat.0 = Some(Box::new(OnDrop(move || drop(lock(&routes.leases).remove(&id)))));
        });
    }

    pub(super) fn add_observer(&self, name: &LockName, hint: &Arc<Notify>) {
        lock(&self.observers).push((name.as_str().to_owned(), Arc::downgrade(hint)));
    }

    fn claim(&self, id: &str) -> Option<Arc<Claim>> {
        lock(&self.claims).get(id)?.upgrade()
    }
}

/// What the link does with pushes.
pub(super) fn on_push(routes: Arc<Routes>) -> OnPush {
    Arc::new(move |push| match push {
        Some(Push::Poke(id)) => {
            if let Some(claim) = routes.claim(&id) {
                claim.poke();
            }
        }
        Some(Push::Gone(id)) => {
            if let Some(claim) = routes.claim(&id) {
                claim.gone();
            }
        }
        Some(Push::Ended(id)) => {
            let lease = lock(&routes.leases).get(&id).and_then(Weak::upgrade);
            if let Some(lease) = lease {
                lease.dead();
            }
        }
        Some(Push::Changed(changed)) => {
            lock(&routes.observers).retain(|(lock, hint)| {
                let hint = hint.upgrade();
                if let Some(hint) = hint.as_ref().filter(|_| *lock == changed) {
                    hint.notify_one();
                }
                hint.is_some()
            });
        }
        // Pushes may have been missed: waiters look for their turn, holders verify.
        None => {
            let claims: Vec<_> = lock(&routes.claims).values().filter_map(Weak::upgrade).collect();
            for claim in claims {
                claim.poke();
            }
        }
    })
}
