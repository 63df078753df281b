//! The addresses of sockets that listen, and the listening sockets of a group, apart from its loops.
//!
//! Sockets are opened before the loops, so that their addresses are known to the code that makes what the sessions
//! share; kept by a parent perhaps, which hands them from one process to the next. Connections that
//! wait in a socket's queue belong to the socket: they are lost only when its last descriptor is
//! closed.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::net::{SocketAddrAny, SocketAddrUnix};

use crate::{Address, ListenError, Listener};

/// Where a server listens, and a client finds it.
///
/// ```
/// use pollux_engine::ListenAddress;
///
/// let tcp: ListenAddress = "127.0.0.1:8080".parse()?;
/// assert_eq!(tcp, ListenAddress::Tcp(([127, 0, 0, 1], 8080).into()));
/// let unix: ListenAddress = "unix:/run/server.sock".parse()?;
/// assert_eq!(unix.to_string(), "unix:/run/server.sock");
/// # Ok::<(), pollux_engine::ListenError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenAddress {
    /// TCP; port 0 lets the kernel choose. `[::]` takes IPv4 as well.
    Tcp(SocketAddr),
    /// A unix stream socket with this path.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = ListenError;

    /// As an [`Address`]; a host name is looked up, and its first address taken.
    fn from_str(text: &str) -> Result<Self, ListenError> {
        let written: Address = text.parse()?;
        let unknown = |error| match &written {
            Address::Name { host, .. } => format!("\"{host}\" can't be looked up: {error}"),
            Address::Known(known) => format!("{known}: {error}"),
        };
        let found = written.look_up().map_err(unknown);
        let why = match found {
            Ok(found) => return Ok(found.into_iter().next().expect("one at least")),
            Err(why) => why,
        };
        Err(ListenError::Address { text: text.to_owned(), why })
    }
}

impl ListenAddress {
    /// The address of a socket; none of other families, and of unix sockets without a path.
    pub(crate) fn of(address: SocketAddrAny) -> Option<Self> {
        if let Ok(unix) = SocketAddrUnix::try_from(address.clone()) {
            let path = OsStr::from_bytes(unix.path_bytes()?);
            return (!path.is_empty()).then(|| Self::Unix(path.into()));
        }
        SocketAddr::try_from(address).ok().map(Self::Tcp)
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl From<PathBuf> for ListenAddress {
    fn from(path: PathBuf) -> Self {
        Self::Unix(path)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How connections are distributed over the loops of a group.
///
/// ```text
///  reuseport   a listener of its own for each loop; the kernel spreads connections by hash
///  shared      the same, and loops of other processes may have the port as well
///  exclusive   one listener, watched by all loops; the kernel wakes one of them
///  single      the first loop accepts and hands connections to the one with the fewest
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Listeners {
    /// A listener for each loop on the same port (SO_REUSEPORT). Unix sockets are shared.
    #[default]
    Reuseport,
    /// The same, also for one loop: other processes of this user may listen on the port too.
    Shared,
    /// One listener that all loops watch, exclusively where the mechanism can.
    Exclusive,
    /// One loop accepts for all.
    Single,
}

impl Listeners {
    /// All of them, in the order of help texts.
    pub const ALL: [Self; 4] = [Self::Reuseport, Self::Shared, Self::Exclusive, Self::Single];

    /// Name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reuseport => "reuseport",
            Self::Shared => "shared",
            Self::Exclusive => "exclusive",
            Self::Single => "single",
        }
    }
}

impl fmt::Display for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Listeners {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|known| known.name() == name);
        let known = Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("no such listener strategy; expected {known}"))
    }
}

/// The listeners of a loop, each with whether other loops take connections from it too.
pub(crate) type LoopListeners = Vec<(Listener, bool)>;

