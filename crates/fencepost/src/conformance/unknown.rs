//! Replies that are lost, requests that come late or twice: a third answer, never folded into yes or no.

use std::time::Duration;

use super::{
    harness::Verb,
    stage::{Stage, Verdict, acquiring, drop_after, ensure, holds_for, now, pause, refused},
};
use crate::error::ErrorKind;

/// An enter whose reply was lost is asked again, and is one grant, not two: one release frees the lock.
pub(super) async fn a_lost_reply_to_enter_grants_once(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    stage.harness.lose_reply(Verb::Enter)?;
    let guard = stage.lock(&locker).acquire().await?;
    holds_for(&guard, stage.ttl).await?;
    stage.is_held_by(&guard, &other).await?;
    let waiters = stage.inspect(&other).await?.waiters;
    ensure(waiters.is_empty(), format!("the repeated enter stands in line behind itself: {waiters:?}"))?;
    guard.release().await?;
    stage.free_within(stage.within(0), &other).await?;
    stage.stays_free(stage.ttl, &other).await
}

/// An enter into a line whose reply was lost takes one place, not two.
pub(super) async fn a_lost_reply_to_enter_while_held_stands_in_line_once(stage: &Stage<'_>) -> Verdict {
    let (holder, locker) = (stage.rival().await?, stage.subject().await?);
    let guard = stage.long(&holder).acquire().await?;
    stage.harness.lose_reply(Verb::Enter)?;
    let waiter = acquiring(stage.lock(&locker));
    stage.until_waiting(&holder, 1).await?;
    let end = now() + stage.ttl;
    while now() < end {
        let waiters = stage.inspect(&holder).await?.waiters.len();
        ensure(waiters <= 1, format!("one waiter takes {waiters} places"))?;
        pause(Duration::from_millis(10)).await;
    }
    guard.release().await?;
    let (guard, _) = waiter.done().await??;
    stage.is_held_by(&guard, &holder).await?;
    guard.release().await?;
    stage.free_within(stage.within(0), &holder).await
}

/// An enter that is carried out twice is one grant.
pub(super) async fn a_repeated_enter_grants_once(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    stage.harness.repeat(Verb::Enter, Duration::from_millis(50))?;
    let guard = stage.lock(&locker).acquire().await?;
    let token = guard.token();
    pause(Duration::from_millis(300)).await;
    stage.is_held_by(&guard, &other).await?;
    ensure(guard.token() == token, "the copy changed the token")?;
    let waiters = stage.inspect(&other).await?.waiters;
    ensure(waiters.is_empty(), format!("the copy stands in line: {waiters:?}"))?;
    guard.release().await?;
    stage.free_within(stage.within(0), &other).await?;
    stage.stays_free(stage.ttl / 2, &other).await
}

/// An enter that arrives after its claim was withdrawn grants nobody: there is no ghost that holds the lock for a term.
pub(super) async fn a_late_enter_grants_nobody(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    stage.harness.hold_back(Verb::Enter, stage.ttl)?;
    drop_after(stage.ttl / 10, stage.lock(&locker).acquire()).await;
    stage.stays_free(stage.ttl * 5 / 2, &other).await
}

/// A release whose reply was lost is not told as a loss, and frees the lock.
pub(super) async fn a_lost_reply_to_release_is_no_loss(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.lock(&locker).acquire().await?;
    stage.harness.lose_reply(Verb::Leave)?;
    if let Err(error) = guard.release().await {
        ensure(error.kind() == ErrorKind::Unknown, format!("told as {error:?}"))?;
    }
    stage.free_within(stage.within(1), &other).await?;
    stage.lock(&locker).try_acquire().await?.release().await?;
    Ok(())
}

/// A release that is carried out once more, when somebody else holds the lock, leaves theirs alone.
pub(super) async fn a_late_release_leaves_the_next_holder_alone(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.lock(&locker).acquire().await?;
    stage.harness.repeat(Verb::Leave, stage.ttl / 2)?;
    guard.release().await?;
    let next = stage.lock(&other).acquire().await?;
    holds_for(&next, stage.ttl).await?;
    stage.is_held_by(&next, &other).await?;
    next.release().await?;
    Ok(())
}

/// A release while the backend cannot be reached is made good when it can, however long the lock was held before:
/// later acquires do not queue behind a claim that nobody remembers and that other locks keep alive.
pub(super) async fn a_release_during_a_cut_is_made_good(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.lock(&locker).acquire().await?;
    let kept = stage.other(&locker, "-kept").acquire().await?;
    holds_for(&guard, stage.ttl * 3 / 2).await?;
    stage.harness.cut()?;
    let error = refused(guard.release().await, "a release without a connection")?;
    ensure(error.kind() == ErrorKind::Unknown, format!("told as {error:?}"))?;
    stage.harness.heal()?;
    stage.free_within(stage.within(1), &other).await?;
    holds_for(&kept, stage.ttl).await?;
    stage.lock(&locker).acquire().await?.release().await?;
    Ok(())
}

/// A lock that was got although a reply was lost, and was taken away since, is not released as if nothing had happened.
pub(super) async fn a_loss_after_an_unknown_enter_is_told(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    stage.harness.lose_reply(Verb::Enter)?;
    let guard = stage.lock(&locker).acquire().await?;
    stage.harness.delete_holder(&stage.name)?;
    let error = refused(guard.release().await, "the release of a lock that was taken away")?;
    ensure(error.kind() == ErrorKind::Lost, format!("told as {error:?}"))
}
