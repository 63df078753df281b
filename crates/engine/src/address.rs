//! Addresses as users write them: read without a lookup, so that a name is still a name; and the lookup.
//!
//! Settings keep an [`Address`]; who opens sockets, or connects, looks it up where a wait does no harm. A loop never does:
//! getaddrinfo(3) blocks for as long as name servers let it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::{ListenAddress, ListenError};

/// Longest path of a unix socket: `sun_path` holds 108 bytes with the final zero.
const UNIX_PATH_BYTES_MAX: usize = 107;
/// Longest name of a host (RFC 1035 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// Where a server listens, and a client finds it, as it was written: the name of a host is not looked up.
///
/// ```
/// use pollux_engine::Address;
///
/// let name: Address = "localhost:8080".parse()?;
/// assert!(matches!(&name, Address::Name { host, port: 8080 } if host == "localhost"));
/// assert!(matches!("[::1]:80".parse()?, Address::Known(_)));
/// # Ok::<(), pollux_engine::ListenError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// One that needs no lookup.
    Known(ListenAddress),
    /// The name of a host, which may have several addresses.
    Name {
        /// The name.
        host: String,
        /// The port on each of its addresses.
        port: u16,
    },
}

impl Address {
    /// Its port; none of a unix socket.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Known(ListenAddress::Tcp(tcp)) => Some(tcp.port()),
            Self::Known(ListenAddress::Unix(_)) => None,
            Self::Name { port, .. } => Some(*port),
        }
    }

    /// All addresses, in the order in which the system wants them tried (RFC 6724), each once. Blocks for a name: not for
    /// the thread of a loop.
    ///
    /// # Errors
    /// The name can't be looked up, or has no address.
    pub fn look_up(&self) -> io::Result<Vec<ListenAddress>> {
        match self {
            Self::Known(address) => Ok(vec![address.clone()]),
            Self::Name { host, port } => {
                let found = look_up(host)?;
                Ok(found.into_iter().map(|ip| SocketAddr::new(ip, *port).into()).collect())
            }
        }
    }
}

