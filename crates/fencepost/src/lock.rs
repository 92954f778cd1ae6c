//! What is asked of one acquire.

use std::{sync::Arc, time::Duration};

use tracing::Instrument;

use crate::{
    driver::{Intent, LeaseKind, Level},
    engine::{self, Core, Want, offload},
    error::{Error, ErrorKind},
    guard::Guard,
    meters,
    name::LockName,
    owner::{MAX_LABEL_BYTES, MAX_VALUE_BYTES},
    token::Token,
};

/// The lease length that is asked for unless [`Lock::ttl`] says otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// How long a backend may fail to answer unless [`Lock::patience`] says otherwise.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);

/// One lock of a locker, with the options of the next acquire. Made by [`Locker::lock`](crate::Locker::lock).
#[derive(Clone)]
#[must_use = "a lock is not taken before acquire() is awaited"]
pub struct Lock {
    core: Arc<Core>,
    name: Result<LockName, String>,
    ttl: Duration,
    wait: Option<Duration>,
    patience: Duration,
    label: Option<String>,
    value: Option<String>,
    floor: Option<Token>,
    level: Option<Level>,
}

impl Lock {
    pub(crate) fn new(core: Arc<Core>, name: &str) -> Self {
        Self {
            core,
            name: name.parse().map_err(|error: Error| error.to_string()),
            ttl: DEFAULT_TTL,
            wait: None,
            patience: DEFAULT_PATIENCE,
            label: None,
            value: None,
            floor: None,
            level: None,
        }
    }

    /// How long the backend keeps the lock without hearing from us (30 s unless set). It is renewed at a third of it.
    /// Ignored by `local:`, where nothing expires.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`acquire`](Self::acquire) waits for the lock (for ever unless set).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How long the backend may fail to answer before that is an error (10 s unless set).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// What the work is called in the owner record that others see; at most 255 bytes without control characters.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// What those who observe the lock are told of its holder, such as an address: at most 1024 bytes without control
    /// characters. It stands in the owner record; an [`Election`](crate::Election) uses it.
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// A number that the token must exceed: the highest token that the protected resource has seen.
    pub fn floor(mut self, floor: Token) -> Self {
        self.floor = Some(floor);
        self
    }

    /// What the backend must promise for this lock; checked by the acquire.
    pub fn require(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// Waits for the lock and takes it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] if it was held until the end of [`wait`](Self::wait); `Unavailable` if the backend did not
    /// answer for [`patience`](Self::patience) and nothing of the claim is there; `Unknown` if something of it may be,
    /// for one lease length; `Denied`, `Invalid`, `Unsupported` as they say.
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped acquire withdraws its claim in the background, also one that was granted in that moment. It loses
    /// its place in line.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencepost::Error> {
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let locker = fencepost::Locker::connect(&format!("local:{}", dir.path().display())).await?;
    /// let guard = locker.lock("orders/4821").wait(Duration::from_secs(5)).acquire().await?;
    /// println!("token {}", guard.token());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.take(Intent::Wait).await
    }

    /// Takes the lock if it is free, without standing in line.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`ErrorKind::Timeout`] at once if somebody holds the lock.
    ///
    /// # Cancel safety
    ///
    /// Safe: as [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Guard, Error> {
        self.take(Intent::Try).await
    }

    async fn take(&self, intent: Intent) -> Result<Guard, Error> {
        let want = self.want(intent)?;
        let span = tracing::debug_span!("acquire", lock = %want.lock, ?intent);
        let core = self.core.clone();
        let acquire = async move {
            let (backend, host) = (core.about.scheme, core.host.clone());
            meters::attempt(backend, &host, engine::acquire(core, want)).await
        };
        let acquire = acquire.instrument(span);
        offload(self.core.host.clone(), Box::pin(acquire)).reaped_by(self.core.reaper.clone()).await
    }

    /// Checks the options and their relations, once for all backends.
    fn want(&self, intent: Intent) -> Result<Want, Error> {
        let invalid = |text: String| Error::new(ErrorKind::Invalid, text);
        let lock = self.name.clone().map_err(invalid)?;
        let about = &self.core.about;
        self.level.map_or(Ok(()), |level| about.require(level))?;
        if about.lease != LeaseKind::None && !about.ttl.contains(&self.ttl) {
            let (min, max) = (about.ttl.start(), about.ttl.end());
            return Err(invalid(format!(
                "ttl={:?} is out of range; {} takes {min:?} to {max:?}",
                self.ttl, about.scheme
            )));
        }
        let texts = [("label", &self.label, MAX_LABEL_BYTES), ("value", &self.value, MAX_VALUE_BYTES)];
        for (what, text, most) in texts {
            text.as_deref().map_or(Ok(()), |text| check_text(what, text, most))?;
        }
        Ok(Want {
            lock,
            intent,
            ttl: if about.lease == LeaseKind::None { Duration::ZERO } else { self.ttl },
            wait: if intent == Intent::Try { None } else { self.wait },
            patience: self.patience,
            label: self.label.clone(),
            value: self.value.clone(),
            floor: self.floor,
        })
    }
}

/// Checks a text that goes into an owner record.
pub(crate) fn check_text(what: &str, text: &str, most: usize) -> Result<(), Error> {
    let invalid = |text: String| Err(Error::new(ErrorKind::Invalid, text));
    if text.len() > most {
        return invalid(format!("the {what} has {} bytes; at most {most} fit", text.len()));
    }
    if text.chars().any(char::is_control) {
        return invalid(format!("the {what} {text:?} contains a control character; remove it"));
    }
    Ok(())
}
