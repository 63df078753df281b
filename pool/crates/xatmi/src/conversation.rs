//! Conversations: two programs that send to each other in turns, over a socket of their own.
//!
//! [`Client::converse`](crate::client::Client::converse) begins one, and the service that it reaches
//! joins it by [`Conversation::join`]; the C interface does both. The request goes the way of every
//! request, with its descriptor negative; from then on neither queues nor the manager are involved,
//! and when either side ends, however it ends, the other sees the end of the socket at once.
//!
//! ```text
//!  initiator: listens on a name of its own ── request, cd below 0 ──▶ worker: connects, learns its role
//!             has control, or waits  ◀── data ─ data and control ──▶  waits, or has control
//!             ◀────────────────── ended: success, failure, error ──   tpreturn
//!             ── disconnects ──────────────────────────────────────▶
//! ```
//!
//! A message is a head of 32 bytes with its payload behind it; what is longer than
//! [`INLINE_LEN_BYTES_MAX`] is in a memfd that comes beside it. Everything that the other side sends is
//! checked; bytes that are not a message end the conversation.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};
use rustix::time::Timespec;

use crate::buffer::BufferType;
use crate::client::{CallFlags, Outgoing};
use crate::environment::{Environment, Group, Peer};
use crate::error::{Code, Error};
use crate::needs::fits_file_size;
use crate::queue::{Prefix, monotonic_ns};
use crate::wire::{ClientAddress, PAYLOAD_LEN_BYTES_MAX};

/// The longest payload within a message of the socket.
pub const INLINE_LEN_BYTES_MAX: usize = 32 << 10;

pub(crate) const HEAD_LEN_BYTES: usize = 32;
/// How long a worker waits to learn its role: the initiator sends it as soon as it is connected.
const ROLE_TIMEOUT_NS: u64 = 5_000_000_000;

/// One side of a conversation.
#[derive(Debug)]
pub struct Conversation {
    socket: OwnedFd,
    is_initiator: bool,
    has_control: bool,
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Data; the sender keeps control.
    Data = 1,
    /// Data, or none; the receiver gets control.
    Control = 2,
    /// The service returned TPSUCCESS.
    Success = 3,
    /// The service returned TPFAIL.
    Failure = 4,
    /// The service ended otherwise.
    Error = 5,
    /// The initiator gave up.
    Disconnect = 6,
}

/// A message, or the end of the conversation.
#[derive(Debug)]
pub struct Message {
    pub kind: Kind,
    /// The type of the buffer; `None` without one.
    pub buffer_type: Option<BufferType>,
    /// The size of the sender's buffer, at least the bytes of the payload.
    pub buffer_size_bytes: usize,
    pub bytes: Vec<u8>,
    /// The value of `tpreturn` for the caller's `tpurcode`.
    pub urcode: i64,
}

/// The result of sending a message.
#[derive(Debug)]
pub enum Sent {
    /// It is on its way.
    Done,
    /// The conversation is over; the message was not sent.
    Over(Message),
}

/// The listener of an initiator, to which the service connects.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    socket: OwnedFd,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Data, Self::Control, Self::Success, Self::Failure, Self::Error, Self::Disconnect];

    /// Whether nothing comes behind it.
    #[must_use]
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Data | Self::Control)
    }
}

impl Message {
    fn bare(kind: Kind) -> Self {
        Self { kind, buffer_type: None, buffer_size_bytes: 0, bytes: Vec::new(), urcode: 0 }
    }
}

impl Rendezvous {
    /// Listens for the service of the conversation `cd` of a client.
    pub(crate) fn open(prefix: &Prefix, client: &ClientAddress, cd: i32) -> Result<Self, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let made = made.map_err(io::Error::from).and_then(|socket| {
            bind(&socket, &name(prefix, client, cd)?)?;
            listen(&socket, 1)?;
            Ok(socket)
        });
        let socket = made.map_err(|e| Error::os("a conversation cannot be listened for", e))?;
        Ok(Self { socket })
    }

    /// The service, if it has connected; waits for it no longer than `wait`.
    pub(crate) fn take(
        &self,
        wait: Duration,
        group: Option<&Group>,
    ) -> Result<Option<OwnedFd>, Error> {
        let wait = Timespec::try_from(wait).unwrap_or_default();
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut watched, Some(&wait)) {
            Ok(_) => {}
            Err(Errno::INTR) => {
                return Err(Error::new(
                    Code::GotSignal,
                    "a signal came while the service was waited for",
                ));
            }
            Err(errno) => {
                return Err(Error::os("a conversation cannot be waited for", errno.into()));
            }
        }
        match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) if is_known(&socket, group) => Ok(Some(socket)),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(Error::os("a conversation cannot be taken up", errno.into())),
        }
    }
}

