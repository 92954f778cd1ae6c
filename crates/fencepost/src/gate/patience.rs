//! One request of a gate to a server, with a limit.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use crate::{
    driver::Fail,
    host::{Fut, Host},
};

/// What `asked` answers within `patience`. It runs as a task of the host, which has the clock; so the caller needs no runtime of a
/// certain kind.
pub(super) async fn within<T: Send + 'static>(
    host: &Arc<dyn Host>,
    patience: Duration,
    asked: Fut<'static, Result<T, Fail>>,
) -> Result<T, Fail> {
    let (answer, answered) = oneshot::channel();
    let clock = host.clone();
    host.spawn(Box::pin(async move {
        let reply = tokio::select! {
            biased;
            reply = asked => reply,
            () = clock.sleep_until(clock.now() + patience) => {
                Err(Fail::Unknown(format!("no answer within {patience:?}")))
            }
        };
        let _ = answer.send(reply);
    }));
    answered.await.unwrap_or_else(|_| Err(Fail::Unknown("the request was given up".into())))
}
