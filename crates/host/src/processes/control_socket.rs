//! The socket over which a process and those that it starts talk: one JSON text for each message, and
//! descriptors with some of them.
//!
//! The process that starts them has one end; the other end is their standard input. Several may share theirs: each
//! message goes to one of them, whichever comes first. What is started this way inherits nothing
//! else, so nothing needs a name that could be left behind.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;
use super::streams::is_ready_within;

/// Longest message: an interval or a report, far shorter.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Most descriptors that Linux lets one message carry.
const FDS_MAX: usize = 253;

/// One end of the socket.
#[derive(Debug)]
pub struct ControlSocket(OwnedFd);

impl ControlSocket {
    /// Both ends: ours, and that which becomes another process's standard input.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn pair() -> Result<(Self, OwnedFd), Error> {
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, flags, None).map_err(Error::io("socketpair"))?;
        Ok((Self(ours), theirs))
    }

    /// One end, as [`ControlSocket::pair`] gives the other.
    #[must_use]
    pub fn of(end: OwnedFd) -> Self {
        Self(end)
    }

    /// The end that this process was started with.
    ///
    /// # Errors
    /// Standard input is closed.
    pub fn on_stdin() -> Result<Self, Error> {
        let own = std::io::stdin().as_fd().try_clone_to_owned();
        own.map(Self).map_err(|cause| Error::Io { call: "fcntl", cause })
    }

    /// Sends a message, with descriptors that the other side then has as well.
    ///
    /// # Errors
    /// The other side is gone.
    ///
    /// # Panics
    /// With more descriptors than a message can carry, 253.
    pub fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let text = serde_json::to_vec(message).expect("plain data");
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "at most {FDS_MAX}");
        }
        loop {
            match sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("sendmsg")(errno)),
            }
        }
    }

    /// Sends nothing more: the other side finds the end.
    pub fn hang_up(&self) {
        // One whose other side is gone has hung up already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
    }

    /// Whether no process has the other side any more.
    #[must_use]
    pub fn is_closed_by_peer(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Waits for the next message; none when the other side is gone.
    ///
    /// # Errors
    /// [`Error::Protocol`]: what came is not such a message.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<Option<(T, Vec<OwnedFd>)>, Error> {
        let mut text = vec![0; MESSAGE_BYTES_MAX];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut text)];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                // All processes on the other side have ended with something unread.
                Err(Errno::CONNRESET) => return Ok(None),
                Err(errno) => return Err(Error::io("recvmsg")(errno)),
            }
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sent) = message {
                fds.extend(sent);
            }
        }
        let message = serde_json::from_slice(&text[..received.bytes]);
        let message = message.map_err(|error| Error::Protocol(error.to_string()))?;
        Ok(Some((message, fds)))
    }

    /// The next message, waited for at most `time`; none when the time is over or the other side is
    /// gone.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when the wait is interrupted.
    pub fn receive_within<T: DeserializeOwned>(
        &self,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<T>, Error> {
        if is_ready_within(&self.0, time, is_interrupted)? {
            Ok(self.receive()?.map(|(message, _)| message))
        } else {
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_ends_and_carry_descriptors() {
        let (ours, theirs) = ControlSocket::pair().expect("a pair");
        let theirs = ControlSocket::of(theirs);
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        ours.send(&"first", &[write.as_fd()]).expect("sent");
        ours.send(&"second", &[]).expect("sent");
        drop(write);
        let (text, fds) = theirs.receive::<String>().expect("received").expect("a message");
        assert_eq!((text.as_str(), fds.len()), ("first", 1));
        rustix::io::write(&fds[0], b"x").expect("it is the pipe's end");
        assert_eq!(rustix::io::read(&read, &mut [0; 2]), Ok(1));
        let second = theirs.receive_within::<String>(Duration::from_secs(20), &|| false);
        assert_eq!(second.expect("received").as_deref(), Some("second"));
        assert!(!theirs.is_closed_by_peer());
        drop(ours);
        // Waits: a child that another test forks has our end too until it executes its program.
        assert!(theirs.receive::<String>().expect("an end").is_none());
        assert!(theirs.is_closed_by_peer());
    }

    #[test]
    fn waiting_ends_with_its_time_or_an_interruption() {
        let (ours, _theirs) = ControlSocket::pair().expect("a pair");
        let nothing = ours.receive_within::<String>(Duration::from_millis(1), &|| false);
        assert_eq!(nothing.expect("waited"), None);
        let interrupted = ours.receive_within::<String>(Duration::from_secs(600), &|| true);
        assert!(matches!(interrupted, Err(Error::Interrupted)));
    }
}
