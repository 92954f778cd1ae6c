//! Giving back what has become somebody else's.

use std::{sync::Arc, time::Duration};

use fencepost::{
    ErrorKind, Locker, SystemHost,
    blocking::wait,
    redis::{Client, Options, driver},
};
use fencepost_lab::faulty::{Fault, Faults, Faulty};
use libtest_mimic::Failed;

use super::textbook::{LONG, NAME, Stage, is_refused, take};

pub(crate) fn plain_del(stage: &mut Stage) -> Result<(), Failed> {
    let (mut first, mut second, mut third) = (stage.client()?, stage.client()?, stage.client()?);
    first.take(LONG)?.ok_or("it was free")?;
    stage.expire()?;
    second.take(LONG)?.ok_or("the lease was over")?;
    first.order(&format!("free {NAME}"))?;
    assert!(third.take(LONG)?.is_some(), "the second's lock was not freed: the trap is not shown");

    stage.clear()?;
    let (one, two, three) = (stage.locker()?, stage.locker()?, stage.locker()?);
    let late = take(&one)?;
    stage.expire()?;
    let held = take(&two)?;
    assert_eq!(wait(late.release()).unwrap_err().kind(), ErrorKind::Lost);
    is_refused(&three);
    assert!(held.is_held());
    Ok(wait(held.release())?)
}

pub(crate) fn get_then_del(stage: &mut Stage) -> Result<(), Failed> {
    let (mut first, mut second, mut third) = (stage.client()?, stage.client()?, stage.client()?);
    let mine = first.take(LONG)?.ok_or("it was free")?;
    assert_eq!(first.order(&format!("check_and_free {NAME} {mine}"))?, "mine");
    stage.expire()?;
    second.take(LONG)?.ok_or("the lease was over")?;
    assert_eq!(first.order("go")?, "freed");
    assert!(third.take(LONG)?.is_some(), "the second's lock was not freed: the trap is not shown");

    // Ours is one request, and the same happens while it is on its way.
    stage.clear()?;
    let faults = Arc::new(Faults::default());
    let (one, two, three) = (delayed(stage, &faults)?, stage.locker()?, stage.locker()?);
    let late = take(&one)?;
    faults.arm("leave", Fault::HoldBack(Duration::from_millis(700)));
    let releasing = std::thread::spawn(move || wait(late.release()));
    std::thread::sleep(Duration::from_millis(100));
    stage.expire()?;
    let held = take(&two)?;
    assert!(!releasing.is_finished(), "the release was not on its way any more");
    let released = releasing.join().map_err(|_| "the release does not panic")?;
    assert_eq!(released.unwrap_err().kind(), ErrorKind::Lost);
    is_refused(&three);
    assert!(held.is_held());
    Ok(wait(held.release())?)
}

/// A locker of which single requests can be held back.
fn delayed(stage: &Stage, faults: &Arc<Faults>) -> Result<Locker, Failed> {
    let (host, options) = (Arc::new(SystemHost), Options::from_url(stage.server.url().parse()?)?);
    let client = Arc::new(Client::new(options.clone(), host.clone()));
    let faulty = Arc::new(Faulty::new(client, host.clone(), faults.clone()));
    Ok(Locker::from_parts(wait(driver(faulty, options, host.clone()))?, host))
}
