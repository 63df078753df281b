//! Addresses of sockets as people write them: `HOST:PORT`, `:PORT`, `[IPV6]:PORT`, `unix:PATH`.
//!
//! Host names are looked up here, and the kernel is asked for IPv6; nothing is opened.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::kind::{Kind, digits};

/// Longest path of a unix socket: `sun_path` holds 108 bytes with the final zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// `HOST:PORT`, `:PORT` (every address of the machine), `[IPV6]:PORT` or `unix:PATH`, as the type
/// that the caller has for both.
#[must_use]
pub fn address<A: From<SocketAddr> + From<PathBuf> + 'static>() -> Kind<A> {
    let accepts = "HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH, such as 127.0.0.1:8080 or :8080";
    Kind::new("ADDRESS", accepts, |text| match text.strip_prefix("unix:") {
        Some(path) => unix(path).map(A::from),
        None => tcp(text).map(A::from),
    })
}

/// `unix:PATH`.
#[must_use]
pub fn unix_path() -> Kind<PathBuf> {
    Kind::new("unix:PATH", "unix:PATH, such as unix:/run/pollux.sock", |text| {
        text.strip_prefix("unix:").map_or_else(|| Err(String::new()), unix)
    })
}

fn tcp(text: &str) -> Result<SocketAddr, String> {
    let Some((host, port)) = text.rsplit_once(':') else {
        let is_port = digits(text).is_some();
        return Err(if is_port { "a port without its colon" } else { "no port" }.to_owned());
    };
    if text.contains("://") {
        return Err("a URL".to_owned());
    }
    let port_number = digits(port).and_then(|port| u16::try_from(port).ok());
    let port = port_number.ok_or_else(|| format!("\"{port}\" is not a port from 0 to 65535"))?;
    if host.is_empty() {
        return Ok(SocketAddr::new(every_address(), port));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err("an IPv6 address without its brackets".to_owned());
    }
    let unknown = |error| format!("\"{host}\" can't be looked up: {error}");
    let mut found = text.to_socket_addrs().map_err(unknown)?;
    found.next().ok_or_else(|| format!("\"{host}\" has no address"))
}

fn unix(path: &str) -> Result<PathBuf, String> {
    match path.len() {
        0 => Err("no path".to_owned()),
        1..=UNIX_PATH_BYTES_MAX => Ok(path.into()),
        _ => Err(format!("a path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes")),
    }
}

/// `::`, which takes IPv4 as well, unless the kernel has no IPv6 (`ipv6(7)`: EAFNOSUPPORT).
fn every_address() -> IpAddr {
    match socket(AddressFamily::INET6, SocketType::STREAM, None) {
        Err(Errno::AFNOSUPPORT) => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq, Debug)]
    enum Address {
        Tcp(SocketAddr),
        Unix(PathBuf),
    }

    impl From<SocketAddr> for Address {
        fn from(address: SocketAddr) -> Self {
            Self::Tcp(address)
        }
    }

    impl From<PathBuf> for Address {
        fn from(path: PathBuf) -> Self {
            Self::Unix(path)
        }
    }

    #[test]
    fn addresses_are_sockets_of_two_kinds() {
        let kind = address::<Address>();
        let tcp = |text: &str| Address::Tcp(text.parse().expect("an address"));
        assert_eq!(kind.judge("127.0.0.1:80", ""), Ok(tcp("127.0.0.1:80")));
        assert_eq!(kind.judge("[::1]:0", ""), Ok(tcp("[::1]:0")));
        assert_eq!(kind.judge("unix:/a b", ""), Ok(Address::Unix("/a b".into())));
        let Ok(Address::Tcp(every)) = kind.judge(":8080", "") else { panic!("TCP") };
        assert!(every.ip().is_unspecified() && every.port() == 8080, "{every}");
    }

    #[test]
    fn what_is_not_an_address_is_answered_with_the_reason() {
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, why) in [
            ("", "no port; expected HOST:PORT"),
            ("localhost", "no port"),
            ("8080", "a port without its colon; expected HOST:PORT, :PORT"),
            ("http://localhost:80/", "a URL; expected"),
            (":x", "\"x\" is not a port from 0 to 65535"),
            ("127.0.0.1:70000", "\"70000\" is not a port"),
            ("::1:80", "without its brackets"),
            ("unix:", "no path"),
            (&long, "at most 107 bytes"),
        ] {
            let told = address::<Address>().judge(text, "").expect_err(text);
            assert!(told.starts_with(why) || told.contains(why), "{text}: {told}");
        }
        let told = unix_path().judge("127.0.0.1:80", "").expect_err("TCP");
        assert_eq!(told, "expected unix:PATH, such as unix:/run/pollux.sock");
    }
}