/// Sockets that listen: for each address one, or one for each loop.
///
/// ```
/// use pollux_engine::{Listeners, Sockets};
/// use std::os::fd::OwnedFd;
///
/// let sockets = Sockets::open(&["127.0.0.1:0".parse()?], Listeners::Reuseport, 2)?;
/// let each: Vec<usize> = sockets.descriptors().map(|each| each.len()).collect();
/// assert_eq!(each, [2], "one for each loop");
///
/// // Another process that has the descriptors continues with the same queues of connections.
/// let descriptors = sockets.descriptors().map(|each| {
///     each.into_iter().map(|fd| fd.try_clone_to_owned()).collect::<Result<Vec<OwnedFd>, _>>()
/// });
/// let inherited = Sockets::inherited(descriptors.collect::<Result<_, _>>()?)?;
/// assert_eq!(inherited.addresses(), sockets.addresses());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Group::start_on`](crate::Group::start_on) runs loops on them.
#[derive(Debug)]
pub struct Sockets {
    by_address: Vec<Vec<Listener>>,
}

impl Sockets {
    /// Opens what `threads` loops need that share the addresses in this way.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn open(
        listen: &[ListenAddress],
        listeners: Listeners,
        threads: usize,
    ) -> Result<Self, ListenError> {
        let open = |address| open_for(address, listeners, threads);
        Ok(Self { by_address: listen.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Sockets that another process opened: for each address the descriptors that it has.
    ///
    /// # Errors
    /// One is not a socket that listens, or an address has none.
    pub fn inherited(by_address: Vec<Vec<OwnedFd>>) -> io::Result<Self> {
        let all = |sockets: Vec<OwnedFd>| {
            if sockets.is_empty() {
                return Err(io::Error::other("an address without a socket"));
            }
            sockets.into_iter().map(Listener::inherited).collect()
        };
        Ok(Self { by_address: by_address.into_iter().map(all).collect::<io::Result<_>>()? })
    }

    /// Where they listen, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.by_address.iter().map(|sockets| sockets[0].address().clone()).collect()
    }

    /// The descriptors, for each address.
    pub fn descriptors(&self) -> impl Iterator<Item = Vec<BorrowedFd<'_>>> {
        self.by_address.iter().map(|sockets| sockets.iter().map(Listener::as_socket).collect())
    }

    /// Puts the addresses of `others` behind these.
    pub fn append(&mut self, others: Self) {
        self.by_address.extend(others.by_address);
    }

    /// The same open sockets once more.
    ///
    /// # Errors
    /// EMFILE.
    pub fn duplicate(&self) -> io::Result<Self> {
        let all = |sockets: &Vec<Listener>| sockets.iter().map(Listener::duplicate).collect();
        Ok(Self { by_address: self.by_address.iter().map(all).collect::<io::Result<_>>()? })
    }

    /// The paths of unix sockets, which stay when the sockets are closed.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let path = |address| match address {
            ListenAddress::Unix(path) => Some(path),
            ListenAddress::Tcp(_) => None,
        };
        self.addresses().into_iter().filter_map(path).collect()
    }

    pub(crate) fn delay_small_writes(&self) -> io::Result<()> {
        let tcp = |listener: &&Listener| matches!(listener.address(), ListenAddress::Tcp(_));
        self.by_address.iter().flatten().filter(tcp).try_for_each(Listener::delay_small_writes)
    }

    /// What each of `threads` loops listens on, with whether others take connections from it too.
    /// Every socket belongs to a loop: what waits in its queue must be taken.
    pub(crate) fn share_out(
        self,
        listeners: Listeners,
        threads: usize,
    ) -> io::Result<Vec<LoopListeners>> {
        let threads_that_accept = if listeners == Listeners::Single { 1 } else { threads };
        let mut by_loop: Vec<LoopListeners> = (0..threads).map(|_| Vec::new()).collect();
        for sockets in self.by_address {
            let count = sockets.len();
            let is_shared = count < threads_that_accept;
            for index in count..threads_that_accept {
                by_loop[index].push((sockets[index % count].duplicate()?, is_shared));
            }
            for (index, socket) in sockets.into_iter().enumerate() {
                by_loop[index % threads_that_accept].push((socket, is_shared));
            }
        }
        Ok(by_loop)
    }
}

