//! The connection of a client context to the manager, made when it opens and kept until it ends, and the
//! greeting on it.
//!
//! Nothing is sent on the connection after the greeting: its end, however it comes, shows the manager that the
//! context has ended. Its descriptor number is the number of the context, because the kernel gives no other
//! context of this process the same one while it lives.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{DupFlags, Errno, dup3, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use serde::{Deserialize, Serialize};

use crate::environment::{
    GROUP_VARIABLE, Group, MESSAGE_LEN_BYTES_MAX, MESSAGE_LEN_BYTES_MIN, MESSAGES_MAX, Peer,
    Relation,
};
use crate::error::{Code, Error};
use crate::priority::Priority;
use crate::queue::{Prefix, ServiceName};
use crate::wire::ClientAddress;

/// How long the manager may take for each step of the greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a queue is waited for that the limits have no room for: more than workers take to close
/// the queues of ended contexts.
const QUEUE_ROOM_WAIT: Duration = Duration::from_secs(2);
/// How often it is tried meanwhile.
const QUEUE_ROOM_LOOK: Duration = Duration::from_millis(10);

/// The longest message of the control socket that a client reads.
pub const GREETING_LEN_BYTES_MAX: usize = 64 * 1024;

/// The first message of a client context, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientHello {
    pub pid: u32,
    /// Its number within the process.
    pub context: u32,
    /// Its random number, which replies to it carry.
    pub nonce: u64,
    /// The name of its reply queue, with the slash; it is made after the welcome.
    pub queue: String,
    /// Its context in the memory that it worked with so far, when the manager before this one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<KnownContext>,
}

/// A context in shared memory, which it keeps if the manager works with the same memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownContext {
    /// Its number there.
    pub context: u32,
    /// The inode of the file with the requests.
    pub exchange: u64,
}

/// The manager's answer, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Bytes of a message, on service queues and reply queues.
    pub message_len_bytes: u32,
    /// Messages that a reply queue holds.
    pub reply_depth: u32,
    /// How long a call may take where the client's environment does not say.
    pub timeout_s: u32,
    /// The name of the pool, for messages.
    pub pool: String,
    /// Where the pool has its requests in shared memory, the number of this context there. The descriptors
    /// of records and exchange come beside the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u32>,
    /// Whether the manager has made the reply queue already: it does so for a client of another user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_made_queue: bool,
    /// Services that the configuration gives a priority other than the usual one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<(String, u8)>,
}

impl Welcome {
    /// The priorities of services; what cannot be one is left out.
    pub(super) fn priorities(&self) -> Vec<(ServiceName, Priority)> {
        let read = |(name, number): &(String, u8)| {
            Some((ServiceName::new(name)?, Priority::new((*number).into())?))
        };
        self.priorities.iter().filter_map(read).collect()
    }
}

/// The client's message, as it is on the socket.
#[derive(Serialize)]
pub(super) enum ToManager {
    Client(ClientHello),
}

/// The manager's answers that a client understands.
#[derive(Deserialize)]
pub(super) enum ToClient {
    Welcome(Welcome),
    Refused { why: String },
    Forbidden { why: String },
}

/// The descriptors beside a welcome where requests are in shared memory: records and exchange.
pub(super) type ClientFiles = [OwnedFd; 2];

/// An open connection. Closing it ends the context.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    context: u32,
    nonce: u64,
    /// The pool is that of another member of the group.
    is_guest: bool,
}

impl Connection {
    /// Connects to the manager of the pool with this prefix.
    ///
    /// # Errors
    /// TPESYSTEM when no pool runs or its manager does not answer, TPEPERM when it is
    /// another user's, TPEOS.
    pub(super) fn open(prefix: &Prefix, group: Option<&Group>) -> Result<Self, Error> {
        let mut connection = Self::connect(prefix, group, GREETING_TIMEOUT)?;
        connection.nonce = random().map_err(|errno| {
            Error::os("no random number is available for the context", errno.into())
        })?;
        Ok(connection)
    }

