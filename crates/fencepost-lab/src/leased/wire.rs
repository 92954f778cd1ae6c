//! What goes over the wire: one JSON object a line. Requests carry an id and are answered by it, in any order; pushes
//! carry none.

use std::time::Duration;

use fencepost::{LockName, Owner, Token};
use serde::{Deserialize, Serialize};

/// A request of the driver or the harness.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) ask: Ask,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// The first request on every connection; `subject` marks one that faults are aimed at.
    Hello {
        subject: bool,
    },
    Open {
        session: String,
        ttl: Duration,
    },
    Enter(Enter),
    /// Renews claims, and the session that they hang on.
    Renew {
        life: Life,
        claims: Vec<Mark>,
    },
    /// Asks for `Gone` to be pushed for these held claims.
    Attend {
        claims: Vec<Mark>,
    },
    /// Writes the holder's owner record again.
    Proclaim {
        mark: Mark,
        owner: Owner,
    },
    /// `tombstone` is how long a late enter of this claim must be refused.
    Leave {
        mark: Mark,
        tombstone: Duration,
    },
    Close {
        session: String,
    },
    Inspect {
        lock: String,
    },
    List {
        prefix: String,
    },
    ForceUnlock {
        lock: String,
    },
    /// Asks for `Changed` to be pushed for this lock.
    Observe {
        lock: String,
    },
    Control(Control),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Enter {
    pub(super) mark: Mark,
    pub(super) life: Life,
    pub(super) owner: Owner,
    pub(super) floor: Option<Token>,
    /// Whether to stand in line if the lock is held.
    pub(super) wait: bool,
}

/// A claim: the lock and the claim's id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) lock: String,
    pub(super) claim: String,
}

/// What keeps a claim alive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Life {
    /// Its own lease of this length.
    Own(Duration),
    /// This session.
    Session(String),
}

/// What the server sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Answer { id: u64, answer: Answer },
    Push(Push),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Lineage(String),
    Granted(Token),
    /// In line, or refused without a place in it if the enter did not want to wait.
    Held(Option<Holding>),
    /// The claim was withdrawn before.
    Gone,
    NoLease,
    /// Which of the claims live on, in the order of the request.
    Renewed(Vec<bool>),
    /// Whether the claim is the holder.
    Proclaimed(bool),
    /// Whether the claim was there.
    Left(bool),
    Locks(Vec<Line>),
    ForcedOut {
        holder: Option<Holding>,
        token: Token,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Push {
    /// It may be this claim's turn.
    Poke(String),
    /// This claim is no longer the holder.
    Gone(String),
    /// This session has ended.
    Ended(String),
    Changed(String),
}

/// The holder of a lock, as the wire shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Holding {
    pub(super) token: Token,
    pub(super) owner: Owner,
    pub(super) expires_in: Duration,
}

/// One lock and who stands at it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) lock: LockNameText,
    pub(super) holder: Option<Holding>,
    pub(super) waiters: Vec<Owner>,
}

/// A lock name that is checked when it is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct LockNameText(pub(super) LockName);

impl TryFrom<String> for LockNameText {
    type Error = fencepost::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl From<LockNameText> for String {
    fn from(name: LockNameText) -> Self {
        name.0.as_str().to_owned()
    }
}

/// What a claim's life hangs on, as the URL says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// `lease=claim`: each claim expires on its own.
    Claim,
    /// `lease=session`: claims die with a session.
    Session,
}

/// The requests that a fault can be aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Opening a session.
    Open,
    /// Entering a claim.
    Enter,
    /// Renewing.
    Renew,
    /// Removing a claim.
    Leave,
}

/// What happens to the next request of a kind on a subject's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// It is carried out and never answered.
    DropReply,
    /// It is carried out and answered, and carried out once more this much later.
    Repeat(Duration),
    /// It is carried out and answered this much later; other requests go on meanwhile.
    Delay(Duration),
}

/// What the harness asks of the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Control {
    /// Arms a fault for the next request of this kind.
    Arm(Kind, Fault),
    /// Stops reading and expiring, until [`Control::Thaw`]; clocks go on.
    Freeze,
    /// Goes on.
    Thaw,
    /// Closes the subjects' connections and refuses new ones, until [`Control::Heal`].
    Cut,
    /// Lets subjects connect again.
    Heal,
    /// Lets the lease of this lock's holder run out now.
    ExpireHolder(String),
    /// Lets the leases of those who wait for this lock run out now.
    ExpireWaiters(String),
    /// Deletes the holder of this lock as a careless operator would.
    Delete(String),
    /// Closes every connection; what was acknowledged survives.
    Restart,
    /// Closes every connection and starts again from nothing, with a new lineage.
    Wipe,
}
