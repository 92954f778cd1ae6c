//! The live line: who is in the way, while a person waits at a terminal.

use std::{
    env,
    future::Future,
    io::{IsTerminal, Write, stderr},
    time::Duration,
};

use fencepost::{LockName, Locker, Status, SystemHost, driver::Host};

use crate::duration;

/// Waits for `taking`, and after a second shows on a terminal's stderr who holds the lock.
pub(crate) async fn live<T>(
    locker: &Locker,
    name: &LockName,
    quiet: bool,
    taking: impl Future<Output = T>,
) -> T {
    let can_redraw = stderr().is_terminal() && env::var_os("TERM").is_some_and(|name| name != "dumb");
    if quiet || !can_redraw {
        return taking.await;
    }
    let mut drawn = false;
    let taken = tokio::select! {
        biased;
        taken = taking => taken,
        taken = show(locker, name, &mut drawn) => taken,
    };
    if drawn {
        draw("");
    }
    taken
}

/// Draws for as long as it is polled.
async fn show<T>(locker: &Locker, name: &LockName, drawn: &mut bool) -> T {
    const SECOND: Duration = Duration::from_secs(1);
    let (host, began) = (SystemHost, SystemHost.now());
    loop {
        host.sleep_until(host.now() + SECOND).await;
        let waited = Duration::from_secs(host.now().since(began).as_secs());
        // A backend that does not answer is told by the acquire itself.
        if let Ok(status) = locker.inspect(name.as_str()).await {
            draw(&line(&status, waited));
            *drawn = true;
        }
    }
}

fn line(status: &Status, waited: Duration) -> String {
    let mut text = format!("fencepost: waiting {} for {}", duration::show(waited), status.lock);
    if let Some(holder) = &status.holder {
        let owner = holder.owner.as_ref().map_or("somebody".to_owned(), ToString::to_string);
        text += &format!(", held by {owner}");
    }
    let me = std::process::id();
    let place = status.waiters.iter().position(|owner| owner.as_ref().is_some_and(|owner| owner.pid == me));
    if let Some(place) = place {
        text += &format!(", number {} in line", place + 1);
    }
    text
}

fn draw(text: &str) {
    let mut stderr = stderr().lock();
    // Without wrapping, as what stands on a second line would not be overwritten by the next text.
    let _ = write!(stderr, "\r\x1b[K\x1b[?7l{text}\x1b[?7h");
    let _ = stderr.flush();
}