    /// A connection to another manager for the context of this one, whose manager ended.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) fn succeed(
        &self,
        prefix: &Prefix,
        group: Option<&Group>,
        patience: Duration,
    ) -> Result<Self, Error> {
        let connected = Self::connect(prefix, group, patience)?;
        Ok(Self { context: self.context, nonce: self.nonce, ..connected })
    }

    /// Puts the connection to another manager in place of this one, under the number that is the context's.
    ///
    /// # Errors
    /// Those of `dup3(2)`.
    pub(super) fn replace_by(&mut self, other: &Self) -> Result<(), Errno> {
        dup3(&other.socket, &mut self.socket, DupFlags::CLOEXEC)?;
        self.is_guest = other.is_guest;
        Ok(())
    }

    /// Whether the manager is gone, as far as the kernel knows.
    pub(super) fn is_ended(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = retry_on_intr(|| rustix::net::recv(&self.socket, &mut [0; 1][..], flags));
        matches!(peeked, Ok((0, _)) | Err(Errno::CONNRESET))
    }

    fn connect(prefix: &Prefix, group: Option<&Group>, patience: Duration) -> Result<Self, Error> {
        let os = |errno: Errno| Error::os("no connection to the pool can be made", errno.into());
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(os)?;
        let address = SocketAddrUnix::new_abstract_name(prefix.control_socket().as_bytes());
        let address = address.map_err(os)?;
        within(patience, &socket, Timeout::Send, || connect(&socket, &address))
            .map_err(|errno| unreachable(prefix, errno))?;
        let manager = Peer::of(&socket)
            .map_err(|error| Error::os("the manager of the pool is not known", error))?;
        let relation = manager.relation(group);
        if relation == Relation::Foreign {
            let remedy = match group {
                None => {
                    format!("members of the group that it is open to name that in {GROUP_VARIABLE}")
                }
                Some(group) => format!("it is not in {group}, which {GROUP_VARIABLE} names"),
            };
            let detail = format!("the pool {prefix} is that of {manager}: {remedy}");
            return Err(Error::new(Code::Permission, detail));
        }
        let is_guest = relation == Relation::Member;
        let context = socket.as_raw_fd().cast_unsigned();
        Ok(Self { socket, context, nonce: 0, is_guest })
    }

    /// Whether the pool is that of another member of the group.
    pub(super) fn is_guest(&self) -> bool {
        self.is_guest
    }

    /// The address of this context.
    pub(super) fn address(&self) -> ClientAddress {
        ClientAddress { pid: std::process::id(), context: self.context, nonce: self.nonce }
    }

    /// Sends the name of this context and receives the sizes of the pool; its memory, where it has one.
    ///
    /// # Errors
    /// TPESYSTEM when the manager does not answer, refuses, or sends an unknown answer; TPEOS without
    /// descriptors for the memory.
    pub(super) fn greet(&self, prefix: &Prefix) -> Result<(Welcome, Option<ClientFiles>), Error> {
        self.say_hello(prefix, None)?;
        let welcome = self.welcome(prefix, GREETING_TIMEOUT)?;
        welcome.ok_or_else(|| unreachable(prefix, Errno::TIMEDOUT))
    }

    /// Sends the name of this context, and what it has in the memory that it worked with so far.
    ///
    /// # Errors
    /// TPESYSTEM when the manager is gone or does not read.
    pub(super) fn say_hello(
        &self,
        prefix: &Prefix,
        memory: Option<KnownContext>,
    ) -> Result<(), Error> {
        let ClientAddress { pid, context, nonce } = self.address();
        let queue = prefix.reply_queue(pid, context).to_string_lossy().into_owned();
        let hello = ToManager::Client(ClientHello { pid, context, nonce, queue, memory });
        let text = serde_json::to_vec(&hello).expect("numbers and a text");
        let socket = &self.socket;
        let sent = within(GREETING_TIMEOUT, socket, Timeout::Send, || {
            send(socket, &text, SendFlags::NOSIGNAL)
        });
        match sent {
            // A manager that refuses this user may have answered already, and closed.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(errno) => Err(unreachable(prefix, errno)),
        }
    }

    /// The manager's answer; `None` when there is none within `patience`, or at once where that is zero.
    ///
    /// # Errors
    /// As [`greet`](Self::greet).
    pub(super) fn welcome(
        &self,
        prefix: &Prefix,
        patience: Duration,
    ) -> Result<Option<(Welcome, Option<ClientFiles>)>, Error> {
        let silent = |errno| unreachable(prefix, errno);
        let socket = &self.socket;
        let mut answer = vec![0; GREETING_LEN_BYTES_MAX];
        let mut receive = || {
            if patience.is_zero() {
                return receive_with_memory(socket, &mut answer, RecvFlags::DONTWAIT);
            }
            within(patience, socket, Timeout::Recv, || {
                receive_with_memory(socket, &mut answer, RecvFlags::empty())
            })
        };
        // A reset is reported once, before what was received ahead of it.
        let received = match receive() {
            Err(Errno::CONNRESET) => receive(),
            received => received,
        };
        let (len, memory) = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::TIMEDOUT) => return Ok(None),
            Err(Errno::MFILE) => {
                let detail = "no descriptor for the memory of the pool";
                return Err(Error::os(detail, Errno::MFILE.into()));
            }
            Err(errno) => return Err(silent(errno)),
        };
        if len == 0 {
            return Err(silent(Errno::CONNRESET));
        }
        match serde_json::from_slice(&answer[..len]) {
            Ok(ToClient::Welcome(welcome)) if is_sound(&welcome, memory.is_some()) => {
                Ok(Some((welcome, memory)))
            }
            Ok(ToClient::Refused { why }) => {
                Err(Error::new(Code::System, format!("the pool {prefix} refused: {why}")))
            }
            Ok(ToClient::Forbidden { why }) => {
                Err(Error::new(Code::Permission, format!("the pool {prefix} refused: {why}")))
            }
            Ok(ToClient::Welcome(_)) | Err(_) => {
                let detail = format!(
                    "the manager of the pool {prefix} is of another version: restart the pool"
                );
                Err(Error::new(Code::System, detail))
            }
        }
    }

    /// Makes a queue; while those of ended contexts take the room for it, workers are about to let
    /// go of them.
    ///
    /// # Errors
    /// As `make`, after [`QUEUE_ROOM_WAIT`] where the limits on queues are the reason.
    pub(super) fn when_queues_fit<T>(
        &self,
        mut make: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let end = Instant::now() + QUEUE_ROOM_WAIT;
        loop {
            match make() {
                Err(error) if self.is_limit_on_queues(&error) && Instant::now() < end => {
                    std::thread::sleep(QUEUE_ROOM_LOOK);
                }
                made => return made,
            }
        }
    }

    /// EMFILE stands for the limit on bytes too; then there is a descriptor all the same.
    fn is_limit_on_queues(&self, error: &io::Error) -> bool {
        match Errno::from_io_error(error) {
            Some(Errno::NOSPC) => true,
            Some(Errno::MFILE) => rustix::io::fcntl_dupfd_cloexec(&self.socket, 0).is_ok(),
            _ => false,
        }
    }
}