impl Conversation {
    /// The initiator's side, once the service has connected; sends it its role.
    pub(crate) fn begin(socket: OwnedFd, has_control: bool) -> Result<Self, Error> {
        let mut this = Self { socket, is_initiator: true, has_control };
        // The service's role is the opposite.
        let role = if has_control { Kind::Data } else { Kind::Control };
        let message = Outgoing::NONE;
        match this.push(role, message, 0, monotonic_ns() + ROLE_TIMEOUT_NS, CallFlags::NONE)? {
            Sent::Done => Ok(this),
            Sent::Over(_) => Err(Error::new(Code::ServiceError, "the service is gone already")),
        }
    }

    /// The service's side of a request of `client` whose descriptor is `cd`, negative.
    ///
    /// # Errors
    /// TPESVCERR when the initiator is gone or is of another user, TPEOS.
    pub fn join(environment: &Environment, client: &ClientAddress, cd: i32) -> Result<Self, Error> {
        let gone = |errno: Errno| {
            Error::caused(
                Code::ServiceError,
                "the initiator of the conversation is gone",
                errno.into(),
            )
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|errno| Error::os("no socket for a conversation", errno.into()))?;
        let name = name(&environment.prefix, client, cd.saturating_neg())
            .map_err(|error| Error::os("no name for a conversation", error))?;
        connect(&socket, &name).map_err(gone)?;
        if !is_known(&socket, environment.group.as_ref()) {
            return Err(gone(Errno::PERM));
        }
        let mut this = Self { socket, is_initiator: false, has_control: false };
        let role = this.pull(monotonic_ns() + ROLE_TIMEOUT_NS, CallFlags::SIGNAL_RESTART)?;
        match role.kind {
            Kind::Data => {}
            Kind::Control => this.has_control = true,
            _ => return Err(gone(Errno::CONNRESET)),
        }
        Ok(this)
    }

    /// Whether this side may send.
    #[must_use]
    pub fn has_control(&self) -> bool {
        self.has_control
    }

    /// Sends data; with [`Kind::Control`] the other side gets control. `deadline_ns` is of the monotonic
    /// clock, 0 for never.
    ///
    /// # Errors
    /// TPEPROTO without control, TPETIME, TPEBLOCK with TPNOBLOCK, TPGOTSIG without TPSIGRSTRT,
    /// TPEINVAL for what cannot be sent, TPEOS.
    pub fn send(
        &mut self,
        kind: Kind,
        data: Outgoing<'_>,
        deadline_ns: u64,
        flags: CallFlags,
    ) -> Result<Sent, Error> {
        if !self.has_control {
            return Err(Error::new(Code::Protocol, "the other side has control: receive first"));
        }
        let sent = self.push(kind, data, 0, deadline_ns, flags)?;
        if kind == Kind::Control && matches!(sent, Sent::Done) {
            self.has_control = false;
        }
        Ok(sent)
    }

    /// Ends the service's side with what `tpreturn` was given; the other side may have ended.
    pub fn finish(mut self, kind: Kind, data: Outgoing<'_>, urcode: i64, deadline_ns: u64) {
        let _ = self.push(kind, data, urcode, deadline_ns, CallFlags::SIGNAL_RESTART);
    }

    /// Gives the conversation up.
    pub fn disconnect(mut self) {
        // The end of the socket means the same.
        let _ = self.push(Kind::Disconnect, Outgoing::NONE, 0, 0, CallFlags::NO_BLOCK);
    }

