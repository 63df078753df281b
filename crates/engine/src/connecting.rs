//! Sockets that connect to a peer: where to, how they are opened, and what became of them.
//!
//! Both loops connect through [`begin`] and [`outcome`], so that errors mean the same everywhere.
//! The call is `connect(2)`, also on the completion loop: there its errors show at once as they
//! do elsewhere. The ring's request (IORING_OP_CONNECT) needs no worker thread for TCP on Linux
//! 6.18, but takes one for a unix socket whose backlog is full, and reports every error later.
//!
//! ```text
//!              ┌─ an error at once: the session goes back to the caller
//!   connect ───┼─ in progress ──► room to write is watched ──┐
//!              └─ done (unix sockets) ──► next turn ─────────┴─► SO_ERROR ─► connected
//!                                                                        └─► connect_failed, closed
//! ```
//!
//! What [`EventLoop::adopt`](crate::EventLoop::adopt) takes, and why it refuses the rest.
//!
//! A descriptor from outside is checked once, before a session begins on it: the loops read and
//! write a stream of bytes and never block, and with anything else they would lose data silently
//! (a datagram that does not fit is cut) or stand still.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt, io};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_acceptconn, socket_error, socket_type};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};

use crate::ListenAddress;

/// Where a connection goes, and where from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectTo {
    /// The process that listens there.
    pub peer: ListenAddress,
    /// The local address of a TCP connection, of the peer's family; `None` leaves it to the
    /// routes. The port is chosen as late as possible (IP_BIND_ADDRESS_NO_PORT, `ip(7)`), so
    /// each source has its whole range of ports towards each peer.
    pub source: Option<IpAddr>,
}

/// From whatever address the routes give.
impl From<SocketAddr> for ConnectTo {
    fn from(peer: SocketAddr) -> Self {
        Self { peer: ListenAddress::Tcp(peer), source: None }
    }
}

/// From whatever address the routes give.
impl From<ListenAddress> for ConnectTo {
    fn from(peer: ListenAddress) -> Self {
        Self { peer, source: None }
    }
}

impl fmt::Display for ConnectTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.fmt(f)?;
        self.source.map_or(Ok(()), |source| write!(f, " from {source}"))
    }
}

/// Why a connection could not even begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The loop has as many connections as its limits allow, of all or of those to peers.
    LoopFull {
        /// [`Limits::connects_max`](crate::Limits::connects_max), else
        /// [`Limits::connections_max`](crate::Limits::connections_max).
        connections_max: u32,
    },
    /// A system call failed: EMFILE, ENFILE (no descriptor is left), EADDRNOTAVAIL (no port is
    /// left, or the source is not ours), and for unix sockets ECONNREFUSED (no socket listens) and
    /// EAGAIN (its backlog is full), among others.
    System {
        /// Name of the call.
        call: &'static str,
        /// Where to, and where from.
        to: String,
        /// What the kernel said.
        cause: io::Error,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoopFull { connections_max } => write!(
                f,
                "the loop has {connections_max} connections, its most: raise connections_max or \
                 close some"
            ),
            Self::System { call, to, .. } => write!(f, "{call} for a connection to {to} failed"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { cause, .. } => Some(cause),
            Self::LoopFull { .. } => None,
        }
    }
}

/// With the kind of its cause; the error itself is inside.
impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        let kind = match &error {
            ConnectError::System { cause, .. } => cause.kind(),
            ConnectError::LoopFull { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// A socket that connects, or has connected.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) socket: OwnedFd,
    /// It is still in progress: when the socket is writable, it has ended.
    pub(crate) is_in_progress: bool,
}

/// Opens a non-blocking, close-on-exec socket and begins to connect it.
///
/// # Errors
/// [`ConnectError::System`].
pub(crate) fn begin(to: &ConnectTo) -> Result<Begun, ConnectError> {
    open(to).map_err(|(call, cause)| ConnectError::System { call, to: to.to_string(), cause })
}

/// What became of a connect in progress, once there is room to write or an error.
pub(crate) fn outcome(socket: impl AsFd) -> Result<(), Errno> {
    socket_error(socket)?
}

type Refusal = (&'static str, io::Error);

fn open(to: &ConnectTo) -> Result<Begun, Refusal> {
    let family = match &to.peer {
        ListenAddress::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        ListenAddress::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        ListenAddress::Unix(_) => AddressFamily::UNIX,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(of("socket"))?;
    if let Some(source) = to.source {
        pollux_sys::socket::bind_address_no_port(&socket).map_err(|cause| ("setsockopt", cause))?;
        bind(&socket, &SocketAddr::new(source, 0)).map_err(of("bind"))?;
    }
    let connected = match &to.peer {
        ListenAddress::Tcp(peer) => {
            set_tcp_nodelay(&socket, true).map_err(of("setsockopt"))?;
            connect(&socket, peer)
        }
        ListenAddress::Unix(path) => {
            let peer = SocketAddrUnix::new(path).map_err(of("connect"))?;
            connect(&socket, &peer)
        }
    };
    match connected {
        Ok(()) => Ok(Begun { socket, is_in_progress: false }),
        // An interrupted connect continues by itself (connect(2)).
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Begun { socket, is_in_progress: true }),
        Err(errno) => Err(of("connect")(errno)),
    }
}

fn of(call: &'static str) -> impl Fn(Errno) -> Refusal {
    move |errno| (call, errno.into())
}

/// Why a descriptor was not adopted.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdoptError {
    /// It is something else than a socket: a file, a pipe, a terminal.
    NotASocket,
    /// It keeps the borders of messages (SOCK_DGRAM, SOCK_SEQPACKET and others); a session's bytes
    /// have none.
    NotAStream,
    /// It takes connections: it belongs to [`EventLoop::listen`](crate::EventLoop::listen).
    Listens,
    /// Calls on it wait (O_NONBLOCK is not set), and the whole loop would wait with them.
    Blocks,
    /// The kernel does not say what it is.
    System {
        /// Name of the call.
        call: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::NotASocket => "the descriptor is not a socket",
            Self::NotAStream => "the socket sends messages",
            Self::Listens => "the socket listens",
            Self::Blocks => "the socket blocks",
            Self::System { call, .. } => return write!(f, "{call} on the descriptor failed"),
        };
        write!(f, "{what}; expected a connected stream socket with O_NONBLOCK")
    }
}

impl std::error::Error for AdoptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// With the kind of its cause; the error itself is inside.
impl From<AdoptError> for io::Error {
    fn from(error: AdoptError) -> Self {
        let kind = match &error {
            AdoptError::System { cause, .. } => cause.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Says whether sessions can run on `socket`. Whether it has a peer is left to the loop: one that
/// has gone meanwhile is reported to the session as always.
///
/// # Errors
/// [`AdoptError`] says what is wrong with it.
pub(crate) fn check(socket: BorrowedFd<'_>) -> Result<(), AdoptError> {
    let failed = |call, errno: Errno| AdoptError::System { call, cause: errno.into() };
    match socket_type(socket) {
        Ok(SocketType::STREAM) => {}
        Ok(_) => return Err(AdoptError::NotAStream),
        Err(Errno::NOTSOCK) => return Err(AdoptError::NotASocket),
        Err(errno) => return Err(failed("getsockopt", errno)),
    }
    if socket_acceptconn(socket).map_err(|errno| failed("getsockopt", errno))? {
        return Err(AdoptError::Listens);
    }
    let flags = fcntl_getfl(socket).map_err(|errno| failed("fcntl", errno))?;
    if flags.contains(OFlags::NONBLOCK) { Ok(()) } else { Err(AdoptError::Blocks) }
}
