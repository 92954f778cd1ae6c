//! Sending one request of the driver contract.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::OwnedMutexGuard;

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
    let turn = Turn { claim: claim.clone(), is_known: false, _turn: turn };
    let settle = move |result: &Result<T, Fail>| turn.end(!matches!(result, Err(Fail::Unknown(_))));
    to_its_end(claim.host().clone(), claim.patience(), sent, settle).await
}

/// A claim's turn for one verb. The next verb finds noted whether this one's outcome is known, also if the driver panicked.
struct Turn {
    claim: Arc<Claim>,
    is_known: bool,
    _turn: OwnedMutexGuard<()>,
}

impl Turn {
    fn end(mut self, is_known: bool) {
        self.is_known = is_known;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_known {
            self.claim.mark_unsure();
        }
    }
}

/// Runs `request` until it ends or `limit` is over, and then `settle`, before anybody learns of the outcome.
///
/// The request is polled once on this thread: a driver that needs no I/O answers there and then. One that is pending
/// is driven by whoever waits for it, and goes on as a task of the host if this future is dropped: what hangs on its end
/// costs no task of its own as long as somebody waits.
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
    let (clock, end) = (host.clone(), host.now() + limit);
    let rest = Box::pin(async move {
        let result = tokio::select! {
            biased;
            result = request => result,
            () = clock.sleep_until(end) => {
                Err(Fail::Unknown(format!("the backend did not answer within {limit:?}")))
            }
        };
        settle(&result);
        result
    });
    Unfinished { host, rest: Some(rest) }.await
}

/// A request that is under way.
struct Unfinished<T: Send + 'static> {
    host: Arc<dyn Host>,
    /// `None` once it is over.
    rest: Option<Fut<'static, Result<T, Fail>>>,
}

impl<T: Send + 'static> Future for Unfinished<T> {
    type Output = Result<T, Fail>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(rest) = &mut self.rest else { return Poll::Pending };
        // A driver that panics must not take along who waits.
        let answer = catch_unwind(AssertUnwindSafe(|| rest.as_mut().poll(cx))).unwrap_or_else(|_| {
            Poll::Ready(Err(Fail::Unknown("the driver failed before the request came to its end".into())))
        });
        if answer.is_ready() {
            self.rest = None;
        }
        answer
    }
}

impl<T: Send + 'static> Drop for Unfinished<T> {
    /// What the request leaves behind is then the reaper's.
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.host.spawn(Box::pin(async move { drop(rest.await) }));
        }
    }
}