    /// Waits for the next message; the end of the other side is one.
    ///
    /// # Errors
    /// TPEPROTO with control, TPETIME, TPEBLOCK with TPNOBLOCK, TPGOTSIG without TPSIGRSTRT, TPEOS.
    pub fn receive(&mut self, deadline_ns: u64, flags: CallFlags) -> Result<Message, Error> {
        if self.has_control {
            return Err(Error::new(Code::Protocol, "this side has control: send first"));
        }
        let message = self.pull(deadline_ns, flags)?;
        if message.kind == Kind::Control {
            self.has_control = true;
        }
        Ok(message)
    }

    /// The meaning of the end of the socket.
    fn gone(&self) -> Message {
        Message::bare(if self.is_initiator { Kind::Error } else { Kind::Disconnect })
    }

    fn push(
        &mut self,
        kind: Kind,
        data: Outgoing<'_>,
        urcode: i64,
        deadline_ns: u64,
        flags: CallFlags,
    ) -> Result<Sent, Error> {
        let bytes = data.bytes;
        if bytes.len() as u64 > PAYLOAD_LEN_BYTES_MAX {
            let detail = format!("a message has at most {PAYLOAD_LEN_BYTES_MAX} bytes");
            return Err(Error::new(Code::Invalid, detail));
        }
        let head = head(kind, &data, urcode);
        let memfd = memfd_for(bytes).map_err(|e| Error::os("no memory for a long message", e))?;
        let inline = if memfd.is_some() { &[][..] } else { bytes };
        loop {
            // An end that came meanwhile is returned instead.
            if self.has_input() {
                let message = self.pull(1, CallFlags::NO_BLOCK)?;
                return Ok(Sent::Over(if message.kind.is_end() { message } else { self.gone() }));
            }
            match send_once(self.socket.as_fd(), &head, inline, memfd.as_ref().map(AsFd::as_fd)) {
                Ok(()) => return Ok(Sent::Done),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline_ns, flags)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) if self.has_input() => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(Sent::Over(self.gone())),
                Err(errno) => return Err(Error::os("a conversation cannot send", errno.into())),
            }
        }
    }

    fn has_input(&self) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn pull(&mut self, deadline_ns: u64, flags: CallFlags) -> Result<Message, Error> {
        let mut buffer = vec![0; HEAD_LEN_BYTES + INLINE_LEN_BYTES_MAX];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let wanted = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let parts = &mut [IoSliceMut::new(&mut buffer)];
            match recvmsg(&self.socket, parts, &mut beside, wanted) {
                Ok(got) => {
                    let descriptor = beside.drain().find_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
                        _ => None,
                    });
                    let message = decode(&buffer[..got.bytes], descriptor);
                    return Ok(message.unwrap_or_else(|| self.gone()));
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline_ns, flags)?,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET | Errno::PIPE) => return Ok(self.gone()),
                Err(errno) => return Err(Error::os("a conversation cannot receive", errno.into())),
            }
        }
    }

    fn wait(&self, what: PollFlags, deadline_ns: u64, flags: CallFlags) -> Result<(), Error> {
        if flags.contains(CallFlags::NO_BLOCK) {
            let detail = "the other side is not ready, and TPNOBLOCK forbids to wait";
            return Err(Error::new(Code::Block, detail));
        }
        let left = Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns()));
        if deadline_ns != 0 && left.is_zero() {
            return Err(Error::new(Code::Time, "the time for the message is over"));
        }
        let left = (deadline_ns != 0).then(|| Timespec::try_from(left).unwrap_or_default());
        // Input ends a wait for room too: it can only be the end.
        let mut watched = [PollFd::new(&self.socket, what | PollFlags::IN)];
        match poll(&mut watched, left.as_ref()) {
            Err(Errno::INTR) if flags.contains(CallFlags::SIGNAL_RESTART) => Ok(()),
            Err(Errno::INTR) => {
                let detail = "a signal came while the other side was waited for";
                Err(Error::new(Code::GotSignal, detail))
            }
            Err(errno) => Err(Error::os("a conversation cannot be watched", errno.into())),
            Ok(_) => Ok(()),
        }
    }
}

