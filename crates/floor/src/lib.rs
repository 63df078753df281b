//! Floors: responders that do the least a server can do, for servers to be compared with.
//!
//! They parse nothing, check nothing and have no deadlines: no server can be meant to beat them,
//! and none may be run in their place. `pollux lab floor NAME` runs one; the `http` experiment
//! starts it as an arm. They are written on bare system calls, as a C program would be, and not
//! on the poller or the loops that they are a measure for.
//! `raw-uring` leans on the ring of `pollux-sys`, as there is no safe one below it.
#![forbid(unsafe_code)]

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

mod epoll;
mod error;
mod reply;
mod uring;

pub use error::FloorError;

/// Connections that may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Which floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Floor {
    /// Edge-triggered epoll.
    RawEpoll,
    /// io_uring by completion.
    RawUring,
}

impl Floor {
    /// Every floor.
    pub const ALL: [Self; 2] = [Self::RawEpoll, Self::RawUring];

    /// Name on the command line and of the arm.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RawEpoll => "raw-epoll",
            Self::RawUring => "raw-uring",
        }
    }

    /// The floor called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|floor| floor.name() == name)
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a floor is told.
#[derive(Clone, Copy, Debug)]
pub struct FloorOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Length of the body of each reply.
    pub reply_bytes: usize,
    /// Whether every reply ends its connection.
    pub closes: bool,
}

/// Runs `floor` until the process is ended; `on_listening` hears of the address.
///
/// # Errors
/// [`FloorError`] when the address can't be had or the mechanism fails as a whole. A single
/// connection that fails is closed.
pub fn run(
    floor: Floor,
    options: &FloorOptions,
    on_listening: &mut dyn FnMut(SocketAddr),
) -> Result<(), FloorError> {
    let listener = listen(options.listen)?;
    let address = rustix::net::getsockname(&listener).map_err(FloorError::io("getsockname"))?;
    let address = SocketAddr::try_from(address).map_err(FloorError::io("getsockname"))?;
    let replies = reply::Replies::new(options.reply_bytes, options.closes);
    on_listening(address);
    match floor {
        Floor::RawEpoll => epoll::serve(&listener, &replies),
        Floor::RawUring => uring::serve(&listener, &replies),
    }
}

/// A listener that does not block; what it accepts inherits TCP_NODELAY.
fn listen(address: SocketAddr) -> Result<OwnedFd, FloorError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let open = || -> rustix::io::Result<OwnedFd> {
        let listener = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        // Several processes of a floor share the connections that one may not have.
        sockopt::set_socket_reuseport(&listener, true)?;
        sockopt::set_tcp_nodelay(&listener, true)?;
        rustix::net::bind(&listener, &address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(listener)
    };
    open().map_err(|errno| FloorError::Setup {
        what: format!("a listener on {address}"),
        cause: errno.into(),
    })
}
