//! The server: sockets and faults around the [store](super::store).

use std::{
    collections::HashMap,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use fencepost::{SystemHost, driver::Host};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Handle},
    sync::{mpsc, oneshot, watch},
};

use super::{
    control::Remote,
    faults::Armed,
    store::{ConnId, Store},
    wire::{Answer, Ask, Control, Fault, Reply, Request, Terms},
};
use crate::clock;

/// How often leases that have run out are looked for between requests.
const TICK_NS: u64 = 10_000_000;

/// A running server on a thread of its own; it stops when dropped.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts an empty server on a free loopback port.
    ///
    /// # Errors
    ///
    /// When no port or no thread can be had.
    pub fn start() -> io::Result<Self> {
        Self::start_at(0, None)
    }

    /// Starts a server on this loopback port, which keeps what it knows in `file` and goes on from there.
    ///
    /// # Errors
    ///
    /// When the port is taken, or the file is not one of ours.
    pub fn start_at(port: u16, file: Option<PathBuf>) -> io::Result<Self> {
        let store = match file.as_ref().map(fs::read) {
            Some(Ok(saved)) => serde_json::from_slice(&saved)?,
            _ => Store::new(new_lineage()),
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, port)))?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            runtime: runtime.handle().clone(),
            frozen: watch::Sender::new(false),
            state: Mutex::new(State { store, file, ..State::default() }),
        });
        let (stop, stopped) = oneshot::channel();
        let run = async move {
            tokio::select! {
                _ = stopped => {}
                () = accept(listener, &shared) => {}
                () = tick(&shared) => {}
            }
        };
        let thread =
            std::thread::Builder::new().name("lab-leased".into()).spawn(move || runtime.block_on(run))?;
        Ok(Self { addr, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL to connect to it with, for claims with such lives.
    #[must_use]
    pub fn url(&self, terms: Terms) -> String {
        let lease = match terms {
            Terms::Claim => "claim",
            Terms::Session => "session",
        };
        format!("lab://{}?lease={lease}", self.addr)
    }

    /// A remote control for it.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote::new(self.addr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server has been printed on its thread, and shows as a cut connection.
            let _ = thread.join();
        }
    }
}

struct Shared {
    runtime: Handle,
    frozen: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    store: Store,
    file: Option<PathBuf>,
    armed: Armed,
    /// Whether subjects are refused.
    cut: bool,
    /// The connections that have said hello.
    peers: HashMap<ConnId, Peer>,
    last_conn: ConnId,
}

/// Dropped, it closes the connection.
struct Peer {
    subject: bool,
    out: mpsc::UnboundedSender<Reply>,
    _open: oneshot::Sender<()>,
}

fn new_lineage() -> String {
    format!("lab-{:016x}", SystemHost.random())
}

async fn accept(listener: TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let conn = {
            let mut state = shared.state();
            state.last_conn += 1;
            state.last_conn
        };
        let shared = shared.clone();
        shared.runtime.clone().spawn(async move {
            // An end of the stream and an error of it are the same to us: the peer has gone.
            let _ = serve(stream, conn, &shared).await;
            let mut state = shared.state();
            state.peers.remove(&conn);
            state.store.forget(conn);
        });
    }
}

async fn tick(shared: &Shared) {
    loop {
        clock::sleep_until(clock::now_ns() + TICK_NS).await;
        if !*shared.frozen.borrow() {
            let mut state = shared.state();
            state.store.sweep(clock::now_ns());
            state.push();
        }
    }
}

