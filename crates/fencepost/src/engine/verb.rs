//! Sending one request of the driver contract.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use tokio::sync::oneshot;

use crate::{
    claim::Claim,
    driver::{Fail, Fut, Host},
};

/// Sends one verb on `claim` and runs it to its end, whatever becomes of the caller. The next verb on this claim starts
/// only then: dropping an `enter` half way and sending a `leave` behind it would leave zombies.
pub(crate) async fn verb<T: Send + 'static>(
    claim: &Arc<Claim>,
    sent: Fut<'static, Result<T, Fail>>,
) -> Result<T, Fail> {
    let turn = claim.verbs.clone().lock_owned().await;
    let noting = claim.clone();
    let settle = move |result: &Result<T, Fail>| {
        if matches!(result, Err(Fail::Unknown(_))) {
            noting.mark_unsure();
        }
        drop(turn);
    };
    let result = to_its_end(claim.host().clone(), claim.patience(), sent, settle).await;
    if matches!(result, Err(Fail::Unknown(_))) {
        // Also when the driver panicked, and `settle` was never asked.
        claim.mark_unsure();
    }
    result
}

/// Runs `request` until it ends or `limit` is over, and then `settle`, before anybody learns of the outcome.
///
/// The request is polled once on this thread: a driver that needs no I/O answers there and then. One that is pending
/// goes on as a task of the host, also when this future is dropped.
pub(crate) async fn to_its_end<T: Send + 'static>(
    host: Arc<dyn Host>,
    limit: Duration,
    mut request: Fut<'static, Result<T, Fail>>,
    settle: impl FnOnce(&Result<T, Fail>) + Send + 'static,
) -> Result<T, Fail> {
    if let Poll::Ready(result) = poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await {
        settle(&result);
        return result;
    }
    let (answer, answered) = oneshot::channel();
    let clock = host.clone();
    host.spawn(Box::pin(async move {
        let result = tokio::select! {
            biased;
            result = &mut request => result,
            () = clock.sleep_until(clock.now() + limit) => {
                Err(Fail::Unknown(format!("the backend did not answer within {limit:?}")))
            }
        };
        settle(&result);
        // The caller may have gone; what the request left behind is then the reaper's.
        let _ = answer.send(result);
    }));
    answered
        .await
        .unwrap_or_else(|_| Err(Fail::Unknown("the driver failed before the request came to its end".into())))
}
