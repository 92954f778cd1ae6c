//! Standing in line: order, limits, and leaving it.

use std::time::Duration;

use super::harness::Verb;
use super::stage::{
    Stage, Stop, Verdict, acquiring, drop_when, ensure, holds_for, needs_expiry, now, pause, refused,
};
use crate::error::ErrorKind;

/// Those who wait get the lock in the order in which they came, where the backend promises an order.
pub(super) async fn those_who_wait_are_served_in_order(stage: &Stage<'_>) -> Verdict {
    let holder = stage.rival().await?;
    if !holder.about().fifo {
        return Err(Stop::NotApplicable("this backend promises no order".into()));
    }
    let first = stage.long(&holder).acquire().await?;
    let mut line = Vec::new();
    for place in 1..=3 {
        line.push(acquiring(stage.long(&stage.subject().await?)));
        stage.until_waiting(&holder, place).await?;
    }
    let mut last = first.token();
    first.release().await?;
    for waiter in line {
        let (guard, _) = waiter.done().await??;
        ensure(last < guard.token(), "a token does not rise along the line")?;
        last = guard.token();
        guard.release().await?;
    }
    Ok(())
}

/// A release wakes the next in line; it does not sleep until the lease would have ended.
pub(super) async fn a_release_wakes_the_next(stage: &Stage<'_>) -> Verdict {
    let (holder, next) = (stage.rival().await?, stage.subject().await?);
    let guard = stage.long(&holder).acquire().await?;
    let waiter = acquiring(stage.long(&next));
    stage.until_waiting(&holder, 1).await?;
    let released = now();
    guard.release().await?;
    let (guard, got) = waiter.done().await??;
    let took = got.since(released);
    ensure(took <= stage.within(1), format!("the next ran only {took:?} after the release"))?;
    guard.release().await?;
    Ok(())
}

/// A wait for a held lock ends at the caller's limit, leaves the line, and leaves the holder alone.
pub(super) async fn a_wait_ends_at_its_limit(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.rival().await?, stage.subject().await?);
    let guard = stage.long(&holder).acquire().await?;
    let (limit, start) = (Duration::from_millis(200), now());
    let error = refused(stage.long(&other).wait(limit).acquire().await, "an acquire of a held lock")?;
    let took = now().since(start);
    ensure(error.kind() == ErrorKind::Timeout, format!("not a timeout: {error:?}"))?;
    ensure(took >= limit && took <= limit + stage.within(0), format!("a wait of {limit:?} took {took:?}"))?;
    stage.until_waiting(&holder, 0).await?;
    ensure(now().since(start) < stage.ttl * 5, "the place in line outlived its wait")?;
    stage.is_held_by(&guard, &holder).await?;
    guard.release().await?;
    Ok(())
}

/// The caller's limit holds also while the backend does not answer, and nothing is left there when it goes on.
pub(super) async fn a_wait_ends_at_its_limit_while_the_backend_is_frozen(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    stage.harness.freeze()?;
    let (limit, start) = (Duration::from_millis(200), now());
    let error = refused(stage.lock(&locker).wait(limit).acquire().await, "an acquire from a frozen backend")?;
    let took = now().since(start);
    stage.harness.thaw()?;
    ensure(error.kind() == ErrorKind::Timeout, format!("not a timeout: {error:?}"))?;
    ensure(took >= limit && took <= limit + stage.within(0), format!("a wait of {limit:?} took {took:?}"))?;
    pause(stage.ttl / 10).await;
    stage.free_within(stage.within(1), &other).await
}

/// Without a limit, the caller's patience ends the wait for a backend that does not answer.
pub(super) async fn patience_ends_while_the_backend_is_frozen(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    stage.harness.freeze()?;
    let (patience, start) = (Duration::from_millis(100), now());
    let lock = locker.lock(&stage.name).ttl(stage.ttl).patience(patience);
    let error = refused(lock.acquire().await, "an acquire from a frozen backend")?;
    let took = now().since(start);
    stage.harness.thaw()?;
    let told = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown);
    ensure(told, format!("told as {error:?}"))?;
    ensure(took >= patience && took <= stage.within(2), format!("patience of {patience:?} took {took:?}"))?;
    pause(stage.ttl / 10).await;
    stage.free_within(stage.within(1), &other).await
}

