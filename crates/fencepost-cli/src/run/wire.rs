//! Messages between two of our own processes: JSON records over a socket pair that keeps their bounds.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recv, recvmsg, sendmsg,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One end of a connection.
pub(crate) struct Channel(OwnedFd);

/// What [`Channel::receive`] found.
pub(crate) enum Received<T> {
    Message(T, Option<OwnedFd>),
    Nothing,
    /// Every process that held the other end is gone.
    End,
}

impl Channel {
    /// A connected pair, which no executed program inherits.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self(one), Self(other)))
    }

    /// Sends a record, and a descriptor with it. Never waits: a peer that does not read must not hold us up.
    pub(crate) fn send<T: Serialize>(&self, message: &T, passed: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let raw = passed.map(|fd| [fd.as_raw_fd()]);
        let rights = raw.as_ref().map(|fd| [ControlMessage::ScmRights(fd)]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let control = rights.as_ref().map_or(&[][..], |rights| &rights[..]);
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&bytes)], control, flags, None)?;
        Ok(())
    }

    /// Takes the next record if there is one.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        let fd = self.0.as_raw_fd();
        // A look tells how long the record is, and mostly that there is none.
        let look = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
        let mut bytes = match recv(fd, &mut [], look) {
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Received::Nothing),
            // The peer ended without reading all of ours. That is told once, ahead of what it had still sent.
            Err(Errno::ECONNRESET) => return self.receive(),
            Ok(0) => return Ok(Received::End),
            length => vec![0; length?],
        };
        let mut space = cmsg_space!([i32; 1]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let received = match recvmsg::<()>(fd, &mut parts, Some(&mut space), flags) {
            Err(Errno::ECONNRESET) => return self.receive(),
            received => received?,
        };
        let passed = received.cmsgs()?.find_map(owned);
        Ok(Received::Message(serde_json::from_slice(&bytes)?, passed))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[allow(unsafe_code, reason = "nix hands received descriptors over as plain numbers")]
fn owned(control: ControlMessageOwned) -> Option<OwnedFd> {
    let ControlMessageOwned::ScmRights(fds) = control else { return None };
    // SAFETY: the kernel has just installed this descriptor for us, and nobody else knows of it.
    fds.first().map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_peer_that_read_nothing_are_heard() {
        let (ours, theirs) = Channel::pair().unwrap();
        ours.send(&1, None).unwrap();
        theirs.send(&2, None).unwrap();
        drop(theirs);
        assert!(matches!(ours.receive::<i32>().unwrap(), Received::Message(2, None)));
        assert!(matches!(ours.receive::<i32>().unwrap(), Received::End));
        assert!(ours.send(&3, None).is_err());
    }
}
