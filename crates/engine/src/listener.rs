//! Sockets that connections come from: how they are opened, and the accept call.
//!
//! Both loops accept through [`accept`], so that limits and errors mean the same everywhere.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay, socket_acceptconn,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, acceptfrom_with, bind,
    connect, getsockname, listen, socket_with,
};

use crate::ListenAddress;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Why there is no listener.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// The text is not an address.
    Address {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something else is at the path of a unix socket, or a server listens there.
    Occupied {
        /// The path.
        path: PathBuf,
        /// What is there.
        why: &'static str,
    },
    /// A system call failed.
    System {
        /// Name of the call.
        call: &'static str,
        /// Where we wanted to listen.
        address: String,
        /// What the kernel said.
        cause: io::Error,
    },
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { text, why } => write!(
                f,
                "\"{text}\" is not an address to listen on ({why}); expected HOST:PORT, :PORT, \
                 [IPV6]:PORT or unix:PATH"
            ),
            Self::Occupied { path, why } => write!(f, "{}: {why}", path.display()),
            Self::System { call, address, .. } => write!(f, "{call} on {address} failed"),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

impl ListenError {
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Address { .. } => io::ErrorKind::InvalidInput,
            Self::Occupied { .. } => io::ErrorKind::AddrInUse,
            Self::System { cause, .. } => cause.kind(),
        }
    }
}

/// With the kind of its cause; the error itself is inside.
impl From<ListenError> for io::Error {
    fn from(error: ListenError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// A bound socket that takes connections.
///
/// ```
/// use pollux_engine::{ListenAddress, Listener};
///
/// let listener = Listener::open(&"127.0.0.1:0".parse()?, false)?;
/// let ListenAddress::Tcp(address) = listener.address() else { unreachable!("a TCP address") };
/// assert_ne!(address.port(), 0, "the kernel chose one");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: ListenAddress,
}

impl Listener {
    /// Whether [`Listener::open`] would work, or would once a server that listens there has ended: false for a
    /// TCP address that is in use. Nothing is listened on, made or removed.
    ///
    /// # Errors
    /// [`ListenError`], as there.
    pub fn check(address: &ListenAddress) -> Result<bool, ListenError> {
        let fail = |call: &'static str, cause: io::Error| ListenError::System {
            call,
            address: address.to_string(),
            cause,
        };
        match address {
            ListenAddress::Tcp(tcp) => match bind_tcp(tcp, false) {
                Ok(_) => Ok(true),
                Err((_, Errno::ADDRINUSE)) => Ok(false),
                Err((call, errno)) => Err(fail(call, errno.into())),
            },
            ListenAddress::Unix(path) => {
                is_socket(path)?;
                SocketAddrUnix::new(path).map_err(|errno| fail("bind", errno.into()))?;
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new("."));
                let access = Access::WRITE_OK | Access::EXEC_OK;
                let writable = accessat(CWD, folder, access, AtFlags::EACCESS);
                writable.map(|()| true).map_err(|errno| fail("bind", errno.into()))
            }
        }
    }

    /// Binds and listens. `shares_port` sets SO_REUSEPORT, for one listener per thread.
    ///
    /// A unix socket that was left behind, on which no server listens, is removed first.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn open(address: &ListenAddress, shares_port: bool) -> Result<Self, ListenError> {
        let socket = match address {
            ListenAddress::Tcp(tcp) => open_tcp(tcp, shares_port),
            ListenAddress::Unix(path) => {
                remove_stale(path)?;
                open_unix(path)
            }
        };
        let fail = |(call, errno): (&'static str, Errno)| ListenError::System {
            call,
            address: address.to_string(),
            cause: errno.into(),
        };
        let socket = socket.map_err(fail)?;
        let address = match address {
            ListenAddress::Tcp(_) => {
                let bound = getsockname(&socket).map_err(|errno| fail(("getsockname", errno)))?;
                let bound = SocketAddr::try_from(bound);
                ListenAddress::Tcp(bound.map_err(|errno| fail(("getsockname", errno)))?)
            }
            unix @ ListenAddress::Unix(_) => unix.clone(),
        };
        Ok(Self { socket, address })
    }

    /// Where it listens, with the port that the kernel chose.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// The descriptor of the same open socket once more, for another thread's poller.
    ///
    /// # Errors
    /// EMFILE.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, address: self.address.clone() })
    }

    /// Takes one connection that waits, for a program that accepts by itself and gives what it took to
    /// a loop ([`Command::Adopt`](crate::Command::Adopt)). Never waits. Connections that their
    /// peer, or the network, gave up meanwhile are passed over.
    ///
    /// # Errors
    /// `WouldBlock`: none waits. No descriptor or memory is left (EMFILE, ENFILE, ENOBUFS, ENOMEM): later ones
    /// can still be accepted.
    pub fn accept(&self) -> io::Result<AcceptedSocket> {
        loop {
            let errno = match acceptfrom_with(&self.socket, FLAGS) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    return Ok(AcceptedSocket { socket, peer });
                }
                Err(errno) => errno,
            };
            if !matches!(Accepted::failed(errno), Accepted::Aborted) {
                return Err(errno.into());
            }
        }
    }

    /// A socket that another process bound and that listens already: a loop never waits in an accept,
    /// and small writes go at once, whatever that process wanted.
    ///
    /// # Errors
    /// It is something else, or of a family that is not served.
    pub(crate) fn inherited(socket: OwnedFd) -> io::Result<Self> {
        if !socket_acceptconn(&socket)? {
            return Err(io::Error::other("a socket that does not listen"));
        }
        let address = ListenAddress::of(getsockname(&socket)?);
        let address = address.ok_or_else(|| io::Error::other("a socket of another family"))?;
        ioctl_fionbio(&socket, true)?;
        if matches!(address, ListenAddress::Tcp(_)) {
            set_tcp_nodelay(&socket, true)?;
        }
        Ok(Self { socket, address })
    }

    pub(crate) fn as_socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes TCP_NODELAY from connections that are accepted from now on.
    pub(crate) fn delay_small_writes(&self) -> io::Result<()> {
        Ok(set_tcp_nodelay(&self.socket, false)?)
    }

    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }
}

