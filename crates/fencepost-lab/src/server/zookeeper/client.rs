//! A client of a few words, for those who look and break: it shares no code with the driver, and blocks.
//!
//! Source: `zookeeper.jute` of Apache ZooKeeper.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What a server refused, by the number of `KeeperException.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub i32);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zookeeper refused: code={}", self.0)
    }
}

impl std::error::Error for Refused {}

/// Who may do something with a node: rights (read 1, write 2, create 4, delete 8, admin 16), scheme and id.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a>(pub i32, pub &'a str, pub &'a str);

/// Everything, for everybody.
pub const OPEN: &[Access<'static>] = &[Access(31, "world", "anyone")];

/// What is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What is in it.
    pub data: Vec<u8>,
    /// The number of the change that made it.
    pub czxid: i64,
    /// The session that it is bound to, or 0.
    pub owner: i64,
}

/// A session with a connection of its own; what hangs on it goes when it is closed.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    session: i64,
    xid: i32,
}

impl Client {
    /// Opens a session.
    ///
    /// # Errors
    ///
    /// When nobody answers as a server does.
    pub fn connect(addr: SocketAddr, timeout: Duration) -> io::Result<Self> {
        Self::resume(addr, timeout, 0, [0; 16])
    }

    fn resume(addr: SocketAddr, timeout: Duration, session: i64, password: [u8; 16]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_nodelay(true)?;
        let mut hello = Vec::new();
        hello.extend(0i32.to_be_bytes());
        hello.extend(0i64.to_be_bytes());
        hello.extend((timeout.as_millis() as i32).to_be_bytes());
        hello.extend(session.to_be_bytes());
        put(&mut hello, &password);
        hello.push(0);
        write_frame(&mut stream, &hello)?;
        let answer = read_frame(&mut stream)?;
        let session = i64::from_be_bytes(answer[8..16].try_into().expect("eight bytes"));
        if session == 0 {
            return Err(io::Error::other("the session is over"));
        }
        Ok(Self { stream, session, xid: 0 })
    }

    /// Ends somebody else's session as its own owner could: the server makes a session's password of its number.
    ///
    /// Source: `ZooKeeperServer.generatePasswd`.
    ///
    /// # Errors
    ///
    /// When nobody answers. A session that is over already is none.
    pub fn end_session(addr: SocketAddr, session: i64) -> io::Result<()> {
        // Its owner comes back at once, and takes the session from us. Ours ends it if it was quick enough.
        for _ in 0..100 {
            match Self::resume(addr, Duration::from_secs(10), session, password(session)) {
                Err(error) if error.to_string().contains("is over") => return Ok(()),
                Err(_) => {}
                Ok(mut client) => {
                    let _ = client.ask(-11, &[]);
                }
            }
        }
        Err(io::Error::other("the session does not end"))
    }

    /// The number of this session.
    #[must_use]
    pub fn session(&self) -> i64 {
        self.session
    }

    /// Shows a user and a password to the `digest` scheme.
    ///
    /// # Errors
    ///
    /// When the server is gone.
    pub fn authenticate(&mut self, user: &str, password: &str) -> io::Result<()> {
        let mut body = 0i32.to_be_bytes().to_vec();
        put(&mut body, b"digest");
        put(&mut body, format!("{user}:{password}").as_bytes());
        self.ask_as(-4, 100, &body).map(drop)
    }

    /// Makes a node and answers its path. `flags` are 0, 1 for one that is bound to the session, 2 for a number behind
    /// its name, 3 for both.
    ///
    /// # Errors
    ///
    /// [`Refused`], or when the server is gone.
    pub fn create(
        &mut self,
        path: &str,
        data: &[u8],
        access: &[Access<'_>],
        flags: i32,
    ) -> io::Result<String> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        put(&mut body, data);
        body.extend((access.len() as i32).to_be_bytes());
        for Access(rights, scheme, id) in access {
            body.extend(rights.to_be_bytes());
            put(&mut body, scheme.as_bytes());
            put(&mut body, id.as_bytes());
        }
        body.extend(flags.to_be_bytes());
        let answer = self.ask(1, &body)?;
        Ok(String::from_utf8_lossy(taken(&mut &answer[..])).into_owned())
    }

