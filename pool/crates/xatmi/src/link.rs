//! What a worker and the manager say to each other, and how: one JSON text in each message of a
//! seqpacket socket, with descriptors beside it where a message brings some.
//!
//! The manager makes the pair and the worker inherits its end; the control socket frames its
//! messages in the same way. No call goes over a link. Nothing here blocks except
//! [`PeerLink::send_within`] and [`PeerLink::receive_within`], which say so, and which the manager must
//! never use.
//!
//! ```text
//!  worker   Hello  Advertise ─────────────▶ makes the queues                    manager
//!           opens and watches them ◀──────── Advertised, or NotAdvertised
//!           Ready ──────────────────────────▶
//!           Pong ◀▶ Ping   Nudge, Stop ◀────
//!           Bye ────────────────────────────▶ (end of the link: the process ended)
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message: far beyond 48 services, far below a socket's buffer.
pub const MESSAGE_LEN_BYTES_MAX: usize = 64 * 1024;

/// The most descriptors beside one message; the longest list in use has two.
pub const DESCRIPTORS_MAX: usize = 4;

const DESCRIPTOR_SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// A service that a worker offers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Advert {
    /// The service's name, at most 30 bytes.
    pub name: String,
    /// The function behind it, for the tables.
    pub function: String,
}

/// What a worker says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToManager {
    /// The first message.
    Hello {
        /// The server id from the command line.
        srvid: u32,
        /// Its process id.
        pid: u32,
    },
    /// Make these queues; answered by [`ToWorker::Advertised`] or [`ToWorker::NotAdvertised`].
    Advertise {
        /// What is offered.
        services: Vec<Advert>,
    },
    /// The worker no longer reads this service's queue.
    Unadvertise {
        /// The service's name.
        name: String,
    },
    /// All queues are open and watched: requests are served from now on.
    Ready,
    /// The server's own start function said no, or the queues cannot be obtained: it ends.
    Refused { why: String },
    /// What keeps a worker that runs from its work, such as a broker that is not there; none when nothing does.
    Trouble {
        /// In words, for `ps`.
        why: Option<String>,
    },
    /// The answer to [`ToWorker::Ping`].
    Pong {
        /// The number of the ping.
        number: u64,
    },
    /// The worker watches no queue any more and ends now.
    Bye,
    /// The first message on the control socket of a manager that was started again, in place of
    /// [`ToManager::Hello`]; the memfd of the slots comes beside it.
    Adopt {
        /// The server id from the command line.
        srvid: u32,
        /// Its process id.
        pid: u32,
        /// The program's name.
        name: String,
        /// Its slot in the memory that comes along.
        slot: usize,
        /// What it offers.
        services: Vec<Advert>,
        /// Its number in the memory that requests are in, where they are.
        #[serde(default)]
        memory: Option<usize>,
    },
}

/// What the manager says to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// The queues of the last [`ToManager::Advertise`] stand.
    Advertised,
    /// They don't, none of them.
    NotAdvertised {
        /// The number of the TPE error.
        code: i32,
        why: String,
    },
    /// Answer with the number.
    Ping { number: u64 },
    /// Look once into each service's queue: a wake may have died with another worker.
    Nudge,
    /// Some clients ended: close what reply queues of theirs are still held open, as they count
    /// against the limit of their user. Sent seldom, once for many ends.
    Sweep,
    /// Logs: standard output and standard error come beside it where they are opened again.
    Log {
        /// The highest level that the program writes.
        level: Option<u8>,
    },
    /// End, after the call at hand.
    Stop,
    /// The answer to [`ToManager::Adopt`] where requests are in shared memory: the records of this manager
    /// come beside it.
    Adopted,
}

/// One look at a link.
#[derive(Debug)]
pub enum Received<M> {
    /// A message, and the descriptors that came beside it.
    Message(M, Vec<OwnedFd>),
    /// None now.
    Nothing,
    /// The other side is gone.
    Ended,
}

/// One end of a link.
#[derive(Debug)]
pub struct PeerLink {
    fd: OwnedFd,
}

