//! What [`EventLoop::adopt`](crate::EventLoop::adopt) takes, and why it refuses the rest.
//!
//! A descriptor from outside is checked once, before a session begins on it: the loops read and
//! write a stream of bytes and never block, and with anything else they would lose data silently
//! (a datagram that does not fit is cut) or stand still.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

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