async fn serve(mut stream: TcpStream, conn: ConnId, shared: &Arc<Shared>) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    let (out, mut replies) = mpsc::unbounded_channel();
    let (open, mut closed) = oneshot::channel();
    let mut open = Some(open);
    let read = async {
        while let Some(line) = lines.next_line().await? {
            let Request { id, ask } = serde_json::from_str(&line)?;
            if let Ask::Control(control) = ask {
                shared.control(control);
                let _ = out.send(Reply::Answer { id, answer: Answer::Done });
                continue;
            }
            // Waiting fails only if the sender is gone, and it is in `shared`.
            let _ = shared.frozen.subscribe().wait_for(|frozen| !frozen).await;
            if let (Ask::Hello { subject }, Some(open)) = (&ask, open.take()) {
                let peer = Peer { subject: *subject, out: out.clone(), _open: open };
                if !shared.welcome(conn, peer) {
                    break;
                }
            }
            shared.receive(conn, id, ask, &out);
        }
        io::Result::Ok(())
    };
    let write = async {
        while let Some(reply) = replies.recv().await {
            let mut line = serde_json::to_string(&reply)?;
            line.push('\n');
            writer.write_all(line.as_bytes()).await?;
        }
        io::Result::Ok(())
    };
    tokio::select! {
        done = read => done,
        done = write => done,
        _ = &mut closed => Ok(()),
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a peer on, unless its kind is cut off.
    fn welcome(&self, conn: ConnId, peer: Peer) -> bool {
        let mut state = self.state();
        let welcome = !(state.cut && peer.subject);
        if welcome {
            state.peers.insert(conn, peer);
        }
        welcome
    }

    /// Carries a request out and answers it, with the fault that is armed for it.
    fn receive(self: &Arc<Self>, conn: ConnId, id: u64, ask: Ask, out: &mpsc::UnboundedSender<Reply>) {
        let mut state = self.state();
        let subject = state.peers.get(&conn).is_some_and(|peer| peer.subject);
        let fault = if subject { state.armed.take(&ask) } else { None };
        if let Some(Fault::Delay(by)) = fault {
            let out = out.clone();
            return self.later(by, move |shared| {
                let answer = shared.state().carry_out(conn, ask);
                let _ = out.send(Reply::Answer { id, answer });
            });
        }
        let answer = state.carry_out(conn, ask.clone());
        if fault != Some(Fault::DropReply) {
            // The peer may have gone: its request was carried out all the same.
            let _ = out.send(Reply::Answer { id, answer });
        }
        if let Some(Fault::Repeat(after)) = fault {
            self.later(after, move |shared| drop(shared.state().carry_out(conn, ask)));
        }
    }

    fn later(self: &Arc<Self>, by: Duration, work: impl FnOnce(&Self) + Send + 'static) {
        let (shared, at) = (self.clone(), clock::now_ns() + by.as_nanos() as u64);
        self.runtime.spawn(async move {
            clock::sleep_until(at).await;
            work(&shared);
        });
    }

    fn control(&self, control: Control) {
        let now = clock::now_ns();
        let mut state = self.state();
        match control {
            Control::Arm(kind, fault) => state.armed.arm(kind, fault),
            Control::Freeze => drop(self.frozen.send_replace(true)),
            Control::Thaw => drop(self.frozen.send_replace(false)),
            Control::Cut => {
                state.cut = true;
                state.peers.retain(|_, peer| !peer.subject);
            }
            Control::Heal => state.cut = false,
            Control::ExpireHolder(lock) => state.store.expire(now, &lock, true),
            Control::ExpireWaiters(lock) => state.store.expire(now, &lock, false),
            Control::Delete(lock) => state.store.delete(&lock),
            Control::Restart => state.peers.clear(),
            Control::Wipe => {
                state.peers.clear();
                state.store = Store::new(new_lineage());
            }
        }
        state.push();
        state.save();
    }
}

impl State {
    fn carry_out(&mut self, conn: ConnId, ask: Ask) -> Answer {
        let answer = self.store.handle(clock::now_ns(), conn, ask);
        self.push();
        self.save();
        answer
    }

    fn push(&mut self) {
        for (conn, push) in self.store.take_pushes() {
            if let Some(peer) = self.peers.get(&conn) {
                let _ = peer.out.send(Reply::Push(push));
            }
        }
    }

    /// Before an answer goes out, what it says is in the file.
    fn save(&self) {
        if let Some(file) = &self.file {
            let saved = serde_json::to_vec(&self.store).expect("the store has only text keys");
            let draft = file.with_extension("draft");
            fs::write(&draft, saved)
                .and_then(|()| fs::rename(&draft, file))
                .expect("the state file can be written");
        }
    }
}
