//! What operators see.

use super::stage::{Stage, Stop, Verdict, acquiring, ensure};

/// Inspecting a lock shows its holder and those who wait, with what they said about themselves.
pub(super) async fn inspect_shows_who_holds_and_who_waits(stage: &Stage<'_>) -> Verdict {
    let (holder, other, looker) = (stage.subject().await?, stage.rival().await?, stage.rival().await?);
    let guard = stage.lock(&holder).label("holds").acquire().await?;
    let waiter = acquiring(stage.lock(&other).label("waits"));
    stage.until_waiting(&looker, 1).await?;
    let status = stage.inspect(&looker).await?;
    let shown = status.holder.ok_or_else(|| Stop::Failed("no holder is shown".into()))?;
    let owner = shown.owner.ok_or_else(|| Stop::Failed("no owner is shown".into()))?;
    ensure(owner.label.as_deref() == Some("holds"), format!("the holder is shown as {owner}"))?;
    ensure(owner.pid == std::process::id(), format!("the holder is shown as {owner}"))?;
    ensure(shown.token.is_none_or(|token| token == guard.token()), "another token is shown")?;
    let left = shown.expires_in;
    ensure(left.is_none_or(|left| left <= stage.ttl), format!("{left:?} are left of {:?}", stage.ttl))?;
    let waits = status.waiters.first().and_then(|owner| owner.as_ref()?.label.as_deref());
    ensure(waits == Some("waits"), format!("those who wait are shown as {:?}", status.waiters))?;
    guard.release().await?;
    waiter.done().await??.0.release().await?;
    Ok(())
}

/// Listing finds the locks whose names begin with a prefix, in the order of their names, and no others.
pub(super) async fn list_finds_by_prefix_and_in_order(stage: &Stage<'_>) -> Verdict {
    let (holder, looker) = (stage.subject().await?, stage.rival().await?);
    let mut guards = Vec::new();
    for suffix in ["-b/2", "-a", "-b", "-c", "-b/10"] {
        guards.push(stage.other(&holder, suffix).acquire().await?);
    }
    let found = looker.list(format!("{}-b", stage.name)).await?;
    let found: Vec<&str> = found.iter().map(|status| status.lock.as_str()).collect();
    let expected = ["-b", "-b/10", "-b/2"].map(|suffix| format!("{}{suffix}", stage.name));
    ensure(found == expected, format!("found {found:?}"))?;
    let none = looker.list(format!("{}-d", stage.name)).await?;
    ensure(none.is_empty(), format!("found {none:?}"))?;
    for guard in guards {
        guard.release().await?;
    }
    let left = looker.list(&stage.name).await?;
    ensure(left.is_empty(), format!("released, and still listed: {left:?}"))
}

/// An observer is told who takes the lock and that it was given back.
pub(super) async fn observe_tells_changes(stage: &Stage<'_>) -> Verdict {
    let (holder, looker) = (stage.subject().await?, stage.rival().await?);
    let mut observer = looker.observe(&stage.name)?;
    let at_first = observer.next().await?;
    ensure(at_first.holder.is_none(), format!("at first: {at_first:?}"))?;
    for _ in 0..2 {
        let guard = stage.lock(&holder).label("seen").acquire().await?;
        let taken = observer.next().await?;
        let owner = taken.holder.and_then(|holder| holder.owner);
        let seen = owner.as_ref().and_then(|owner| owner.label.as_deref()) == Some("seen");
        ensure(seen, format!("taken, and told as {owner:?}"))?;
        guard.release().await?;
        let given_back = observer.next().await?;
        ensure(given_back.holder.is_none(), format!("given back, and told as {given_back:?}"))?;
    }
    Ok(())
}