/// All addresses of a host, in the order in which the system wants them tried (RFC 6724), each once. Blocks.
///
/// # Errors
/// The name can't be looked up, or has no address.
pub fn look_up(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    let found = (host, 0).to_socket_addrs().map_err(|error| {
        let text = error.to_string();
        let why = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
        io::Error::new(error.kind(), why)
    });
    for found in found? {
        if !addresses.contains(&found.ip()) {
            addresses.push(found.ip());
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    }
    Ok(addresses)
}

impl FromStr for Address {
    type Err = ListenError;

    /// `HOST:PORT`, `:PORT` (every address of the machine), `[IPv6]:PORT`, `[IPv6%INTERFACE]:PORT` or `unix:PATH`. An
    /// address without a host depends on whether the kernel has IPv6; nothing stays open.
    fn from_str(text: &str) -> Result<Self, ListenError> {
        let read = match text.strip_prefix("unix:") {
            Some(path) => unix(path).map(Self::Known),
            None => tcp(text),
        };
        read.map_err(|why| ListenError::Address { text: text.to_owned(), why })
    }
}

impl From<ListenAddress> for Address {
    fn from(address: ListenAddress) -> Self {
        Self::Known(address)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Known(address.into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

fn unix(path: &str) -> Result<ListenAddress, String> {
    match path.len() {
        0 => Err("no path".to_owned()),
        1..=UNIX_PATH_BYTES_MAX => Ok(ListenAddress::Unix(PathBuf::from(path))),
        _ => Err(format!("a path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes")),
    }
}

fn tcp(text: &str) -> Result<Address, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((host, port)) = text.rsplit_once(':').filter(|_| !text.ends_with(']')) else {
        let why = if is_number(text) { "a port without its colon" } else { "no port" };
        return Err(why.to_owned());
    };
    if text.contains("://") {
        return Err("a URL".to_owned());
    }
    let number = port.parse().ok().filter(|_| is_number(port));
    let port = number.ok_or_else(|| format!("\"{port}\" is not a port from 0 to 65535"))?;
    if host.is_empty() || host == "*" {
        return Ok(SocketAddr::new(every_address(), port).into());
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return ipv6(inner, port).map(Address::from);
    }
    if host.contains(':') {
        return Err("an IPv6 address without its brackets".to_owned());
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(SocketAddr::new(ip.into(), port).into());
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.len() > NAME_BYTES_MAX || !host.bytes().all(is_of_name) {
        return Err(format!("\"{host}\" is not the name of a host"));
    }
    Ok(Address::Name { host: host.to_owned(), port })
}

/// An IPv6 address, with the number or the name of an interface behind `%` where it is of one link (RFC 4007 11).
fn ipv6(text: &str, port: u16) -> Result<SocketAddr, String> {
    let (ip, scope) = text.split_once('%').unwrap_or((text, ""));
    let address: Ipv6Addr = ip.parse().map_err(|_| format!("\"{ip}\" is not an IPv6 address"))?;
    if ip.len() == text.len() {
        // The kernel refuses it as EINVAL, and only once it is used.
        if address.is_unicast_link_local() {
            return Err(format!("{ip} needs the interface of its link, such as [{ip}%eth0]"));
        }
        return Ok(SocketAddr::new(address.into(), port));
    }
    let is_sound = !scope.is_empty() && !scope.contains('%');
    // getaddrinfo(3) knows the numbers of interfaces; it asks no name server for an address.
    let mut found = (text, port).to_socket_addrs().ok().filter(|_| is_sound).into_iter().flatten();
    found.next().ok_or_else(|| {
        if address.is_unicast_link_local() {
            format!("this machine has no interface \"{scope}\"")
        } else {
            format!("\"%{scope}\" belongs to an address of one link (fe80::/10)")
        }
    })
}

/// `::`, which takes IPv4 as well, unless the kernel has no IPv6 (`ipv6(7)`: EAFNOSUPPORT).
fn every_address() -> IpAddr {
    match socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
        Err(Errno::AFNOSUPPORT) => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_a_name_and_an_address_is_known() {
        for text in ["127.0.0.1:8080", "[::]:80", "unix:/run/pollux.sock", "[2001:db8::1]:443"] {
            let Ok(Address::Known(known)) = text.parse() else { panic!("{text}") };
            assert_eq!(known.to_string(), text);
            assert_eq!(Address::Known(known.clone()).look_up().expect("known"), [known]);
        }
        for text in ["localhost:0", "app.invalid:80", "a_b-c.d.:1", "x:65535"] {
            let Ok(name @ Address::Name { .. }) = text.parse() else { panic!("{text}") };
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn an_address_of_one_link_has_its_interface_by_name_or_number() {
        let scope_of = |text: &str| match text.parse() {
            Ok(Address::Known(ListenAddress::Tcp(SocketAddr::V6(address)))) => address.scope_id(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(scope_of("[fe80::1%1]:80"), 1);
        let by_name = scope_of("[fe80::1%lo]:80");
        assert_eq!(by_name, scope_of(&format!("[fe80::1%{by_name}]:80")));
        assert_ne!(by_name, 0);
        for text in ["[fe80::1%]:80", "[fe80::1%no-such-one]:80", "[fe80::1%1%1]:80"] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("no interface"), "{error}");
        }
        let other = "[::1%lo]:80".parse::<Address>().expect_err("of no link").to_string();
        assert!(other.contains("fe80::/10"), "{other}");
        let bare = "[fe80::1]:80".parse::<Address>().expect_err("which link?").to_string();
        assert!(
            bare.contains("fe80::1 needs the interface of its link, such as [fe80::1%eth0]"),
            "{bare}"
        );
        assert!("[fe80:1]:80".parse::<Address>().is_err());
    }

    #[test]
    fn a_lookup_gives_every_address_once_or_says_why_not() {
        let name = Address::Name { host: "localhost".to_owned(), port: 7 };
        let found = name.look_up().expect("every machine has it");
        for (at, address) in found.iter().enumerate() {
            let ListenAddress::Tcp(tcp) = address else { panic!("{address}") };
            assert!(tcp.ip().is_loopback() && tcp.port() == 7, "{tcp}");
            assert!(!found[..at].contains(address), "{found:?}");
        }
        let unknown = Address::Name { host: "pollux.invalid".to_owned(), port: 7 };
        unknown.look_up().expect_err("RFC 6761 6.4");
    }
}
