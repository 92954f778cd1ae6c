//! A TCP proxy between a client and a server, which freezes, delays, swallows or cuts what passes.
//!
//! It runs on a thread and a runtime of its own, so tests may block. Faults hit bytes, not messages: to lose one
//! request of a multiplexed connection without misaligning the rest, inject the fault in the driver's transport.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as reply};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::clock;
use crate::server::Port;

/// The most that is read at once.
const CHUNK: usize = 64 * 1024;

/// Chunks read ahead of a slow direction. What comes after them waits in the sender's own socket.
const READ_AHEAD: usize = 16;

/// Which way bytes flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What happens to the bytes, and to the end of a stream, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They pass.
    Pass,
    /// They wait, as on a frozen network. When the mode changes, it applies to them too.
    Hold,
    /// They pass this much later, in order. About a megabyte can be on its way.
    Delay(Duration),
    /// They vanish, while the connection looks alive. Cut it afterwards: it has a gap.
    Swallow,
    /// Each connection passes this many bytes more, and is then closed.
    CloseAfter(u64),
}

/// A running proxy. It stops when dropped, and its connections close.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    /// Taken by drop, which ends the thread.
    commands: Option<mpsc::UnboundedSender<Command>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Accept connections from now on, or close them all and refuse more.
#[derive(Debug)]
struct Command {
    accept: bool,
    done: reply::Sender<io::Result<()>>,
}

/// What the connections look at and count.
#[derive(Debug)]
struct Shared {
    to_server: Lane,
    to_client: Lane,
    connections: AtomicU64,
    /// Where new connections lead.
    upstream: Mutex<SocketAddr>,
}

#[derive(Debug)]
struct Lane {
    mode: watch::Sender<Mode>,
    bytes: AtomicU64,
}

impl Default for Lane {
    fn default() -> Self {
        Self { mode: watch::Sender::new(Mode::Pass), bytes: AtomicU64::new(0) }
    }
}

impl Proxy {
    /// Starts to pass connections on to `upstream`, which need not listen yet.
    ///
    /// # Errors
    ///
    /// When no port or no thread can be had.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        let port = Port::free()?;
        let shared = Arc::new(Shared {
            to_server: Lane::default(),
            to_client: Lane::default(),
            connections: AtomicU64::new(0),
            upstream: Mutex::new(upstream),
        });
        let (commands, inbox) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(async { listen(port.addr()) })?;
        let run = run(listener, inbox, Arc::clone(&shared));
        let thread =
            std::thread::Builder::new().name("lab-proxy".into()).spawn(move || runtime.block_on(run))?;
        Ok(Self { port, commands: Some(commands), shared, thread: Some(thread) })
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Switches one direction. Bytes sent after this returns obey the new mode.
    pub fn set(&self, direction: Direction, mode: Mode) {
        self.lane(direction).mode.send_replace(mode);
    }

    /// Switches both directions.
    pub fn set_both(&self, mode: Mode) {
        self.set(Direction::ToServer, mode);
        self.set(Direction::ToClient, mode);
    }

    /// Closes every connection, and refuses new ones until [`Proxy::heal`]. Both are true when this returns.
    pub fn cut(&self) {
        self.accept(false).expect("closing cannot fail");
    }

    /// Accepts connections again, at the same address.
    ///
    /// # Errors
    ///
    /// Whatever listening reports. The port was not free for others during the cut.
    pub fn heal(&self) -> io::Result<()> {
        self.accept(true)
    }

    /// Leads new connections elsewhere, as an address does that moves with a failover. Those that exist stay.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// How many bytes were passed on in one direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.lane(direction).bytes.load(Ordering::Relaxed)
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::ToServer => &self.shared.to_server,
            Direction::ToClient => &self.shared.to_client,
        }
    }

    fn accept(&self, accept: bool) -> io::Result<()> {
        let (done, answer) = reply::channel();
        let commands = self.commands.as_ref().expect("only drop takes it");
        commands.send(Command { accept, done }).expect("the thread runs until drop");
        answer.recv().expect("the thread answers every command")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic over there was already printed, and this may run while another one unwinds.
            let _ = thread.join();
        }
    }
}

/// Connections are refused while nobody listens: the port is only bound then, by its [`Port`].
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(1024)
}

