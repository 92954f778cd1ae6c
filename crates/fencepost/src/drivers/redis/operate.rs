//! What operators ask.

use std::{any::Any, collections::BTreeSet, sync::Arc};

use tokio::sync::Notify;

use super::{
    Redis,
    keys::{self, Keys},
    record::{Held, owner_of},
    scripts::{FORCE, LOOK},
    unexpected,
};
use crate::{
    driver::{Fail, ForcedOut, Operator, Status},
    host::Fut,
    name::LockName,
    redis::{Command, Reply, one},
};

/// How many keys one step of a scan looks at.
const STEP: &str = "1000";

impl Redis {
    async fn look(&self, lock: &LockName) -> Result<Status, Fail> {
        let keys = Keys::new(&self.prefix, lock)?;
        let reply = LOOK.run(&*self.transport, LOOK.command(&keys.seen(), &["look"])).await?;
        status(lock, &reply)
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Status>, Fail> {
        let mut names = BTreeSet::new();
        for pattern in keys::patterns(&self.prefix, prefix) {
            for key in self.scan(&pattern).await? {
                let name = keys::name(&self.prefix, &key);
                names.extend(name.filter(|name| name.as_str().starts_with(prefix)));
            }
        }
        let looks = names.into_iter().filter_map(|name| {
            let keys = Keys::new(&self.prefix, &name).ok()?;
            Some((name, LOOK.command(&keys.seen(), &["look"])))
        });
        let (names, looks): (Vec<LockName>, Vec<Command>) = looks.unzip();
        let mut found = Vec::new();
        for (name, reply) in names.iter().zip(LOOK.run_all(&*self.transport, looks, None).await?) {
            // A key of another kind is no lock.
            if let Ok(status) = reply.ok().and_then(|reply| status(name, &reply)) {
                let is_ours = status.holder.as_ref().is_some_and(|holder| holder.token.is_some());
                if is_ours
                    || !status.waiters.is_empty()
                    || (status.holder.is_some() && !self.prefix.is_empty())
                {
                    found.push(status);
                }
            }
        }
        Ok(found)
    }

    async fn scan(&self, pattern: &str) -> Result<Vec<String>, Fail> {
        let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
        loop {
            let scan = Command::new("SCAN").arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP);
            let reply = one(self.transport.send(vec![scan]).await?)?.ok()?;
            let [next, found] = reply.list() else { return Err(unexpected(&reply)) };
            keys.extend(found.list().iter().filter_map(|key| key.text().map(str::to_owned)));
            cursor = next.text().ok_or_else(|| unexpected(&reply))?.to_owned();
            if cursor == "0" {
                return Ok(keys);
            }
        }
    }

    async fn force(&self, lock: &LockName) -> Result<ForcedOut, Fail> {
        let keys = Keys::new(&self.prefix, lock)?;
        let command = FORCE.command(&keys.common(), &["force"]);
        let reply = FORCE.run(&*self.transport, command).await?;
        let [held, left, token, more] = reply.list() else { return Err(unexpected(&reply)) };
        self.wake_on(&keys, more);
        let token = token.text().and_then(|text| text.parse().ok()).ok_or_else(|| unexpected(&reply))?;
        Ok(ForcedOut { holder: Held::read(held, left).map(|held| held.holder), token })
    }
}

fn status(lock: &LockName, reply: &Reply) -> Result<Status, Fail> {
    let [held, left, waiters] = reply.list() else { return Err(unexpected(reply)) };
    Ok(Status {
        lock: lock.clone(),
        holder: Held::read(held, left).map(|held| held.holder),
        waiters: waiters.list().iter().map(|record| owner_of(record.text()?)).collect(),
    })
}

impl Operator for Redis {
    fn inspect<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<Status, Fail>> {
        Box::pin(self.look(lock))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Fut<'a, Result<Vec<Status>, Fail>> {
        Box::pin(self.find(prefix))
    }

    fn force_unlock<'a>(&'a self, lock: &'a LockName) -> Fut<'a, Result<ForcedOut, Fail>> {
        Box::pin(self.force(lock))
    }

    /// Tracking every lock that somebody looks at would fill the server's table; the engine asks now and then.
    fn observe(&self, _lock: &LockName, _hint: Arc<Notify>) -> Option<Box<dyn Any + Send>> {
        None
    }
}
