//! Baseline servers: programs that do the least a server can do, for servers to be compared with.
//!
//! They parse nothing, check nothing and have no deadlines: no server can be meant to beat them,
//! and none may be run in their place. `pollux lab baseline NAME` runs one; the `http` experiment
//! starts it as an arm. They are written on bare system calls, as a C program would be, and not
//! on the poller or the loops that they are a measure for.
//! `raw-uring` leans on the ring of `pollux-sys`, as there is no safe one below it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

mod epoll;
mod reply;
mod uring;

/// Connections that may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaselineServer {
    /// Edge-triggered epoll.
    RawEpoll,
    /// io_uring by completion.
    RawUring,
}

impl BaselineServer {
    /// Every baseline server.
    pub const ALL: [Self; 2] = [Self::RawEpoll, Self::RawUring];

    /// Name on the command line and of the arm.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RawEpoll => "raw-epoll",
            Self::RawUring => "raw-uring",
        }
    }

    /// The baseline server called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|server| server.name() == name)
    }
}

impl fmt::Display for BaselineServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Options of a baseline server.
#[derive(Clone, Copy, Debug)]
pub struct BaselineOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Length of the body of each reply.
    pub reply_bytes: usize,
    /// Whether every reply ends its connection.
    pub closes: bool,
}

/// Runs `server` until the process is ended; `on_listening` receives the address once nothing more can be refused.
///
/// # Errors
/// [`BaselineError`] when the address cannot be obtained or the mechanism fails as a whole. A single
/// connection that fails is closed.
pub fn run(
    server: BaselineServer,
    options: &BaselineOptions,
    on_listening: &mut dyn FnMut(SocketAddr),
) -> Result<(), BaselineError> {
    let listener = listen(options.listen)?;
    let address = rustix::net::getsockname(&listener).map_err(BaselineError::io("getsockname"))?;
    let address = SocketAddr::try_from(address).map_err(BaselineError::io("getsockname"))?;
    let replies = reply::Replies::new(options.reply_bytes, options.closes);
    match server {
        BaselineServer::RawEpoll => {
            let mut server = epoll::Server::open(&listener, &replies)?;
            on_listening(address);
            server.serve()
        }
        BaselineServer::RawUring => {
            let mut server = uring::Server::open(&listener, &replies)?;
            on_listening(address);
            server.serve()
        }
    }
}

/// Why a baseline server could not begin or continue: the network never ends one, only its own mechanism does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// Its listener or its ring could not be obtained.
    #[error("could not set up {what}")]
    Setup {
        /// What was wanted.
        what: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A system call failed that serves all connections.
    #[error("{call} failed")]
    Io {
        call: &'static str,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A ring without a free slot after so many tries.
    #[error("the ring failed: {0}")]
    Ring(String),
}

impl BaselineError {
    fn io(call: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::Io { call, cause: errno.into() }
    }
}

/// A listener that does not block; what it accepts inherits TCP_NODELAY.
fn listen(address: SocketAddr) -> Result<OwnedFd, BaselineError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let open = || -> rustix::io::Result<OwnedFd> {
        let listener = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        // Several processes of a baseline server share the connections that one may not have.
        sockopt::set_socket_reuseport(&listener, true)?;
        sockopt::set_tcp_nodelay(&listener, true)?;
        rustix::net::bind(&listener, &address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(listener)
    };
    open().map_err(|errno| BaselineError::Setup {
        what: format!("a listener on {address}"),
        cause: errno.into(),
    })
}