/// Does one step of the greeting; signals may interrupt it, and lengthen it never.
fn within<T>(
    timeout: Duration,
    socket: &OwnedFd,
    side: Timeout,
    mut step: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let end = Instant::now() + timeout;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        set_socket_timeout(socket, side, Some(left))?;
        match step() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// A message, and the descriptors beside it; EMFILE when the limit on descriptors has no room for those.
fn receive_with_memory(
    socket: &OwnedFd,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Option<ClientFiles>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(into)];
    let got = recvmsg(socket, parts, &mut beside, RecvFlags::CMSG_CLOEXEC | flags)?;
    let memory = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut some) => Some([some.next()?, some.next()?]),
        _ => None,
    });
    // The kernel cuts off what it cannot give a number.
    if memory.is_none() && got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    Ok((got.bytes, memory))
}

fn is_sound(welcome: &Welcome, has_memory: bool) -> bool {
    (MESSAGE_LEN_BYTES_MIN..=MESSAGE_LEN_BYTES_MAX).contains(&welcome.message_len_bytes)
        && (1..=MESSAGES_MAX).contains(&welcome.reply_depth)
        && welcome.timeout_s > 0
        && welcome.memory.is_some() == has_memory
}

fn unreachable(prefix: &Prefix, errno: Errno) -> Error {
    let detail = match errno {
        // No process listens on the name.
        Errno::CONNREFUSED | Errno::NOENT => format!(
            "no pool runs with the prefix {prefix}: start it with `pollux pool start`, or set \
             NDRX_QPREFIX to that of a pool that runs"
        ),
        Errno::AGAIN | Errno::TIMEDOUT => format!(
            "the manager of the pool {prefix} did not answer within {} seconds",
            GREETING_TIMEOUT.as_secs()
        ),
        _ => format!("the manager of the pool {prefix} broke off the greeting"),
    };
    Error::caused(Code::System, detail, errno.into())
}

fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    let filled = retry_on_intr(|| {
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
    })?;
    // Up to 256 bytes come whole (`getrandom(2)`).
    if filled == bytes.len() { Ok(u64::from_le_bytes(bytes)) } else { Err(Errno::IO) }
}

#[cfg(test)]
mod tests {
    use rustix::net::recv;

    use super::*;

    #[test]
    fn a_refusal_that_is_sent_before_the_greeting_is_reported() {
        let prefix = Prefix::new(&format!("/refusing{}", std::process::id())).expect("a prefix");
        for greets_first in [false, true] {
            let listener = crate::control::listen(&prefix).expect("free");
            let connection = Connection::open(&prefix, None).expect("it listens");
            let manager = rustix::net::accept(&listener).expect("it connected");
            if greets_first {
                send(&connection.socket, b"unread", SendFlags::NOSIGNAL).expect("room");
            }
            let refused = br#"{"Refused":{"why":"it belongs to user 4711"}}"#;
            send(&manager, refused, SendFlags::NOSIGNAL).expect("room");
            drop(manager);
            let error = connection.greet(&prefix).expect_err("refused").to_string();
            assert!(error.contains("refused: it belongs to user 4711"), "{error}");
        }
    }

    #[test]
    fn signals_without_end_do_not_lengthen_a_step() {
        let (ours, _theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair");
        let since = Instant::now();
        let timeout = Duration::from_millis(30);
        // As if a signal came whenever it waits.
        let interrupted = within(timeout, &ours, Timeout::Recv, || Err::<(), _>(Errno::INTR));
        assert_eq!(interrupted, Err(Errno::TIMEDOUT));
        assert!(since.elapsed() >= timeout);
        let silent = within(timeout, &ours, Timeout::Recv, || {
            recv(&ours, &mut [0][..], RecvFlags::empty()).map(|(len, _)| len)
        });
        assert_eq!(silent, Err(Errno::AGAIN), "nothing is sent");
    }
}
