//! A player over `rslock`.

use std::{process::ExitCode, time::Duration};

use fencepost::{SystemHost, driver::Host};
use fencepost_lab::{
    clock::{now_ns, sleep_until},
    history::Outcome,
};
use rslock::{Lock, LockManager};

use super::{
    diary::Diary,
    players::{Client, Task},
};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn play(task: &Task) -> ExitCode {
    let mut diary = Diary::new(task, Client::Rslock.name());
    let mut manager = LockManager::new(vec![task.url.as_str()]);
    // One attempt a call, so that the moment before each is known.
    manager.set_retry(1, Duration::from_millis(1));
    loop {
        diary.asks();
        let (lock, deadline) = take(&manager, task).await;
        diary.granted(deadline, None);
        match task.hold_ms {
            Some(hold) => rest(hold).await,
            None => diary.update(deadline),
        }
        diary.releases();
        let held = manager.query_redis_for_key_value(task.key.as_bytes()).await.expect("the server");
        let was_ours = held.is_some_and(|value| value == lock.val);
        manager.unlock(&lock).await;
        // It does not say whether it has removed the lock. A look before the removal is no proof that it did.
        diary.released(if was_ours { Outcome::Unknown } else { Outcome::Lost });
        if task.hold_ms.is_some() {
            return ExitCode::SUCCESS;
        }
        rest(SystemHost.random() % 20).await;
    }
}

/// The lock, and the moment until which it is valid by the formula of its makers.
async fn take(manager: &LockManager, task: &Task) -> (Lock, u64) {
    let ttl = Duration::from_millis(task.ttl_ms);
    let validity = ttl - ttl / 100 - Duration::from_millis(2);
    loop {
        let asked = now_ns();
        if let Ok(lock) = manager.lock(task.key.as_bytes(), ttl).await {
            return (lock, asked + validity.as_nanos() as u64);
        }
        rest(10 + SystemHost.random() % 20).await;
    }
}

async fn rest(ms: u64) {
    sleep_until(now_ns() + ms * 1_000_000).await;
}
