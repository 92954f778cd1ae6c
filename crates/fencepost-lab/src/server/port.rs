//! Ports that nobody else can take between choosing them and listening on them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A loopback port that is reserved until this value is dropped.
///
/// A socket stays bound to it, without listening: connections are refused, the kernel gives the port to nobody who
/// asks for any, and a server that sets `SO_REUSEADDR`, as all of ours do, can listen on it. Keep the value for as
/// long as the server may be restarted.
#[derive(Debug)]
pub struct Port {
    addr: SocketAddr,
    _reserved: TcpSocket,
}

impl Port {
    /// Reserves a port.
    ///
    /// # Errors
    ///
    /// When the kernel has none left.
    pub fn free() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { addr: socket.local_addr()?, _reserved: socket })
    }

    /// The loopback address with this port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.addr.port()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_reserved_port_refuses_until_its_server_listens() {
        let port = Port::free().unwrap();
        assert_eq!(TcpStream::connect(port.addr()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        for _restart in 0..2 {
            let server = TcpListener::bind(port.addr()).unwrap();
            TcpStream::connect(port.addr()).unwrap();
            drop(server);
            assert_eq!(TcpStream::connect(port.addr()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
    }

    #[test]
    fn no_two_ports_are_the_same() {
        let ports: Vec<Port> = (0..200).map(|_| Port::free().unwrap()).collect();
        assert_eq!(ports.iter().map(Port::number).collect::<HashSet<_>>().len(), 200);
    }
}
