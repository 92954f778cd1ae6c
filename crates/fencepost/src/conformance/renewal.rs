//! Holding on: a lock is kept for as long as its guard lives, and no longer.

use std::time::Duration;

use super::{
    harness::Verb,
    stage::{Stage, Verdict, ensure, holds_for, needs_expiry, now, pause, refused, told_loss},
};

/// A lock is held for as many terms as its guard lives, and nobody else gets it meanwhile.
pub(super) async fn renewal_keeps_a_lock_for_many_terms(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.lock(&locker).acquire().await?;
    for _ in 0..16 {
        holds_for(&guard, stage.ttl / 4).await?;
        refused(stage.lock(&other).try_acquire().await, "a try of a held lock")?;
    }
    guard.release().await?;
    Ok(())
}

/// A lock that is missing when it is to be renewed is lost; renewing does not create it.
pub(super) async fn renewal_never_creates_what_is_missing(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.lock(&locker).acquire().await?;
    stage.harness.delete_holder(&stage.name)?;
    stage.stays_free(stage.ttl * 3 / 2, &other).await?;
    ensure(!guard.is_held(), "a lock that was deleted a term ago is still believed")
}

/// A holder whose lock was deleted behind its back is told within a term.
pub(super) async fn a_lock_deleted_behind_its_back_is_told(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    let guard = stage.lock(&locker).acquire().await?;
    holds_for(&guard, stage.ttl).await?;
    let deleted = now();
    stage.harness.delete_holder(&stage.name)?;
    let told = told_loss(&guard).await;
    let took = told.since(deleted);
    ensure(took <= stage.within(1), format!("the holder was told {took:?} later"))?;
    ensure(!guard.is_held(), "the guard is lost and says that it is held")
}

/// A renewal that was carried out and whose reply was lost is repeated, and costs nobody the lock.
pub(super) async fn a_lost_reply_to_renewal_is_no_loss(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    needs_expiry(&locker)?;
    let guard = stage.lock(&locker).acquire().await?;
    stage.harness.lose_reply(Verb::Renew)?;
    holds_for(&guard, stage.ttl * 3).await?;
    stage.is_held_by(&guard, &other).await?;
    guard.release().await?;
    Ok(())
}

/// A lock that was released or dropped is not renewed, however close that came to a renewal.
pub(super) async fn a_released_lock_is_not_renewed(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    let kept = stage.other(&locker, "-kept").acquire().await?;
    for round in 0..8 {
        let guard = stage.lock(&locker).acquire().await?;
        // A different part of the third of a term after which a renewal comes.
        pause(stage.ttl / 24 * round).await;
        if round % 2 == 0 { guard.release().await? } else { drop(guard) }
    }
    stage.free_within(stage.within(1), &other).await?;
    stage.stays_free(stage.ttl * 3 / 2, &other).await?;
    holds_for(&kept, Duration::ZERO).await?;
    kept.release().await?;
    Ok(())
}

/// One lock that is lost says nothing about the others of its locker.
pub(super) async fn one_lost_lock_leaves_the_others_held(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    let lost = stage.lock(&locker).acquire().await?;
    let kept = stage.other(&locker, "-kept").acquire().await?;
    stage.harness.delete_holder(&stage.name)?;
    lost.lost().await;
    holds_for(&kept, stage.ttl * 2).await?;
    kept.release().await?;
    Ok(())
}