fn open_for(
    address: &ListenAddress,
    listeners: Listeners,
    threads: usize,
) -> Result<Vec<Listener>, ListenError> {
    let is_tcp = matches!(address, ListenAddress::Tcp(_));
    let own = match listeners {
        Listeners::Reuseport => is_tcp && threads > 1,
        Listeners::Shared => is_tcp,
        Listeners::Exclusive | Listeners::Single => false,
    };
    if own && listeners == Listeners::Reuseport {
        // Only a socket that does not share finds out that another server is on this port.
        drop(Listener::open(address, false)?);
    }
    let mut sockets = vec![Listener::open(address, own)?];
    let bound = sockets[0].address().clone();
    for _ in 1..if own { threads } else { 1 } {
        sockets.push(Listener::open(&bound, true)?);
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["127.0.0.1:8080", "[::]:80", "unix:/run/pollux.sock"] {
            assert_eq!(text.parse::<ListenAddress>().expect("an address").to_string(), text);
        }
        let error = "8080".parse::<ListenAddress>().expect_err("no host");
        assert!(error.to_string().contains("HOST:PORT"), "{error}");
        for text in [":8080", "*:8080"] {
            let Ok(ListenAddress::Tcp(every)) = text.parse() else { panic!("{text}") };
            assert!(every.ip().is_unspecified() && every.port() == 8080, "{every}");
        }
    }

    #[test]
    fn wrong_addresses_say_which_part_is_wrong() {
        for (text, part) in [
            ("", "no port"),
            ("localhost", "no port"),
            ("8080", "a port without its colon"),
            ("http://localhost:80/", "a URL"),
            (":+1", "\"+1\" is not a port from 0 to 65535"),
            ("127.0.0.1:99999", "\"99999\" is not a port"),
            ("127.0.0.1:", "\"\" is not a port"),
            ("[::1]", "no port"),
            ("::1:80", "brackets"),
            ("[::1:80", "brackets"),
            ("pollux.invalid:80", "\"pollux.invalid\" can't be looked up"),
            ("unix:", "no path"),
            (&format!("unix:/{}", "x".repeat(107)), "at most 107 bytes"),
        ] {
            match text.parse::<ListenAddress>() {
                Err(ListenError::Address { why, .. }) => assert!(why.contains(part), "{why}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    fn shares(sockets: usize, listeners: Listeners, threads: usize) -> Vec<(usize, bool)> {
        let any = ["127.0.0.1:0".parse().expect("an address")];
        let all = Sockets::open(&any, Listeners::Shared, sockets).expect("opened");
        let by_loop = all.share_out(listeners, threads).expect("descriptors are left");
        let share = |each: &LoopListeners| (each.len(), each.first().is_some_and(|each| each.1));
        by_loop.iter().map(share).collect()
    }

    #[test]
    fn every_socket_is_watched_however_many_loops_there_are() {
        use Listeners::{Exclusive, Reuseport, Single};
        assert_eq!(shares(2, Reuseport, 2), [(1, false), (1, false)]);
        // After a change of the number of threads.
        assert_eq!(shares(4, Reuseport, 2), [(2, false), (2, false)]);
        assert_eq!(shares(2, Reuseport, 3), [(1, true), (1, true), (1, true)]);
        assert_eq!(shares(1, Exclusive, 2), [(1, true), (1, true)]);
        assert_eq!(shares(1, Exclusive, 1), [(1, false)]);
        assert_eq!(shares(3, Single, 2), [(3, false), (0, false)]);
    }

    #[test]
    fn inherited_sockets_have_their_addresses_and_nothing_else_is_taken() {
        let path = std::env::temp_dir().join(format!("pollux-inherit-{}", std::process::id()));
        let any = ["127.0.0.1:0".parse().expect("an address"), ListenAddress::Unix(path.clone())];
        let mut opened = Sockets::open(&any, Listeners::Reuseport, 2).expect("opened");
        let fds = opened.descriptors().map(|fds| {
            fds.into_iter().map(|fd| fd.try_clone_to_owned().expect("a descriptor")).collect()
        });
        let inherited = Sockets::inherited(fds.collect()).expect("they listen");
        assert_eq!(inherited.addresses(), opened.addresses());
        assert_eq!(inherited.descriptors().map(|fds| fds.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(inherited.paths(), std::slice::from_ref(&path));
        opened.append(inherited);
        assert_eq!(opened.addresses().len(), 4);
        let file = OwnedFd::from(std::fs::File::open("/dev/null").expect("opened"));
        Sockets::inherited(vec![vec![file]]).expect_err("not a socket");
        let (stream, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
        Sockets::inherited(vec![vec![stream.into()]]).expect_err("does not listen");
        std::fs::remove_file(&path).expect("ours");
    }
}
