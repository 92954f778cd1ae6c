//! Tokens that say nothing.

use fencepost::blocking::wait;
use libtest_mimic::Failed;

use super::textbook::{KEY, Stage, is_refused, take};

pub(crate) fn without_the_lock(stage: &mut Stage) -> Result<(), Failed> {
    let (mut holder, mut other) = (stage.client()?, stage.client()?);
    let held = holder.take_with_token()?;
    let taken = other.take_with_token()?;
    assert_eq!(stage.server.command::<u64>(&["GET", KEY])?, held, "the first is the holder");
    // A resource that has seen this one turns the holder away.
    assert!(taken > held, "the other's token is not higher: the trap is not shown");

    stage.clear()?;
    let (one, two) = (stage.locker()?, stage.locker()?);
    let guard = take(&one)?;
    is_refused(&two);
    let held = guard.token();
    wait(guard.release())?;
    let next = take(&two)?;
    assert!(next.token() > held);
    Ok(wait(next.release())?)
}

pub(crate) fn deleted_counter(stage: &mut Stage) -> Result<(), Failed> {
    rises_for_ours_only(stage, |stage| {
        // Evicted, expired or swept up: every key but the locks themselves, which are free.
        let keys: Vec<String> = stage.server.command(&["KEYS", "*"])?;
        for key in keys.iter().filter(|key| !key.ends_with("lineage")) {
            stage.server.command::<i64>(&["DEL", key])?;
        }
        Ok(())
    })
}

pub(crate) fn lost_data(stage: &mut Stage) -> Result<(), Failed> {
    rises_for_ours_only(stage, |stage| Ok(stage.server.restart_empty()?))
}

fn rises_for_ours_only(stage: &mut Stage, lose: fn(&mut Stage) -> Result<(), Failed>) -> Result<(), Failed> {
    let mut highest = 0;
    for _ in 0..5 {
        highest = stage.client()?.take_with_token()?;
        stage.server.command::<i64>(&["DEL", KEY])?;
    }
    lose(stage)?;
    let again = stage.client()?.take_with_token()?;
    // Whoever held the lock long ago has the same token as the holder, or a higher one.
    assert!(again <= highest, "the textbook's tokens rose: the trap is not shown");

    stage.clear()?;
    let locker = stage.locker()?;
    let guard = take(&locker)?;
    let before = guard.token();
    wait(guard.release())?;
    lose(stage)?;
    let guard = take(&locker)?;
    assert!(guard.token() > before, "{} after {before}", guard.token());
    Ok(wait(guard.release())?)
}