/// For programs that wait for connections by themselves. The socket is non-blocking.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A connection that [`Listener::accept`] gave and that no loop has yet: a stream socket, non-blocking and
/// close-on-exec, with TCP_NODELAY where its listener has it. Dropping it closes it.
#[derive(Debug)]
pub struct AcceptedSocket {
    pub(crate) socket: OwnedFd,
    peer: Option<SocketAddr>,
}

impl AcceptedSocket {
    /// The peer's address; none for unix sockets.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }
}

/// For programs that do something else with it.
impl From<AcceptedSocket> for OwnedFd {
    fn from(accepted: AcceptedSocket) -> Self {
        accepted.socket
    }
}

/// How every stream socket of a loop is made and accepted.
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// A socket that is neither bound nor connected.
pub(crate) fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, FLAGS, None)
}

fn open_tcp(address: &SocketAddr, shares_port: bool) -> Result<OwnedFd, (&'static str, Errno)> {
    let socket = bind_tcp(address, shares_port)?;
    listen(&socket, BACKLOG).map_err(|errno| ("listen", errno))?;
    Ok(socket)
}

fn bind_tcp(address: &SocketAddr, shares_port: bool) -> Result<OwnedFd, (&'static str, Errno)> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = stream_socket(family).map_err(|errno| ("socket", errno))?;
    let option = |errno| ("setsockopt", errno);
    set_socket_reuseaddr(&socket, true).map_err(option)?;
    if shares_port {
        set_socket_reuseport(&socket, true).map_err(option)?;
    }
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, false).map_err(option)?;
    }
    // Accepted sockets inherit it, which saves a call for each.
    set_tcp_nodelay(&socket, true).map_err(option)?;
    bind(&socket, address).map_err(|errno| ("bind", errno))?;
    Ok(socket)
}

fn open_unix(path: &Path) -> Result<OwnedFd, (&'static str, Errno)> {
    let socket = stream_socket(AddressFamily::UNIX).map_err(|errno| ("socket", errno))?;
    let address = SocketAddrUnix::new(path).map_err(|errno| ("bind", errno))?;
    bind(&socket, &address).map_err(|errno| ("bind", errno))?;
    listen(&socket, BACKLOG).map_err(|errno| ("listen", errno))?;
    Ok(socket)
}

/// Removes the socket that a server left behind; anything else at the path stays.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let occupied = |why| ListenError::Occupied { path: path.to_owned(), why };
    if !is_socket(path)? {
        return Ok(());
    }
    let fail = |call, cause: io::Error| {
        let address = format!("unix:{}", path.display());
        ListenError::System { call, address, cause }
    };
    // Non-blocking: a server that hangs, with its queue full, would hang this one as well.
    let probe = stream_socket(AddressFamily::UNIX).map_err(|errno| fail("socket", errno.into()))?;
    let address = SocketAddrUnix::new(path).map_err(|errno| fail("bind", errno.into()))?;
    match connect(&probe, &address) {
        Err(Errno::CONNREFUSED) => {
            std::fs::remove_file(path).map_err(|cause| fail("unlink", cause))
        }
        Ok(()) | Err(Errno::AGAIN) => Err(occupied("a server listens here already")),
        Err(errno) => Err(fail("connect", errno.into())),
    }
}

