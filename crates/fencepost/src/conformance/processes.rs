//! Other processes: killed and paused holders and waiters.

use super::stage::{Stage, Stop, Verdict, acquiring, ensure, needs_expiry, now, pause};

/// The lock of a killed holder passes on when its lease ends, at the latest.
pub(super) async fn a_killed_holders_lock_passes_on(stage: &Stage<'_>) -> Verdict {
    let next = stage.rival().await?;
    let mut process = stage.harness.hold_elsewhere(&stage.name, stage.ttl)?;
    let before = process.held().await;
    let waiter = acquiring(stage.lock(&next));
    stage.until_waiting(&next, 1).await?;
    let killed = now();
    process.kill();
    let (guard, got) = waiter.done().await??;
    let took = got.since(killed);
    ensure(took <= stage.within(1), format!("the lock passed on only {took:?} later"))?;
    ensure(before < guard.token(), "the next holder's token is lower")?;
    guard.release().await?;
    Ok(())
}

/// A holder that was paused past its deadline finds out as soon as it goes on, and its deadline lay before the next
/// holder's grant.
pub(super) async fn a_paused_holder_finds_out_on_resume(stage: &Stage<'_>) -> Verdict {
    let next = stage.rival().await?;
    needs_expiry(&next)?;
    let mut process = stage.harness.hold_elsewhere(&stage.name, stage.ttl)?;
    let before = process.held().await;
    let waiter = acquiring(stage.lock(&next));
    stage.until_waiting(&next, 1).await?;
    process.pause();
    let (guard, got) = waiter.done().await??;
    ensure(before < guard.token(), "the next holder's token is lower")?;
    pause(stage.ttl / 4).await;
    let resumed = now();
    process.resume();
    let report = process.lost().await;
    let took = report.told.since(resumed);
    ensure(took <= stage.within(0), format!("the holder was told {took:?} after it went on"))?;
    let deadline = report.deadline.ok_or_else(|| Stop::Failed("a lease without a deadline".into()))?;
    ensure(deadline < got, format!("believed until {deadline:?}, and the next had it at {got:?}"))?;
    guard.release().await?;
    Ok(())
}

/// A waiter that was killed in line costs those behind it no more than its lease.
pub(super) async fn a_killed_waiter_blocks_nobody_for_long(stage: &Stage<'_>) -> Verdict {
    let (holder, last) = (stage.rival().await?, stage.subject().await?);
    let guard = stage.lock(&holder).acquire().await?;
    let mut process = stage.harness.hold_elsewhere(&stage.name, stage.ttl)?;
    stage.until_waiting(&holder, 1).await?;
    let waiter = acquiring(stage.lock(&last).label("last"));
    let is_last = |label: Option<&str>| label == Some("last");
    stage
        .until(&holder, |status| status.waiters.iter().flatten().any(|owner| is_last(owner.label.as_deref())))
        .await?;
    process.kill();
    let released = now();
    guard.release().await?;
    let (guard, got) = waiter.done().await??;
    let took = got.since(released);
    ensure(took <= stage.within(1), format!("the dead waiter cost {took:?}"))?;
    guard.release().await?;
    Ok(())
}
