//! The edges: blocked callers, strange durations and names, and the end of a locker.

use std::{sync::Arc, thread, time::Duration};

use super::{
    harness::Path,
    stage::{Stage, Stop, Verdict, drop_after, ensure, now, on_a_thread, pause, refused},
};
use crate::{blocking, driver::LeaseKind, engine::SystemHost, error::ErrorKind, locker::Locker};

/// A caller that blocks its own current-thread runtime for terms on end does not lose the lock.
pub(super) async fn a_blocked_runtime_does_not_lose_the_lock(stage: &Stage<'_>) -> Verdict {
    let (locker, other, ttl) = (stage.subject().await?, stage.rival().await?, stage.ttl);
    let lock = stage.lock(&locker);
    let work = on_a_thread(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let guard = lock.acquire().await?;
            thread::sleep(ttl * 3);
            ensure(guard.is_held(), "a blocked runtime lost the lock")?;
            guard.release().await?;
            Verdict::Ok(())
        })
    });
    stage.until(&other, |status| status.holder.is_some()).await?;
    pause(ttl * 2).await;
    refused(stage.lock(&other).try_acquire().await, "a try of a lock whose holder is busy")?;
    work.done().await?
}

/// The blocking API excludes, renews and releases as the other does.
pub(super) async fn the_blocking_api_keeps_the_same_promises(stage: &Stage<'_>) -> Verdict {
    let (locker, other, ttl) = (stage.subject().await?, stage.rival().await?, stage.ttl);
    let (locker, name) = (blocking::Locker::from(locker), stage.name.clone());
    let work = on_a_thread(move || {
        let lock = locker.lock(&name).ttl(ttl).wait(ttl);
        let guard = locker.acquire(&lock)?;
        refused(locker.try_acquire(&lock), "a try of a held lock")?;
        thread::sleep(ttl * 3 / 2);
        ensure(guard.is_held(), "the lock was not renewed")?;
        ensure(locker.inspect(&name)?.holder.is_some(), "no holder is shown")?;
        guard.release()?;
        let next = locker.acquire(&lock)?;
        drop(next);
        locker.close();
        Verdict::Ok(())
    });
    work.done().await??;
    stage.free_within(stage.within(0), &other).await
}

/// Durations that are zero, tiny or enormous are taken or refused with a sentence; nothing panics or hangs.
pub(super) async fn strange_durations_are_answered(stage: &Stage<'_>) -> Verdict {
    const YEARS: Duration = Duration::from_secs(400 * 365 * 24 * 60 * 60);
    let locker = stage.subject().await?;
    let about = locker.about().clone();
    let tiny = Duration::from_nanos(1);
    for ttl in [Duration::ZERO, tiny, *about.ttl.start(), *about.ttl.end(), YEARS, Duration::MAX] {
        let legal = about.lease == LeaseKind::None || about.ttl.contains(&ttl);
        match stage.lock(&locker).ttl(ttl).acquire().await {
            Ok(guard) => {
                ensure(legal, format!("ttl={ttl:?} was taken"))?;
                // The shortest lease may be over by now, and then says so.
                let released = guard.release().await;
                let fits = released.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Lost);
                ensure(fits, format!("ttl={ttl:?} was released with {released:?}"))?;
            }
            Err(error) if legal => {
                let late = error.kind() == ErrorKind::Timeout && ttl == *about.ttl.start();
                ensure(late, format!("ttl={ttl:?} was refused: {error}"))?;
            }
            Err(error) => ensure(error.kind() == ErrorKind::Invalid, format!("ttl={ttl:?}: {error:?}"))?,
        }
    }
    for wait in [YEARS, Duration::MAX] {
        stage.lock(&locker).wait(wait).patience(wait).acquire().await?.release().await?;
    }
    for wait in [Duration::ZERO, tiny] {
        if let Err(error) = stage.lock(&locker).wait(wait).patience(wait).acquire().await {
            ensure(error.kind() == ErrorKind::Timeout, format!("wait={wait:?}: {error:?}"))?;
        }
    }
    stage.free_within(stage.within(1), &locker).await
}

/// Names that look alike, or like a backend's own syntax, are locks of their own, and come back as they were typed.
pub(super) async fn strange_names_are_locks_of_their_own(stage: &Stage<'_>) -> Verdict {
    let (locker, looker) = (stage.subject().await?, stage.rival().await?);
    let long = "x".repeat(200);
    let odd = [
        "a",
        "A",
        "aa",
        "a/b",
        "a b",
        "a:b",
        "a%2Fb",
        "{a}b",
        "a*?[x]",
        "'a'\"\\",
        "日本/语",
        "é",
        "e\u{301}",
        "-",
        "_c_",
        "a.lock",
        "token",
        &long,
    ];
    let mut guards = Vec::new();
    for name in odd {
        guards.push(stage.other(&locker, &format!("/{name}")).try_acquire().await?);
    }
    for guard in &guards {
        let holder = looker.inspect(guard.lock().as_str()).await?.holder;
        let token = holder.and_then(|holder| holder.token);
        ensure(token == Some(guard.token()), format!("{:?} is shown with {token:?}", guard.lock()))?;
    }
    let listed = looker.list(format!("{}/", stage.name)).await?;
    let mut expected: Vec<_> = guards.iter().map(|guard| guard.lock().clone()).collect();
    expected.sort();
    let listed: Vec<_> = listed.into_iter().map(|status| status.lock).collect();
    ensure(listed == expected, format!("listed as {listed:?}"))?;
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

/// Closing a locker waits until everything that it gave up is removed.
pub(super) async fn close_waits_until_nothing_is_left(stage: &Stage<'_>) -> Verdict {
    let (locker, looker) = (stage.subject().await?, stage.rival().await?);
    for _ in 0..5 {
        drop(stage.long(&locker).acquire().await?);
    }
    drop_after(Duration::ZERO, stage.long(&locker).acquire()).await;
    locker.close().await;
    let left = stage.inspect(&looker).await?;
    ensure(left.holder.is_none() && left.waiters.is_empty(), format!("left behind: {left:?}"))
}

/// When the last locker and guard are gone, no task keeps the driver, and with it a connection, alive.
pub(super) async fn nothing_keeps_a_dropped_driver_alive(stage: &Stage<'_>) -> Verdict {
    let driver = stage.harness.connect(Path::Sound).await?;
    let alive = Arc::downgrade(&driver);
    let locker = Locker::from_parts(driver, Arc::new(SystemHost));
    let observer = locker.observe(&stage.name)?;
    let guard = stage.lock(&locker).acquire().await?;
    refused(stage.lock(&locker).wait(stage.ttl).acquire().await, "an acquire of a held lock")?;
    drop((locker, observer, guard));
    let dropped = now();
    while alive.strong_count() > 0 {
        if now().since(dropped) > stage.within(3) {
            return Err(Stop::Failed(format!("{} owners are left", alive.strong_count())));
        }
        pause(Duration::from_millis(10)).await;
    }
    Ok(())
}