/// The abstract name where the initiator listens; the nonce is known to those that it asked.
fn name(prefix: &Prefix, client: &ClientAddress, cd: i32) -> io::Result<SocketAddrUnix> {
    let ClientAddress { pid, context, nonce } = client;
    let name = format!("{prefix},cnv,{pid},{context},{nonce:x},{cd}");
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Whether the other side is of this user, root, or in the group.
fn is_known(socket: &OwnedFd, group: Option<&Group>) -> bool {
    Peer::of(socket).is_ok_and(|peer| peer.is_known(group))
}

/// The head of a message.
pub(crate) fn head(kind: Kind, data: &Outgoing<'_>, urcode: i64) -> [u8; HEAD_LEN_BYTES] {
    let tag = |of| BufferType::ALL.iter().position(|known| *known == of).map_or(0, |at| at + 1);
    let mut head = [0; HEAD_LEN_BYTES];
    head[0] = kind as u8;
    head[1] = data.buffer_type.map_or(0, tag) as u8;
    head[8..16].copy_from_slice(&(data.buffer_size_bytes as u64).to_le_bytes());
    head[16..24].copy_from_slice(&(data.bytes.len() as u64).to_le_bytes());
    head[24..32].copy_from_slice(&urcode.to_le_bytes());
    head
}

/// A memfd with a payload that is too long for a message.
pub(crate) fn memfd_for(bytes: &[u8]) -> io::Result<Option<File>> {
    if bytes.len() <= INLINE_LEN_BYTES_MAX {
        return Ok(None);
    }
    fits_file_size(bytes.len())?;
    let memfd = File::from(memfd_create("pollux-message", MemfdFlags::CLOEXEC)?);
    memfd.write_all_at(bytes, 0)?;
    Ok(Some(memfd))
}

pub(crate) fn send_once(
    socket: BorrowedFd<'_>,
    head: &[u8],
    inline: &[u8],
    memfd: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = memfd.map(|memfd| [memfd]);
    if let Some(descriptors) = &descriptors {
        let fits = beside.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(fits, "the space is made for one");
    }
    let parts = [IoSlice::new(head), IoSlice::new(inline)];
    sendmsg(socket, &parts, &mut beside, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)
}

/// The message in these bytes; `None` for the end of the socket and for other bytes.
pub(crate) fn decode(bytes: &[u8], descriptor: Option<OwnedFd>) -> Option<Message> {
    let (head, inline) = bytes.split_first_chunk::<HEAD_LEN_BYTES>()?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&head[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == head[0])?;
    let buffer_type = match head[1] {
        0 => None,
        tag => Some(*BufferType::ALL.get(usize::from(tag) - 1)?),
    };
    let size = word(8);
    let len = word(16);
    let is_sound = len <= PAYLOAD_LEN_BYTES_MAX
        && size <= PAYLOAD_LEN_BYTES_MAX
        && (buffer_type.is_some() || len == 0);
    if !is_sound {
        return None;
    }
    let len = len as usize;
    let bytes = match descriptor {
        None if inline.len() == len => inline.to_vec(),
        Some(descriptor) if inline.is_empty() => {
            let memfd = File::from(descriptor);
            // The file has the length, or nothing is reserved.
            if memfd.metadata().ok()?.len() != len as u64 {
                return None;
            }
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len).ok()?;
            bytes.resize(len, 0);
            memfd.read_exact_at(&mut bytes, 0).ok()?;
            bytes
        }
        _ => return None,
    };
    let buffer_size_bytes = (size as usize).max(len);
    Some(Message { kind, buffer_type, buffer_size_bytes, bytes, urcode: word(24) as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Conversation, Conversation) {
        let variable = |name: &str| (name == "NDRX_QPREFIX").then(|| "/conversations".into());
        let environment = Environment::read(variable).expect("a prefix");
        let prefix = environment.prefix.clone();
        let client = ClientAddress { pid: std::process::id(), context: 1, nonce: rand() };
        let rendezvous = Rendezvous::open(&prefix, &client, 7).expect("it listens");
        let service = std::thread::spawn(move || Conversation::join(&environment, &client, -7));
        let socket = loop {
            if let Some(socket) = rendezvous.take(Duration::from_secs(5), None).expect("it comes") {
                break socket;
            }
        };
        let initiator = Conversation::begin(socket, true).expect("the role is sent");
        (initiator, service.join().expect("no panic").expect("it joined"))
    }

    /// Another one for each pair of a process.
    fn rand() -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    fn text(bytes: &[u8]) -> Outgoing<'_> {
        Outgoing {
            buffer_type: Some(BufferType::Carray),
            buffer_size_bytes: bytes.len(),
            has_info: false,
            bytes,
        }
    }

    #[test]
    fn data_of_any_length_goes_both_ways_in_turns() {
        let (mut one, mut other) = pair();
        let long: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
        for bytes in [&b""[..], b"short", &long[..INLINE_LEN_BYTES_MAX], &long] {
            assert!(matches!(
                one.send(Kind::Data, text(bytes), 0, CallFlags::NONE),
                Ok(Sent::Done)
            ));
            let came = other.receive(0, CallFlags::NONE).expect("it came");
            assert_eq!((came.kind, came.bytes.as_slice()), (Kind::Data, bytes));
        }
        let error = other.send(Kind::Data, text(b"x"), 0, CallFlags::NONE).expect_err("no control");
        assert_eq!(error.code(), Code::Protocol);
        let error = one.receive(0, CallFlags::NONE).expect_err("it has control");
        assert_eq!(error.code(), Code::Protocol);
        assert!(matches!(one.send(Kind::Control, text(b"go"), 0, CallFlags::NONE), Ok(Sent::Done)));
        assert_eq!(other.receive(0, CallFlags::NONE).expect("it came").kind, Kind::Control);
        let error = one.receive(monotonic_ns() + 1, CallFlags::NONE).expect_err("nothing came");
        assert_eq!(error.code(), Code::Time);
        let error = one.receive(0, CallFlags::NO_BLOCK).expect_err("nothing came");
        assert_eq!(error.code(), Code::Block);
        other.finish(Kind::Success, text(b"end"), 42, 0);
        let end = one.receive(0, CallFlags::NONE).expect("the end");
        assert_eq!((end.kind, end.urcode, end.bytes.as_slice()), (Kind::Success, 42, &b"end"[..]));
    }

    #[test]
    fn the_end_of_either_side_is_seen_by_the_other() {
        let (mut one, other) = pair();
        drop(other);
        let Ok(Sent::Over(end)) = one.send(Kind::Data, text(b"x"), 0, CallFlags::NONE) else {
            panic!("the other side has ended")
        };
        assert_eq!(end.kind, Kind::Error);
        let (one, mut other) = pair();
        one.disconnect();
        assert_eq!(other.receive(0, CallFlags::NONE).expect("it came").kind, Kind::Disconnect);
        let (one, mut other) = pair();
        drop(one);
        assert_eq!(other.receive(0, CallFlags::NONE).expect("it came").kind, Kind::Disconnect);
    }

    #[test]
    fn a_side_that_does_not_read_blocks_a_sender_until_its_deadline_at_most() {
        let (mut one, _other) = pair();
        let bytes = [7; INLINE_LEN_BYTES_MAX];
        let full = loop {
            match one.send(Kind::Data, text(&bytes), 0, CallFlags::NO_BLOCK) {
                Ok(Sent::Done) => {}
                Ok(Sent::Over(end)) => panic!("{end:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(full.code(), Code::Block);
        let late = one.send(Kind::Data, text(&bytes), monotonic_ns() + 1, CallFlags::NONE);
        assert_eq!(late.expect_err("full").code(), Code::Time);
    }

    #[test]
    fn other_bytes_end_the_conversation() {
        let (one, mut other) = pair();
        for bytes in [&[1; 31][..], &[0; 32], &[9; 32], &[1; 40]] {
            let flags = SendFlags::NOSIGNAL;
            rustix::net::send(&one.socket, bytes, flags).expect("the kernel takes it");
            assert_eq!(other.receive(0, CallFlags::NONE).expect("an end").kind, Kind::Disconnect);
        }
    }
}
