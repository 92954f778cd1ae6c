//! One holder at a time, and nothing left of those who went.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    harness::Verb,
    stage::{Stage, Verdict, beside, drop_after, ensure, pause, refused},
};
use crate::{error::ErrorKind, token::Token};

/// Of many that want a lock at once, from several connections, one at a time gets it, each with a larger token.
pub(super) async fn there_is_at_most_one_holder(stage: &Stage<'_>) -> Verdict {
    #[derive(Default)]
    struct Room {
        inside: Option<Token>,
        log: Vec<Token>,
    }
    let room = Arc::new(Mutex::new(Room::default()));
    let mut workers = Vec::new();
    for _ in 0..4 {
        let (locker, room) = (stage.rival().await?, room.clone());
        let lock = stage.lock(&locker).ttl(stage.ttl * 4).wait(stage.ttl * 20);
        workers.push(beside(async move {
            for _ in 0..5 {
                let guard = lock.acquire().await?;
                {
                    let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
                    let token = guard.token();
                    ensure(room.inside.is_none(), format!("{token} got in beside {:?}", room.inside))?;
                    ensure(room.log.last().is_none_or(|last| *last < token), "a later token is lower")?;
                    room.inside = Some(token);
                    room.log.push(token);
                }
                pause(Duration::from_millis(5)).await;
                room.lock().unwrap_or_else(PoisonError::into_inner).inside = None;
                guard.release().await?;
            }
            Verdict::Ok(())
        }));
    }
    for worker in workers {
        worker.done().await??;
    }
    let rounds = room.lock().unwrap_or_else(PoisonError::into_inner).log.len();
    ensure(rounds == 20, format!("of 20 rounds, {rounds} were run"))
}

/// A lock is not re-entrant: the same name, twice in one process and from one locker, excludes itself.
pub(super) async fn the_same_name_twice_in_one_process_excludes_itself(stage: &Stage<'_>) -> Verdict {
    let locker = stage.rival().await?;
    let guard = stage.lock(&locker).acquire().await?;
    let error = refused(stage.lock(&locker).try_acquire().await, "a second acquire of a held lock")?;
    ensure(error.kind() == ErrorKind::Timeout, format!("not a timeout: {error:?}"))?;
    stage.is_held_by(&guard, &locker).await?;
    guard.release().await?;
    stage.lock(&locker).try_acquire().await?.release().await?;
    Ok(())
}

/// Two locks of one locker are independent: releasing one leaves the other held.
pub(super) async fn two_names_are_two_locks(stage: &Stage<'_>) -> Verdict {
    let locker = stage.rival().await?;
    let one = stage.lock(&locker).acquire().await?;
    let other = stage.other(&locker, "-b").try_acquire().await?;
    other.release().await?;
    stage.is_held_by(&one, &locker).await?;
    stage.other(&locker, "-b").try_acquire().await?.release().await?;
    one.release().await?;
    Ok(())
}

/// A try that found the lock held leaves no place in line: its release makes the lock free at once.
pub(super) async fn a_try_leaves_nothing_behind(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.rival().await?, stage.subject().await?);
    let guard = stage.lock(&holder).acquire().await?;
    for _ in 0..3 {
        // Where it can be held back, the engine's own removal must not be what cleans up.
        let _ = stage.harness.hold_back(Verb::Leave, stage.ttl * 2);
        refused(stage.lock(&other).try_acquire().await, "a try of a held lock")?;
    }
    let waiters = stage.inspect(&holder).await?.waiters.len();
    ensure(waiters == 0, format!("{waiters} wait after tries only"))?;
    guard.release().await?;
    let left = stage.inspect(&holder).await?;
    ensure(left.holder.is_none() && left.waiters.is_empty(), format!("left behind: {left:?}"))
}

/// The error of a try says who holds the lock.
pub(super) async fn a_try_tells_the_holder(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.rival().await?, stage.subject().await?);
    let guard = stage.lock(&holder).label("nightly report").acquire().await?;
    let error = refused(stage.lock(&other).try_acquire().await, "a try of a held lock")?;
    ensure(error.kind() == ErrorKind::Timeout, format!("not a timeout: {error:?}"))?;
    let owner = error.holder().and_then(|holder| holder.owner.as_ref());
    let label = owner.and_then(|owner| owner.label.as_deref());
    ensure(label == Some("nightly report"), format!("the holder is told as {owner:?}"))?;
    ensure(error.to_string().contains("nightly report"), format!("the text does not tell: {error}"))?;
    guard.release().await?;
    Ok(())
}

/// A guard that is dropped gives the lock back, long before its lease would end.
pub(super) async fn a_dropped_guard_frees_the_lock(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.long(&holder).acquire().await?;
    drop(guard);
    stage.lock(&other).wait(stage.within(2)).acquire().await?.release().await?;
    Ok(())
}

/// A release that is dropped half way is carried out all the same.
pub(super) async fn a_dropped_release_goes_on(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.long(&holder).acquire().await?;
    drop_after(Duration::ZERO, guard.release()).await;
    stage.lock(&other).wait(stage.within(2)).acquire().await?.release().await?;
    Ok(())
}
