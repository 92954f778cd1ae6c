//! The driver's connection: one socket for all requests, made when it is first needed and again after it broke.
//!
//! It repeats nothing and has no timer: a request that was in flight when the socket broke is answered
//! [`Fail::Unknown`], and whether to ask again is the engine's decision.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use fencepost::driver::{Fail, Host};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::{mpsc, oneshot},
};

use super::wire::{Answer, Ask, Push, Reply, Request};

/// What becomes of pushes, and of the news that the connection broke (`None`).
pub(super) type OnPush = Arc<dyn Fn(Option<Push>) + Send + Sync>;

/// A connection that comes back when it is needed.
pub(super) struct Link {
    host: Arc<dyn Host>,
    addr: SocketAddr,
    subject: bool,
    on_push: OnPush,
    /// What the first hello was answered: tokens of another lineage do not compare.
    lineage: OnceLock<String>,
    wire: tokio::sync::Mutex<Option<Wire>>,
}

/// One socket, as the requests see it.
#[derive(Clone)]
struct Wire {
    out: mpsc::UnboundedSender<Request>,
    awaited: Arc<Awaited>,
}

/// Who waits for which answer.
#[derive(Default)]
struct Awaited {
    last_id: AtomicU64,
    /// Whether the hello was answered.
    is_welcome: AtomicBool,
    /// `None` once the socket is broken.
    by_id: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
}

impl Link {
    pub(super) fn new(host: Arc<dyn Host>, addr: SocketAddr, subject: bool, on_push: OnPush) -> Self {
        let (lineage, wire) = (OnceLock::new(), tokio::sync::Mutex::default());
        Self { host, addr, subject, on_push, lineage, wire }
    }

    /// Sends one request and waits for its answer. A dropped call is still carried out.
    pub(super) async fn call(&self, ask: Ask) -> Result<Answer, Fail> {
        self.wire().await?.call(ask).await
    }

    /// The lineage of the backend that was first connected to.
    pub(super) async fn lineage(&self) -> Result<String, Fail> {
        self.wire().await?;
        Ok(self.lineage.get().expect("a wire has said hello").clone())
    }

    async fn wire(&self) -> Result<Wire, Fail> {
        let mut slot = self.wire.lock().await;
        if let Some(wire) = slot.as_ref().filter(|wire| wire.is_open()) {
            return Ok(wire.clone());
        }
        let wire = self.connect().await?;
        let unavailable = |_| Fail::Unavailable(format!("{} closed the connection", self.addr));
        let answer = wire.call(Ask::Hello { subject: self.subject }).await.map_err(unavailable)?;
        let Answer::Lineage(now) = answer else { return Err(unexpected(&answer)) };
        let first = self.lineage.get_or_init(|| now.clone());
        if *first != now {
            let text = "the backend was wiped: its tokens start a new lineage; connect again";
            return Err(Fail::Invalid(text.into()));
        }
        wire.awaited.is_welcome.store(true, Ordering::Relaxed);
        *slot = Some(wire.clone());
        Ok(wire)
    }

    /// Connects in a task of the host: a socket must not belong to a runtime of the caller, who may block it.
    async fn connect(&self) -> Result<Wire, Fail> {
        let (out, requests) = mpsc::unbounded_channel();
        let awaited = Arc::new(Awaited { by_id: Mutex::new(Some(HashMap::new())), ..Awaited::default() });
        let (connected, told) = oneshot::channel();
        let (addr, on_push, waiting) = (self.addr, self.on_push.clone(), awaited.clone());
        self.host.spawn(Box::pin(async move {
            let stream = match TcpStream::connect(addr).await {
                Ok(stream) => stream,
                Err(error) => return drop(connected.send(Err(error))),
            };
            let _ = connected.send(Ok(()));
            carry(stream, requests, &waiting, &on_push).await;
            // Those who wait for an answer are told by the end of their channel.
            drop(waiting.by_id().take());
            // Telling of an attempt that was refused would start the next one, and so on without a pause.
            if waiting.is_welcome.load(Ordering::Relaxed) {
                on_push(None);
            }
        }));
        match told.await {
            Ok(Ok(())) => Ok(Wire { out, awaited }),
            Ok(Err(error)) => Err(Fail::Unavailable(format!("cannot connect to {addr}: {error}"))),
            Err(_) => Err(Fail::Internal("the host dropped a task".into())),
        }
    }
}

/// Moves requests out and replies in, until the socket breaks or nobody can send any more.
async fn carry(
    mut stream: TcpStream,
    mut requests: mpsc::UnboundedReceiver<Request>,
    awaited: &Awaited,
    on_push: &OnPush,
) {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    let write = async {
        while let Some(request) = requests.recv().await {
            let mut line = serde_json::to_string(&request).expect("requests are plain data");
            line.push('\n');
            if writer.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    let read = async {
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line) {
                Ok(Reply::Answer { id, answer }) => awaited.answer(id, answer),
                Ok(Reply::Push(push)) => on_push(Some(push)),
                Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
}

impl Wire {
    fn is_open(&self) -> bool {
        self.awaited.by_id().is_some()
    }

    async fn call(&self, ask: Ask) -> Result<Answer, Fail> {
        let cut = || Fail::Unknown("the connection was cut".into());
        let id = self.awaited.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, told) = oneshot::channel();
        self.awaited.by_id().as_mut().ok_or_else(cut)?.insert(id, tell);
        let _forget = Forget(&self.awaited, id);
        self.out.send(Request { id, ask }).map_err(|_| cut())?;
        told.await.map_err(|_| cut())
    }
}

impl Awaited {
    fn by_id(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, id: u64, answer: Answer) {
        let tell = self.by_id().as_mut().and_then(|by_id| by_id.remove(&id));
        if let Some(tell) = tell {
            // The call may have been dropped in this moment.
            let _ = tell.send(answer);
        }
    }
}

/// Takes a dropped call off the list.
struct Forget<'a>(&'a Awaited, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(by_id) = self.0.by_id().as_mut() {
            by_id.remove(&self.1);
        }
    }
}

pub(super) fn unexpected(answer: &Answer) -> Fail {
    Fail::Internal(format!("the server gave an answer to another question: {answer:?}"))
}
