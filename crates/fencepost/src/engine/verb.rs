//! Sending one verb of the driver contract.

use std::{future::poll_fn, sync::Arc, task::Poll};

use tokio::sync::oneshot;

use crate::{
    claim::Claim,
    driver::{Fail, Fut},
};

/// Sends one verb on `claim` and runs it to its end, whatever becomes of the caller.
///
/// The verb is polled once on this thread: a driver that needs no I/O answers there and then. One that is pending
/// moves to a task of the host and keeps the claim's turn, so that the next verb on this claim starts only after
/// it has ended or timed out. Dropping an `enter` half way and sending a `leave` behind it would leave zombies.
pub(crate) async fn verb<T: Send + 'static>(
    claim: &Arc<Claim>,
    mut sent: Fut<'static, Result<T, Fail>>,
) -> Result<T, Fail> {
    let turn = claim.verbs.clone().lock_owned().await;
    if let Poll::Ready(result) = poll_fn(|cx| Poll::Ready(sent.as_mut().poll(cx))).await {
        return note(claim, result);
    }
    let (answer, answered) = oneshot::channel();
    let task_claim = claim.clone();
    claim.host().spawn(Box::pin(async move {
        let claim = task_claim;
        let limit = claim.patience();
        let result = tokio::select! {
            biased;
            result = &mut sent => result,
            () = claim.host().sleep_until(claim.now() + limit) => {
                Err(Fail::Unknown(format!("the backend did not answer within {limit:?}")))
            }
        };
        let result = note(&claim, result);
        drop(turn);
        // The caller may have gone; the claim is then the reaper's.
        let _ = answer.send(result);
    }));
    answered.await.unwrap_or_else(|_| Err(Fail::Internal("a request was dropped before its end".into())))
}

fn note<T>(claim: &Claim, result: Result<T, Fail>) -> Result<T, Fail> {
    if matches!(result, Err(Fail::Unknown(_))) {
        claim.mark_unsure();
    }
    result
}
