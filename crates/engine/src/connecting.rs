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

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::{fmt, io};

use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, SocketAddrUnix, bind, connect};

use crate::ListenAddress;
use crate::listener::stream_socket;

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
    let socket = stream_socket(family).map_err(refusal_of("socket"))?;
    if let Some(source) = to.source {
        pollux_sys::socket::bind_address_no_port(&socket).map_err(|cause| ("setsockopt", cause))?;
        bind(&socket, &SocketAddr::new(source, 0)).map_err(refusal_of("bind"))?;
    }
    let connected = match &to.peer {
        ListenAddress::Tcp(peer) => {
            set_tcp_nodelay(&socket, true).map_err(refusal_of("setsockopt"))?;
            connect(&socket, peer)
        }
        ListenAddress::Unix(path) => {
            let peer = SocketAddrUnix::new(path).map_err(refusal_of("connect"))?;
            connect(&socket, &peer)
        }
    };
    match connected {
        Ok(()) => Ok(Begun { socket, is_in_progress: false }),
        // An interrupted connect continues by itself (connect(2)).
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Begun { socket, is_in_progress: true }),
        Err(errno) => Err(refusal_of("connect")(errno)),
    }
}

fn refusal_of(call: &'static str) -> impl Fn(Errno) -> Refusal {
    move |errno| (call, errno.into())
}
