//! Loss: told in time, final, and never before its time.

use super::stage::{
    Stage, Stop, Verdict, acquiring, beside, ensure, holds_for, last_belief, needs_expiry, now, pause,
    refused, told_loss,
};
use crate::{
    claim::{Loss, State},
    error::ErrorKind,
    guard::Guard,
    host::Moment,
};

/// The guard's deadline, and that it was not believed at or after it.
fn deadline(guard: &Guard, believed: Option<Moment>) -> Result<Moment, Stop> {
    let deadline = guard.deadline().ok_or_else(|| Stop::Failed("a lease without a deadline".into()))?;
    let kept = believed.is_none_or(|believed| believed < deadline);
    ensure(kept, format!("held at {believed:?} although the deadline is {deadline:?}"))?;
    ensure(!guard.is_held(), "the guard is lost and says that it is held")?;
    Ok(deadline)
}

/// While the backend does not answer, a lock is first suspect; it is lost when its deadline comes, and is not believed
/// a moment longer.
pub(super) async fn a_frozen_backend_means_suspect_then_lost(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    needs_expiry(&locker)?;
    let guard = stage.lock(&locker).acquire().await?;
    let mut changes = guard.changes();
    let states = beside(async move {
        let mut states = vec![changes.hold().state];
        while !matches!(states.last(), Some(State::Lost(_))) {
            states.push(changes.changed().await.state);
        }
        states
    });
    stage.harness.freeze()?;
    let told = told_loss(&guard).await;
    stage.harness.thaw()?;
    let deadline = deadline(&guard, None)?;
    let late = told.since(deadline);
    ensure(late <= stage.within(0), format!("the loss was told {late:?} after the deadline"))?;
    let states = states.done().await?;
    ensure(states.contains(&State::Suspect), format!("never suspect: {states:?}"))?;
    let last = states.last();
    ensure(last == Some(&State::Lost(Loss::Deadline)), format!("ended as {last:?}"))
}

/// A renewal that the backend answers after the deadline revives nothing: lost is lost.
pub(super) async fn a_late_renewal_revives_nothing(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    needs_expiry(&locker)?;
    let guard = stage.lock(&locker).acquire().await?;
    stage.harness.freeze()?;
    let believed = last_belief(&guard).await;
    stage.harness.thaw()?;
    let end = now() + stage.ttl;
    while now() < end {
        deadline(&guard, believed)?;
        pause(stage.ttl / 50).await;
    }
    let error = refused(guard.release().await, "the release of a lost lock")?;
    ensure(error.kind() == ErrorKind::Lost, format!("told as {error:?}"))?;
    stage.lock(&locker).acquire().await?.release().await?;
    Ok(())
}

/// A connection that is cut and heals in time makes a lock suspect, and held again.
pub(super) async fn a_short_cut_is_healed(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    needs_expiry(&locker)?;
    let guard = stage.lock(&locker).acquire().await?;
    let mut changes = guard.changes();
    stage.harness.cut()?;
    for expected in [State::Suspect, State::Held] {
        while changes.hold().state != expected {
            if let State::Lost(loss) = changes.changed().await.state {
                return Err(Stop::Failed(format!("a short cut lost the lock: {loss}")));
            }
        }
        stage.harness.heal()?;
    }
    holds_for(&guard, stage.ttl * 2).await?;
    stage.is_held_by(&guard, &other).await?;
    guard.release().await?;
    Ok(())
}

/// A holder that is cut off stops believing before the backend gives the lock to the next.
pub(super) async fn a_deadline_lies_before_the_backends_expiry(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    needs_expiry(&locker)?;
    let guard = stage.lock(&locker).acquire().await?;
    let waiter = acquiring(stage.lock(&other));
    stage.until_waiting(&other, 1).await?;
    stage.harness.cut()?;
    let believed = last_belief(&guard).await;
    let (next, got) = waiter.done().await??;
    stage.harness.heal()?;
    let deadline = deadline(&guard, believed)?;
    ensure(deadline < got, format!("believed until {deadline:?}, and the next had it at {got:?}"))?;
    ensure(guard.token() < next.token(), "the next holder's token is lower")?;
    next.release().await?;
    Ok(())
}

/// A lock whose lease ran out at the backend passes on; its holder is told, and giving it up does the next no harm.
pub(super) async fn an_expired_lock_passes_on_and_is_told(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    needs_expiry(&locker)?;
    let guard = stage.lock(&locker).acquire().await?;
    let waiter = acquiring(stage.lock(&other));
    stage.until_waiting(&other, 1).await?;
    let expired = now();
    stage.harness.expire_holder(&stage.name)?;
    let told = told_loss(&guard).await;
    let took = told.since(expired);
    ensure(took <= stage.within(1), format!("the holder was told {took:?} later"))?;
    let (next, _) = waiter.done().await??;
    ensure(guard.token() < next.token(), "the next holder's token is lower")?;
    drop(guard);
    holds_for(&next, stage.ttl).await?;
    stage.is_held_by(&next, &other).await?;
    next.release().await?;
    Ok(())
}

/// A forced unlock answers a token above the holder's; the holder is told, and the next in line runs with a token that
/// is no lower.
pub(super) async fn force_unlock_tells_the_holder_and_lets_the_next_run(stage: &Stage<'_>) -> Verdict {
    let (locker, other) = (stage.subject().await?, stage.rival().await?);
    let guard = stage.lock(&locker).label("forced out").acquire().await?;
    let waiter = acquiring(stage.lock(&other));
    stage.until_waiting(&other, 1).await?;
    let (forced, out) = (now(), other.force_unlock(&stage.name).await?);
    let told = told_loss(&guard).await;
    let took = told.since(forced);
    ensure(took <= stage.within(1), format!("the holder was told {took:?} later"))?;
    let label = out.holder.and_then(|holder| holder.owner).and_then(|owner| owner.label);
    ensure(label.as_deref() == Some("forced out"), format!("forced out: {label:?}"))?;
    let (next, _) = waiter.done().await??;
    // A gate that is raised to the forced token must let those in who already wait.
    let rises = guard.token() < out.token && out.token <= next.token();
    ensure(rises, format!("{}, then {}, then {}", guard.token(), out.token, next.token()))?;
    next.release().await?;
    Ok(())
}

/// The release of a lock that was lost says so, whether or not the loss had been noticed.
pub(super) async fn a_release_after_a_loss_says_so(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    for noticed in [true, false] {
        let guard = stage.lock(&locker).acquire().await?;
        stage.harness.delete_holder(&stage.name)?;
        if noticed {
            guard.lost().await;
        }
        let error = refused(guard.release().await, "the release of a lost lock")?;
        ensure(error.kind() == ErrorKind::Lost, format!("told as {error:?}"))?;
    }
    Ok(())
}

/// Work that runs under a guard is stopped by its loss.
pub(super) async fn work_is_stopped_by_a_loss(stage: &Stage<'_>) -> Verdict {
    let locker = stage.subject().await?;
    let guard = stage.lock(&locker).acquire().await?;
    let done = guard.run(async { 42 }).await?;
    ensure(done == 42, "work under a held lock gives its result")?;
    stage.harness.delete_holder(&stage.name)?;
    let error = refused(guard.run(std::future::pending::<()>()).await, "work without an end")?;
    ensure(error.kind() == ErrorKind::Lost, format!("told as {error:?}"))
}
