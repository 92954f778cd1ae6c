//! The floor: a blocking socket, and the bytes of one command.

use std::{
    future::ready,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Mutex,
};

use super::Candidate;
use crate::{
    Outcome,
    server::{SCRIPT, hash},
};

pub(super) struct Bare(Mutex<TcpStream>);

impl Bare {
    pub(super) fn connect(addr: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        Ok(Self(Mutex::new(stream)))
    }

    pub(super) fn candidate(self, name: &'static str) -> Candidate {
        let hash = hash(SCRIPT);
        let call = move |key: &'static str| self.call(&hash, key);
        Candidate { name, call: Box::new(move |key| Box::pin(ready(call(key)))), batch: None }
    }

    fn call(&self, hash: &str, key: &str) -> Outcome<i64> {
        let mut stream = self.0.lock().expect("no call panics");
        let parts = ["EVALSHA", hash, "1", key].map(|part| format!("${}\r\n{part}\r\n", part.len()));
        stream.write_all(format!("*{}\r\n{}", parts.len(), parts.concat()).as_bytes())?;
        let mut reply = [0; 64];
        let read = stream.read(&mut reply)?;
        let number = std::str::from_utf8(&reply[..read])?.trim_end().strip_prefix(':');
        Ok(number.ok_or("the server did not answer with a number")?.parse()?)
    }
}