async fn run(listener: TcpListener, mut commands: mpsc::UnboundedReceiver<Command>, shared: Arc<Shared>) {
    let addr = listener.local_addr();
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => match command {
                None => return,
                Some(Command { accept: false, done }) => {
                    listener = None;
                    connections.shutdown().await;
                    let _ = done.send(Ok(()));
                }
                Some(Command { accept: true, done }) => {
                    let healed = match (&listener, &addr) {
                        (None, Ok(addr)) => listen(*addr).map(|healed| listener = Some(healed)),
                        _ => Ok(()),
                    };
                    let _ = done.send(healed);
                }
            },
            accepted = accepted => if let Ok((client, _)) = accepted {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(serve(client, Arc::clone(&shared)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, until both of its directions have ended or one of them closes it.
async fn serve(client: TcpStream, shared: Arc<Shared>) -> Result<(), Closed> {
    let upstream = *shared.upstream.lock().unwrap_or_else(PoisonError::into_inner);
    let server = TcpStream::connect(upstream).await.map_err(|_| Closed)?;
    client.set_nodelay(true).and(server.set_nodelay(true)).map_err(|_| Closed)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = pump(from_client, to_server, &shared.to_server);
    let back = pump(from_server, to_client, &shared.to_client);
    tokio::try_join!(there, back).map(drop)
}

/// Both directions of the connection are over.
struct Closed;

/// Some bytes and when they came. No bytes are the end of the stream, which a mode treats like any others.
struct Chunk {
    bytes: Vec<u8>,
    passed: usize,
    at_ns: u64,
}

async fn pump(input: OwnedReadHalf, output: OwnedWriteHalf, lane: &Lane) -> Result<(), Closed> {
    let (queue, chunks) = mpsc::channel(READ_AHEAD);
    let read = async {
        read(input, queue).await;
        Ok(())
    };
    tokio::try_join!(read, forward(chunks, output, lane)).map(drop)
}

/// Reads until the end. A connection that breaks ends like one that is closed, so that a hold hides both.
async fn read(mut input: OwnedReadHalf, queue: mpsc::Sender<Chunk>) {
    loop {
        let mut bytes = Vec::with_capacity(CHUNK);
        let read = input.read_buf(&mut bytes).await.unwrap_or(0);
        let sent = queue.send(Chunk { bytes, passed: 0, at_ns: clock::now_ns() }).await;
        if read == 0 || sent.is_err() {
            return;
        }
    }
}

async fn forward(
    mut chunks: mpsc::Receiver<Chunk>,
    mut output: OwnedWriteHalf,
    lane: &Lane,
) -> Result<(), Closed> {
    let mut modes = lane.mode.subscribe();
    let mut next = None;
    loop {
        let mode = *modes.borrow_and_update();
        tokio::select! {
            biased;
            // Every await in `pass` may be dropped: what is not yet written stays in `next`.
            _ = modes.changed() => {}
            done = pass(mode, &mut next, &mut chunks, &mut output, &lane.bytes) => return done,
        }
    }
}

/// Treats the bytes as one mode says, until the direction ends.
async fn pass(
    mode: Mode,
    next: &mut Option<Chunk>,
    chunks: &mut mpsc::Receiver<Chunk>,
    output: &mut OwnedWriteHalf,
    count: &AtomicU64,
) -> Result<(), Closed> {
    let mut left = if let Mode::CloseAfter(bytes) = mode { bytes } else { u64::MAX };
    loop {
        match mode {
            Mode::Hold => pending().await,
            Mode::CloseAfter(_) if left == 0 => return Err(Closed),
            _ => {}
        }
        if next.is_none() {
            *next = chunks.recv().await;
        }
        let chunk = match next {
            Some(_) if mode == Mode::Swallow => {
                *next = None;
                continue;
            }
            Some(chunk) => chunk,
            // The end of the stream was swallowed: the connection stays as it is.
            None => pending().await,
        };
        if let Mode::Delay(by) = mode {
            clock::sleep_until(chunk.at_ns + by.as_nanos() as u64).await;
        }
        let bytes = &chunk.bytes[chunk.passed..];
        let most = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        // Dropping the writing half tells the receiver that the stream has ended.
        let Ok(written @ 1..) = output.write(&bytes[..most]).await else { return Ok(()) };
        count.fetch_add(written as u64, Ordering::Relaxed);
        left -= written as u64;
        chunk.passed += written;
        if chunk.passed == chunk.bytes.len() {
            *next = None;
        }
    }
}