/// An acquire that is dropped while it stands in line leaves the line.
pub(super) async fn an_acquire_dropped_in_line_leaves_nothing(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.rival().await?, stage.subject().await?);
    let guard = stage.long(&holder).acquire().await?;
    drop_when(stage.until_waiting(&holder, 1), stage.long(&other).acquire()).await?;
    let dropped = now();
    stage.until_waiting(&holder, 0).await?;
    let took = now().since(dropped);
    ensure(took <= stage.within(1), format!("the place in line stayed for {took:?}"))?;
    guard.release().await?;
    stage.stays_free(stage.ttl / 2, &holder).await
}

/// An acquire that is dropped when it is granted already, and does not know it yet, gives the lock back and does not
/// go on renewing it.
pub(super) async fn an_acquire_dropped_with_its_reply_on_the_way_leaves_nothing(
    stage: &Stage<'_>,
) -> Verdict {
    let (other, locker) = (stage.rival().await?, stage.subject().await?);
    stage.harness.lose_reply(Verb::Enter)?;
    let granted = stage.until(&other, |status| status.holder.is_some());
    drop_when(granted, stage.lock(&locker).acquire()).await?;
    stage.free_within(stage.within(2), &other).await?;
    stage.stays_free(stage.ttl, &other).await
}

/// A waiter whose own lease or claim dies in line enters anew within the same wait, and what it gets is truly held.
pub(super) async fn a_waiter_that_was_dropped_from_the_line_enters_again(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.rival().await?, stage.subject().await?);
    let guard = stage.long(&holder).acquire().await?;
    let waiter = acquiring(stage.lock(&other));
    stage.until_waiting(&holder, 1).await?;
    stage.harness.expire_waiters(&stage.name)?;
    pause(stage.ttl / 10).await;
    stage.until_waiting(&holder, 1).await?;
    guard.release().await?;
    let (guard, _) = waiter.done().await??;
    stage.is_held_by(&guard, &holder).await?;
    holds_for(&guard, stage.ttl * 2).await?;
    stage.is_held_by(&guard, &holder).await?;
    guard.release().await?;
    Ok(())
}

/// A waiter whose lease ended while it was cut off, so that it could not be told, is not granted on it.
pub(super) async fn a_waiter_is_not_granted_on_a_lease_that_ended_unseen(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.rival().await?, stage.subject().await?);
    needs_expiry(&holder)?;
    let guard = stage.long(&holder).acquire().await?;
    let waiter = acquiring(stage.lock(&other));
    stage.until_waiting(&holder, 1).await?;
    stage.harness.cut()?;
    stage.harness.expire_waiters(&stage.name)?;
    guard.release().await?;
    stage.harness.heal()?;
    let (guard, _) = waiter.done().await??;
    holds_for(&guard, stage.ttl * 2).await?;
    stage.is_held_by(&guard, &holder).await?;
    guard.release().await?;
    Ok(())
}

/// A lock that was got after a wait longer than a term is renewed like any other.
pub(super) async fn a_lock_got_after_a_wait_is_renewed(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.rival().await?, stage.subject().await?);
    needs_expiry(&holder)?;
    let guard = stage.long(&holder).acquire().await?;
    refused(stage.lock(&other).try_acquire().await, "a try of a held lock")?;
    let waiter = acquiring(stage.lock(&other));
    pause(stage.ttl * 3 / 2).await;
    guard.release().await?;
    let (guard, _) = waiter.done().await??;
    holds_for(&guard, stage.ttl * 4).await?;
    stage.is_held_by(&guard, &holder).await?;
    guard.release().await?;
    Ok(())
}
