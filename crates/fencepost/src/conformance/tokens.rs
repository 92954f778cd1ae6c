//! Tokens rise, within one lineage.

use super::stage::{Stage, Verdict, ensure, holds_for, pause};
use crate::{
    error::ErrorKind,
    guard::Guard,
    token::{Lineage, Token},
};

fn rises(before: Token, after: Token) -> Verdict {
    ensure(before < after, format!("token={after} follows token={before}"))
}

/// Every later holder has a larger token, whichever connection it came by.
pub(super) async fn tokens_rise_over_releases(stage: &Stage<'_>) -> Verdict {
    let mut last: Option<Token> = None;
    for round in 0..6 {
        let locker = if round % 2 == 0 { stage.rival().await? } else { stage.subject().await? };
        let guard = stage.lock(&locker).acquire().await?;
        if let Some(last) = last {
            rises(last, guard.token())?;
        }
        last = Some(guard.token());
        guard.release().await?;
    }
    Ok(())
}

/// The one who gets the lock after its holder was killed has a larger token.
pub(super) async fn tokens_rise_over_a_crash(stage: &Stage<'_>) -> Verdict {
    let next = stage.rival().await?;
    let mut process = stage.harness.hold_elsewhere(&stage.name, stage.ttl)?;
    let before = process.held().await;
    process.kill();
    let guard = stage.lock(&next).acquire().await?;
    rises(before, guard.token())?;
    guard.release().await?;
    Ok(())
}

/// A backend that is restarted goes on with its tokens, and gives nobody a lock that another still holds.
pub(super) async fn tokens_rise_over_a_restart(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.subject().await?, stage.rival().await?);
    let first = stage.long(&holder).acquire().await?;
    let before = first.token();
    first.release().await?;
    stage.harness.restart()?;
    let second = stage.long(&holder).acquire().await?;
    rises(before, second.token())?;
    let before = second.token();
    stage.harness.restart()?;
    let stolen = stage.lock(&other).try_acquire().await;
    ensure(stolen.is_err() || !second.is_held(), "the restart gave a held lock to another")?;
    drop(stolen);
    // Whether the lock outlived the restart is the backend's to say; that the token rises is not.
    let _ = second.release().await;
    let third = stage.lock(&other).acquire().await?;
    rises(before, third.token())?;
    third.release().await?;
    Ok(())
}

/// A backend that has lost everything shows it: holders are told, and new lockers see another lineage or larger tokens.
pub(super) async fn a_wipe_starts_another_lineage(stage: &Stage<'_>) -> Verdict {
    let before = stage.subject().await?;
    let guard = stage.lock(&before).acquire().await?;
    let old = stamp(&guard);
    stage.harness.wipe()?;
    guard.lost().await;
    let after = stage.rival().await?;
    let fresh = stage.lock(&after).acquire().await?;
    compares(&old, &stamp(&fresh))?;
    fresh.release().await?;
    // The old locker cannot know the new lineage: it may refuse to go on, but not go on with lower tokens.
    if let Ok(later) = stage.lock(&before).patience(stage.ttl).acquire().await {
        compares(&old, &stamp(&later))?;
    }
    Ok(())
}

fn stamp(guard: &Guard) -> (Lineage, Token) {
    (guard.lineage().clone(), guard.token())
}

fn compares(old: &(Lineage, Token), new: &(Lineage, Token)) -> Verdict {
    ensure(old.0 != new.0 || old.1 < new.1, format!("{new:?} follows {old:?} in the same lineage"))
}

/// A token never changes while the lock is held.
pub(super) async fn a_token_is_stable_under_renewal(stage: &Stage<'_>) -> Verdict {
    let (holder, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.lock(&holder).acquire().await?;
    let token = guard.token();
    for _ in 0..6 {
        holds_for(&guard, stage.ttl / 2).await?;
        ensure(guard.token() == token, "the guard's token changed")?;
        stage.is_held_by(&guard, &other).await?;
    }
    guard.release().await?;
    Ok(())
}

/// A token exceeds the floor that the caller names, or the grant is refused and given back.
pub(super) async fn a_floor_is_exceeded_or_refused(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    let guard = stage.lock(&locker).acquire().await?;
    let floor = Token::new(guard.token().get() + 1000).expect("it is above another token");
    guard.release().await?;
    match stage.lock(&locker).floor(floor).acquire().await {
        Ok(guard) => {
            rises(floor, guard.token())?;
            guard.release().await?;
            let next = stage.lock(&locker).acquire().await?;
            rises(floor, next.token())?;
            next.release().await?;
        }
        Err(error) => {
            let why = format!("refused with {error:?}");
            ensure(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unsupported), why)?;
        }
    }
    pause(stage.ttl / 10).await;
    stage.free_within(stage.within(1), &locker).await
}
