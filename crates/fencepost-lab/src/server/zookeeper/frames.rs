//! A proxy that understands ZooKeeper's frames, so that a fault can hit one request.
//!
//! A reply can only be lost together with the connection: replies come in the order of the requests, and a gap would be
//! found out at once. So "lost" and "late" both end the connection on the client's side.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::client::{read_frame, write_frame};

/// The requests that a fault can be aimed at, by the number of `ZooDefs.OpCode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make a node.
    Create = 15,
    /// Delete one.
    Delete = 2,
    /// Several at once, such as what renews a session.
    Multi = 14,
    /// Read one, such as the one before a waiter.
    GetData = 4,
    /// Is there one.
    Exists = 3,
    /// Who stands in line.
    GetChildren = 8,
    /// Let the server catch up.
    Sync = 9,
    /// End the session.
    Close = -11,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not arrive, and the connection ends.
    LoseRequest,
    /// It is carried out; the connection ends before the reply is there.
    LoseReply,
    /// The connection ends on the client's side. The request goes on its way this much later, if the server still
    /// listens there.
    HoldBack(Duration),
    /// It arrives once more this much later, which no network does to TCP.
    Repeat(Duration),
}

/// A running proxy. It accepts nobody any more when dropped, and its connections end.
#[derive(Debug)]
pub struct Frames {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    faults: Mutex<Vec<(Op, Fault)>>,
    /// Requests that passed.
    passed: AtomicU64,
    is_over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Frames {
    /// Starts to pass connections on to `upstream`.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            faults: Mutex::default(),
            passed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let shared = accepting.clone();
                // A server that is gone is an end of the connection to the client.
                thread::spawn(move || shared.serve(client));
            }
        });
        Ok(Self { addr, shared })
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The next request of this kind meets this fault; faults of one kind come in the order of arming.
    pub fn arm(&self, op: Op, fault: Fault) {
        lock(&self.shared.faults).push((op, fault));
    }

    /// Whether every fault has met its request.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        lock(&self.shared.faults).is_empty()
    }

    /// How many requests have passed.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for stream in lock(&self.shared.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.addr);
    }
}

impl Shared {
    fn serve(self: Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.upstream) else { return };
        let pair = || Ok::<_, io::Error>((client.try_clone()?, server.try_clone()?));
        let (Ok((client_out, server_in)), Ok(both)) = (pair(), pair()) else { return };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
        }
        lock(&self.streams).extend([both.0, both.1]);
        // The reply to swallow, with all that follow; and the one of which there is a second.
        let (lost, twice) = (Arc::new(AtomicI32::new(i32::MIN)), Arc::new(AtomicI32::new(i32::MIN)));
        let (lost_there, twice_there) = (lost.clone(), twice.clone());
        thread::spawn(move || reply(server_in, client_out, &lost_there, &twice_there));
        let _ = self.request(client, server, &lost, &twice);
    }

    fn request(
        &self,
        mut client: TcpStream,
        mut server: TcpStream,
        lost: &AtomicI32,
        twice: &AtomicI32,
    ) -> io::Result<()> {
        // The first frame opens the session.
        let hello = read_frame(&mut client)?;
        write_frame(&mut server, &hello)?;
        loop {
            let frame = match read_frame(&mut client) {
                Ok(frame) => frame,
                Err(error) => {
                    server.shutdown(Shutdown::Both)?;
                    return Err(error);
                }
            };
            let xid = i32::from_be_bytes(frame[..4].try_into().expect("four bytes"));
            let kind = i32::from_be_bytes(frame[4..8].try_into().expect("four bytes"));
            match self.take(kind) {
                None => {
                    self.passed.fetch_add(1, Ordering::Relaxed);
                    write_frame(&mut server, &frame)?;
                }
                Some(Fault::LoseRequest) => {
                    client.shutdown(Shutdown::Both)?;
                    return server.shutdown(Shutdown::Both);
                }
                Some(Fault::LoseReply) => {
                    lost.store(xid, Ordering::SeqCst);
                    write_frame(&mut server, &frame)?;
                }
                Some(Fault::HoldBack(by)) => {
                    client.shutdown(Shutdown::Both)?;
                    thread::sleep(by);
                    let _ = write_frame(&mut server, &frame);
                    thread::sleep(Duration::from_millis(200));
                    return server.shutdown(Shutdown::Both);
                }
                Some(Fault::Repeat(after)) => {
                    write_frame(&mut server, &frame)?;
                    twice.store(xid, Ordering::SeqCst);
                    let mut server = server.try_clone()?;
                    thread::spawn(move || {
                        thread::sleep(after);
                        let _ = write_frame(&mut server, &frame);
                    });
                }
            }
        }
    }

    fn take(&self, kind: i32) -> Option<Fault> {
        let mut faults = lock(&self.faults);
        let hit = faults.iter().position(|(op, _)| *op as i32 == kind)?;
        Some(faults.remove(hit).1)
    }
}

fn reply(mut server: TcpStream, mut client: TcpStream, lost: &AtomicI32, twice: &AtomicI32) {
    let mut was_told = false;
    while let Ok(frame) = read_frame(&mut server) {
        let xid = frame.first_chunk::<4>().map_or(i32::MIN + 1, |xid| i32::from_be_bytes(*xid));
        if xid == lost.load(Ordering::SeqCst) {
            let _ = server.shutdown(Shutdown::Both);
            break;
        }
        if xid == twice.load(Ordering::SeqCst) && std::mem::replace(&mut was_told, true) {
            continue;
        }
        if write_frame(&mut client, &frame).is_err() {
            break;
        }
    }
    // The other direction may wait for a request that is held back, on a client that is gone.
    let _ = client.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