impl PeerLink {
    /// Frames messages on `fd`, a connected seqpacket socket.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Two connected sockets, both closed on exec: the manager's end and the worker's.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let family = AddressFamily::UNIX;
        let kind = SocketType::SEQPACKET;
        Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
    }

    /// Sends `message` without waiting.
    ///
    /// # Errors
    /// `WouldBlock` when the other side does not read, `BrokenPipe` when it is gone, EMSGSIZE
    /// beyond [`MESSAGE_LEN_BYTES_MAX`].
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        self.send_with(message, &[])
    }

    /// Sends `message` with `descriptors` beside it, without waiting.
    ///
    /// # Errors
    /// As [`PeerLink::send`].
    ///
    /// # Panics
    /// With more than [`DESCRIPTORS_MAX`] descriptors.
    pub fn send_with(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        assert!(descriptors.len() <= DESCRIPTORS_MAX, "too many descriptors for one message");
        let text = serde_json::to_vec(message)?;
        if text.len() > MESSAGE_LEN_BYTES_MAX {
            return Err(rustix::io::Errno::MSGSIZE.into());
        }
        let mut space = [MaybeUninit::uninit(); DESCRIPTOR_SPACE];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = beside.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(fits, "the space is made for DESCRIPTORS_MAX");
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let text = [IoSlice::new(&text)];
        rustix::io::retry_on_intr(|| rustix::net::sendmsg(&self.fd, &text, &mut beside, flags))?;
        Ok(())
    }

    /// Sends `message`, and waits up to `timeout` for room. For workers only.
    ///
    /// # Errors
    /// As [`PeerLink::send`], `TimedOut` in place of `WouldBlock`.
    pub fn send_within(&self, message: &impl Serialize, timeout: Duration) -> io::Result<()> {
        let end = Instant::now() + timeout;
        loop {
            match self.send(message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, end)?;
                }
                done => return done,
            }
        }
    }

    /// Takes the next message if there is one.
    ///
    /// # Errors
    /// `InvalidData` for a message that is too long or is not what was expected, EMFILE for one whose
    /// descriptors exceed the limit of this process (both are taken away), else what `recvmsg(2)` gives.
    pub fn receive<M: DeserializeOwned>(&mut self) -> io::Result<Received<M>> {
        // Made for each look: a manager has thousands of links, and messages are few.
        let mut buffer = vec![0; MESSAGE_LEN_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); DESCRIPTOR_SPACE];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = rustix::io::retry_on_intr(|| {
            let parts = &mut [IoSliceMut::new(&mut buffer)];
            rustix::net::recvmsg(&self.fd, parts, &mut beside, flags)
        });
        let got = match got {
            Ok(got) => got,
            Err(rustix::io::Errno::AGAIN) => return Ok(Received::Nothing),
            Err(rustix::io::Errno::CONNRESET) => return Ok(Received::Ended),
            Err(errno) => return Err(errno.into()),
        };
        let descriptors = descriptors(&mut beside);
        if got.bytes == 0 {
            return Ok(Received::Ended);
        }
        if got.flags.contains(ReturnFlags::CTRUNC) && descriptors.len() < DESCRIPTORS_MAX {
            // The kernel cuts off what it cannot give a number.
            return Err(rustix::io::Errno::MFILE.into());
        }
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(invalid("longer than a link carries"));
        }
        let message = serde_json::from_slice(&buffer[..got.bytes]).map_err(invalid)?;
        Ok(Received::Message(message, descriptors))
    }

    /// Takes the next message, and waits for it up to `timeout`. For workers and commands only.
    ///
    /// # Errors
    /// As [`PeerLink::receive`], and `TimedOut`.
    pub fn receive_within<M: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> io::Result<Received<M>> {
        let end = Instant::now() + timeout;
        loop {
            match self.receive()? {
                Received::Nothing => self.wait(PollFlags::IN, end)?,
                received => return Ok(received),
            }
        }
    }

    fn wait(&self, what: PollFlags, end: Instant) -> io::Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = left.try_into().ok();
        match rustix::event::poll(&mut [PollFd::new(&self.fd, what)], left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for PeerLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn descriptors(beside: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            all.extend(some);
        }
    }
    all
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    fn links() -> (PeerLink, PeerLink) {
        let (one, other) = PeerLink::pair().expect("a pair");
        (PeerLink::new(one), PeerLink::new(other))
    }

    #[test]
    fn messages_arrive_whole_and_in_order_and_then_the_end() {
        let (worker, mut manager) = links();
        let services = vec![Advert { name: "BALANCE".into(), function: "balance".into() }];
        let sent = [
            ToManager::Hello { srvid: 1, pid: 2 },
            ToManager::Advertise { services },
            ToManager::Bye,
        ];
        for message in &sent {
            worker.send(message).expect("room");
        }
        drop(worker);
        for message in sent {
            let Received::Message(seen, _) = manager.receive::<ToManager>().expect("a message")
            else {
                panic!("{message:?} is missing")
            };
            assert_eq!(seen, message);
        }
        assert!(matches!(manager.receive::<ToManager>(), Ok(Received::Ended)));
        let gone = manager.send(&ToWorker::Stop).expect_err("the other end is closed");
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_descriptor_travels_beside_its_message() {
        let (worker, mut manager) = links();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"slots").expect("written");
        worker.send_with(&ToManager::Ready, &[file.as_fd()]).expect("room");
        let Received::Message(ToManager::Ready, mut descriptors) =
            manager.receive().expect("a message")
        else {
            panic!("the message is missing")
        };
        let mut seen = std::fs::File::from(descriptors.pop().expect("one"));
        seen.rewind().expect("a file");
        let mut text = String::new();
        seen.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "slots");
    }

    #[test]
    fn strange_messages_are_errors_and_the_next_one_is_read() {
        let (worker, mut manager) = links();
        let long = "x".repeat(MESSAGE_LEN_BYTES_MAX);
        let error = worker.send(&long).expect_err("too long");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MSGSIZE.raw_os_error()));
        let bytes = vec![b' '; MESSAGE_LEN_BYTES_MAX + 1];
        rustix::net::send(&worker, &bytes, SendFlags::empty()).expect("the kernel takes it");
        rustix::net::send(&worker, b"{\"Hello\":", SendFlags::empty()).expect("room");
        worker.send(&ToManager::Ready).expect("room");
        for _ in 0..2 {
            let error = manager.receive::<ToManager>().expect_err("no message of ours");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let next = manager.receive::<ToManager>();
        assert!(matches!(next, Ok(Received::Message(ToManager::Ready, _))));
        assert!(matches!(manager.receive::<ToManager>(), Ok(Received::Nothing)));
    }

    #[test]
    fn a_peer_that_does_not_read_delays_a_sender_for_its_timeout_alone() {
        let (worker, manager) = links();
        while worker.send(&ToManager::Ready).is_ok() {}
        let error = worker.send(&ToManager::Ready).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let wait = Duration::from_millis(20);
        let error = worker.send_within(&ToManager::Ready, wait).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut worker = worker;
        let error = worker.receive_within::<ToWorker>(wait).expect_err("nothing said");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(manager);
    }
}