/// Whether a socket is at the path, or nothing.
fn is_socket(path: &Path) -> Result<bool, ListenError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(false) };
    if found.file_type().is_socket() {
        return Ok(true);
    }
    let why = "a file that is not a socket is here: choose another path";
    Err(ListenError::Occupied { path: path.to_owned(), why })
}

/// The outcome of one accept call.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A connection.
    Socket(OwnedFd),
    /// No connection waits.
    Empty,
    /// The peer, or the network, gave this one up: the next may be well.
    Aborted,
    /// No descriptor or memory is left: try again later.
    Exhausted(Errno),
    /// The listener itself is broken.
    Broken(Errno),
}

/// Takes one connection, non-blocking and close-on-exec.
///
/// `accept(2)`: network errors of the new connection come as errors of the call and mean only
/// that connection.
pub(crate) fn accept(listener: impl AsFd) -> Accepted {
    match accept_with(listener, FLAGS) {
        Ok(socket) => Accepted::Socket(socket),
        Err(errno) => Accepted::failed(errno),
    }
}

impl Accepted {
    /// What it means that an accept failed with `errno`, as a call or as a request.
    pub(crate) fn failed(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Empty,
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Self::Exhausted(errno),
            Errno::CONNABORTED
            | Errno::INTR
            | Errno::PROTO
            | Errno::PERM
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
            | Errno::TIMEDOUT => Self::Aborted,
            _ => Self::Broken(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_zero_becomes_the_port_that_was_chosen() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(&any, false).expect("opened");
        let ListenAddress::Tcp(address) = listener.address() else { panic!("TCP") };
        assert_ne!(address.port(), 0);
        assert!(matches!(accept(&listener.socket), Accepted::Empty));
    }

    #[test]
    fn an_address_is_checked_and_nothing_is_listened_on() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let tcp = |address: SocketAddr| Listener::check(&ListenAddress::Tcp(address));
        let taken = tcp(taken.local_addr().expect("bound"));
        assert!(!taken.expect("a server that runs may have it"), "it is in use");
        assert!(tcp("127.0.0.1:0".parse().expect("an address")).expect("right"), "it is free");
        let elsewhere = tcp("192.0.2.1:80".parse().expect("an address")).expect_err("not ours");
        assert!(matches!(elsewhere, ListenError::System { call: "bind", .. }), "{elsewhere:?}");
        let unix = |path: &str| Listener::check(&ListenAddress::Unix(path.into()));
        let name = std::env::temp_dir().join(format!("pollux-check-{}", std::process::id()));
        unix(&name.display().to_string()).expect("it could be made");
        assert!(!name.exists());
        unix("/no/such/folder/s").expect_err("no folder");
        unix("/etc/passwd").expect_err("a file");
        unix(&format!("/tmp/{}", "x".repeat(200))).expect_err("too long");
    }

    #[test]
    fn a_left_over_unix_socket_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("pollux-listen-{}", std::process::id()));
        let address = ListenAddress::Unix(path.clone());
        let first = Listener::open(&address, false).expect("a free path");
        let refused = Listener::open(&address, false).expect_err("in use");
        assert!(matches!(refused, ListenError::Occupied { .. }), "{refused}");
        drop(first);
        let second = Listener::open(&address, false).expect("no server listens there");
        drop(second);
        std::fs::remove_file(&path).expect("ours");
        std::fs::write(&path, "text").expect("written");
        assert!(Listener::open(&address, false).is_err());
        std::fs::remove_file(&path).expect("ours");
        let datagrams = std::os::unix::net::UnixDatagram::bind(&path).expect("bound");
        let refused = Listener::open(&address, false).expect_err("another kind of socket");
        assert!(matches!(refused, ListenError::System { call: "connect", .. }), "{refused}");
        drop(datagrams);
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_unix_listener_whose_queue_is_full_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("pollux-full-{}", std::process::id()));
        let address = ListenAddress::Unix(path.clone());
        let first = Listener::open(&address, false).expect("a free path");
        listen(&first.socket, 0).expect("a queue of one");
        let _waiting = std::os::unix::net::UnixStream::connect(&path).expect("queued");
        let refused = Listener::open(&address, false).expect_err("in use");
        assert!(matches!(refused, ListenError::Occupied { .. }), "{refused}");
        std::fs::remove_file(&path).expect("ours");
    }
}
