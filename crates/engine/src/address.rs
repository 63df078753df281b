//! Addresses as users write them: TCP, and paths of unix sockets.

use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, socket_with,
};

use crate::ListenError;

/// Longest path of a unix socket: `sun_path` holds 108 bytes with the final zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

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

    /// `HOST:PORT`, `:PORT` (every address of the machine), `[IPv6]:PORT` or `unix:PATH`. Host names are
    /// looked up, and an address without a host depends on whether the kernel has IPv6; nothing stays open.
    fn from_str(text: &str) -> Result<Self, ListenError> {
        let read = match text.strip_prefix("unix:") {
            Some(path) => match path.len() {
                0 => Err("no path".to_owned()),
                1..=UNIX_PATH_BYTES_MAX => Ok(Self::Unix(path.into())),
                _ => {
                    Err(format!("a path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes"))
                }
            },
            None => tcp(text).map(Self::Tcp),
        };
        read.map_err(|why| ListenError::Address { text: text.to_owned(), why })
    }
}

fn tcp(text: &str) -> Result<SocketAddr, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((host, port)) = text.rsplit_once(':').filter(|_| !text.ends_with(']')) else {
        let why = if is_number(text) { "a port without its colon" } else { "no port" };
        return Err(why.to_owned());
    };
    if text.contains("://") {
        return Err("a URL".to_owned());
    }
    let number = port.parse().ok().filter(|_| is_number(port));
    let number = number.ok_or_else(|| format!("\"{port}\" is not a port from 0 to 65535"))?;
    if host.is_empty() || host == "*" {
        return Ok(SocketAddr::new(every_address(), number));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err("an IPv6 address without its brackets".to_owned());
    }
    let unknown = |error| format!("\"{host}\" can't be looked up: {error}");
    let mut found = text.to_socket_addrs().map_err(unknown)?;
    found.next().ok_or_else(|| format!("\"{host}\" has no address"))
}

/// `::`, which takes IPv4 as well, unless the kernel has no IPv6 (`ipv6(7)`: EAFNOSUPPORT).
fn every_address() -> IpAddr {
    match socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
        Err(Errno::AFNOSUPPORT) => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
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
}
