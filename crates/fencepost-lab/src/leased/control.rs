//! The harness's side of the control requests: the same for a server in this process and for one of its own.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
};

use super::wire::{Ask, Control, Request};

/// Controls a server at this address.
#[derive(Clone, Copy, Debug)]
pub struct Remote(SocketAddr);

impl Remote {
    /// A remote control for the server that listens at `addr`.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self(addr)
    }

    /// Sends one control request and waits until it is carried out. Blocks; the server answers also while frozen.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or goes away.
    pub fn send(&self, control: Control) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.0)?;
        let mut line = serde_json::to_string(&Request { id: 0, ask: Ask::Control(control) })?;
        line.push('\n');
        stream.write_all(line.as_bytes())?;
        match BufReader::new(stream).read_line(&mut String::new())? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
