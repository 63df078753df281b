//! The socket over which the measuring process and those it starts talk: one JSON text for each
//! message, and descriptors with some of them.
//!
//! The measuring process has one end; the other end is the standard input of what it starts. All
//! workers share theirs: each message goes to one of them, whichever comes first. What is started
//! this way inherits nothing else, so no queue needs a name that could be left behind.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::MeasureError;

/// Longest message: an interval or a report, far shorter.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Most descriptors that Linux lets one message carry.
const FDS_MAX: usize = 253;
/// How long an interruption from outside may go unnoticed.
const SLICE: Duration = Duration::from_millis(50);

/// One end of the socket.
#[derive(Debug)]
pub(super) struct Desk(OwnedFd);

impl Desk {
    /// Both ends: ours, and that which becomes somebody's standard input.
    pub(super) fn pair() -> Result<(Self, OwnedFd), MeasureError> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)
            .map_err(MeasureError::io("socketpair"))?;
        Ok((Self(ours), theirs))
    }

    /// The end that this process was started with.
    pub(super) fn on_stdin() -> Result<Self, MeasureError> {
        let own = std::io::stdin().as_fd().try_clone_to_owned();
        own.map(Self).map_err(|cause| MeasureError::Io { call: "fcntl", cause })
    }

    /// Sends a message, with descriptors that the other side then has as well.
    pub(super) fn send(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), MeasureError> {
        let text = serde_json::to_vec(message).expect("plain data");
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "the space is for so many");
        }
        loop {
            match sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(MeasureError::io("sendmsg")(errno)),
            }
        }
    }

    /// Says nothing more: the other side finds the end.
    pub(super) fn hang_up(&self) {
        // One whose other side is gone has hung up already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
    }

    /// Whether nobody holds the other side any more.
    pub(super) fn is_deserted(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Waits for the next message; none when the other side is gone.
    pub(super) fn receive<T: DeserializeOwned>(
        &self,
    ) -> Result<Option<(T, Vec<OwnedFd>)>, MeasureError> {
        let mut text = vec![0; MESSAGE_BYTES_MAX];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut text)];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                // Everybody on the other side has ended with something unread.
                Err(Errno::CONNRESET) => return Ok(None),
                Err(errno) => return Err(MeasureError::io("recvmsg")(errno)),
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
        let message = message.map_err(|error| MeasureError::Protocol(error.to_string()))?;
        Ok(Some((message, fds)))
    }

    /// The next message, waited for at most `time`; none when the time is over or the other side is
    /// gone.
    ///
    /// # Errors
    /// [`MeasureError::Interrupted`] when the run is interrupted meanwhile.
    pub(super) fn receive_within<T: DeserializeOwned>(
        &self,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<T>, MeasureError> {
        let start = Instant::now();
        loop {
            if is_interrupted() {
                return Err(MeasureError::Interrupted);
            }
            let left = time.saturating_sub(start.elapsed());
            if self.has_message_within(left.min(SLICE))? {
                return Ok(self.receive()?.map(|(message, _)| message));
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn has_message_within(&self, time: Duration) -> Result<bool, MeasureError> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let time = Timespec::try_from(time).expect("a slice of a second");
        match poll(&mut fds, Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(MeasureError::io("poll")(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_ends_and_carry_descriptors() {
        let (ours, theirs) = Desk::pair().expect("a pair");
        let theirs = Desk(theirs);
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
        assert!(!theirs.is_deserted());
        drop(ours);
        assert!(theirs.is_deserted());
        assert!(theirs.receive::<String>().expect("an end").is_none());
    }

    #[test]
    fn waiting_ends_with_its_time_or_an_interruption() {
        let (ours, _theirs) = Desk::pair().expect("a pair");
        let nothing = ours.receive_within::<String>(Duration::from_millis(1), &|| false);
        assert_eq!(nothing.expect("waited"), None);
        let interrupted = ours.receive_within::<String>(Duration::from_secs(600), &|| true);
        assert!(matches!(interrupted, Err(MeasureError::Interrupted)));
    }
}