    /// Deletes a node.
    ///
    /// # Errors
    ///
    /// [`Refused`], or when the server is gone.
    pub fn delete(&mut self, path: &str) -> io::Result<()> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.extend((-1i32).to_be_bytes());
        self.ask(2, &body).map(drop)
    }

    /// Reads a node.
    ///
    /// # Errors
    ///
    /// [`Refused`], or when the server is gone.
    pub fn read(&mut self, path: &str) -> io::Result<Node> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.push(0);
        let answer = self.ask(4, &body)?;
        let mut rest = &answer[..];
        let data = taken(&mut rest).to_vec();
        let long = |at: usize| i64::from_be_bytes(rest[at..at + 8].try_into().expect("eight bytes"));
        Ok(Node { data, czxid: long(0), owner: long(44) })
    }

    /// The children of a node, after the server has caught up with its leader.
    ///
    /// # Errors
    ///
    /// [`Refused`], or when the server is gone.
    pub fn children(&mut self, path: &str) -> io::Result<Vec<String>> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        self.ask(9, &body)?;
        body.push(0);
        let answer = self.ask(8, &body)?;
        let mut rest = &answer[4..];
        let count = i32::from_be_bytes(answer[..4].try_into().expect("four bytes"));
        Ok((0..count).map(|_| String::from_utf8_lossy(taken(&mut rest)).into_owned()).collect())
    }

    /// Those in a lock's line, by the number behind their names, the holder first; none if there is no such lock.
    ///
    /// # Errors
    ///
    /// When the server is gone.
    pub fn line(&mut self, lock: &str) -> io::Result<Vec<String>> {
        let mut names = match self.children(lock) {
            Ok(names) => names,
            Err(error) if is_refused(&error, -101) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        names.retain(|name| name.contains("lock"));
        names.sort_by_key(|name| name[name.len() - 10..].to_owned());
        Ok(names.into_iter().map(|name| format!("{lock}/{name}")).collect())
    }

    fn ask(&mut self, kind: i32, body: &[u8]) -> io::Result<Vec<u8>> {
        self.xid += 1;
        self.ask_as(self.xid, kind, body)
    }

    fn ask_as(&mut self, xid: i32, kind: i32, body: &[u8]) -> io::Result<Vec<u8>> {
        let frame = [&xid.to_be_bytes(), &kind.to_be_bytes(), body].concat();
        write_frame(&mut self.stream, &frame)?;
        let answer = read_frame(&mut self.stream)?;
        let code = i32::from_be_bytes(answer[12..16].try_into().expect("four bytes"));
        if code == 0 { Ok(answer[16..].to_vec()) } else { Err(io::Error::other(Refused(code))) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The server may be gone, and with it the session.
        let _ = self.ask(-11, &[]);
    }
}

/// Whether a server refused with this number.
pub(super) fn is_refused(error: &io::Error, code: i32) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) == Some(&Refused(code))
}

pub(super) fn read_frame(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

pub(super) fn write_frame(stream: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let length = (frame.len() as u32).to_be_bytes();
    stream.write_all(&[&length, frame].concat())
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as i32).to_be_bytes());
    out.extend(bytes);
}

fn taken<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let length = i32::from_be_bytes(rest[..4].try_into().expect("four bytes")).max(0) as usize;
    let (taken, others) = rest[4..].split_at(length);
    *rest = others;
    taken
}

/// `java.util.Random` with the session's number and a constant of the server for its seed.
fn password(session: i64) -> [u8; 16] {
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((session ^ 0xB341_5C00) as u64 ^ 0x5_DEEC_E66D) & MASK;
    let mut bytes = [0; 16];
    for four in bytes.chunks_mut(4) {
        seed = seed.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & MASK;
        four.copy_from_slice(&((seed >> 16) as u32).to_le_bytes());
    }
    bytes
}
