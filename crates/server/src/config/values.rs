//! Reads single values as people write them: durations, sizes, addresses, numbers.
//!
//! The builder of the configuration calls these; each answers with the value or with one line
//! that says what is wrong and what would be right. Host names are looked up here, and the kernel is
//! asked for IPv6; nothing else leaves the process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use pollux_engine::{ListenAddress, ListenError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

/// Longest path of a unix socket: `sun_path` holds 108 bytes with the final zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// Reads `HOST:PORT`, `:PORT`, `[IPV6]:PORT` or `unix:PATH`. `:PORT` is every address of the machine.
pub(super) fn address(text: &str) -> Result<ListenAddress, String> {
    let expected =
        "expected HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH, such as 127.0.0.1:8080 or :8080";
    if let Some(port) = text.strip_prefix(':').and_then(plain_number) {
        let port = u16::try_from(port).map_err(|_| "expected a port from 0 to 65535".to_owned())?;
        return Ok(ListenAddress::Tcp(SocketAddr::new(every_address(), port)));
    }
    match text.parse() {
        Ok(ListenAddress::Unix(path)) if path.as_os_str().len() > UNIX_PATH_BYTES_MAX => {
            Err(format!("paths of unix sockets have at most {UNIX_PATH_BYTES_MAX} bytes"))
        }
        Ok(address) => Ok(address),
        Err(_) if text.contains("://") => Err(format!("a URL; {expected}")),
        Err(_) if plain_number(text).is_some() => {
            Err(format!("a port without its colon; {expected}"))
        }
        Err(ListenError::Address { why, .. }) => Err(format!("{why}; {expected}")),
        Err(_) => Err(expected.to_owned()),
    }
}

/// `::`, which takes IPv4 as well, unless the kernel has no IPv6 (`ipv6(7)`: EAFNOSUPPORT).
fn every_address() -> IpAddr {
    match socket(AddressFamily::INET6, SocketType::STREAM, None) {
        Err(Errno::AFNOSUPPORT) => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Reads `unix:PATH`.
pub(super) fn unix_path(text: &str) -> Result<PathBuf, String> {
    let right = || "expected unix:PATH, such as unix:/run/pollux.sock".to_owned();
    match text.starts_with("unix:").then(|| address(text)).ok_or_else(right)?? {
        ListenAddress::Unix(path) => Ok(path),
        ListenAddress::Tcp(_) => Err(right()),
    }
}

/// Reads `500ms`, `5s`, `1m30s`, from `low` to `high`.
pub(super) fn duration(text: &str, low: Duration, high: Duration) -> Result<Duration, String> {
    let right = format!("expected a duration from {low:?} to {high:?}, such as 500ms, 5s or 1m30s");
    let read = SpanParser::new().parse_unsigned_duration(text);
    let is_within = |length: &Duration| (low..=high).contains(length);
    read.ok().filter(is_within).ok_or(right)
}

/// Reads `128`, `64KiB`, `1MiB` or `2GiB`, from `low` to `high` bytes.
pub(super) fn size(text: &str, low: u64, high: u64) -> Result<u64, String> {
    let right = format!("expected a size from {low} to {high} bytes, such as 128, 64KiB or 1MiB");
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_bytes = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        _ => return Err(right),
    };
    let number = plain_number(digits.trim_end());
    let bytes = number.and_then(|number| number.checked_mul(unit_bytes));
    bytes.filter(|bytes| (low..=high).contains(bytes)).ok_or(right)
}

/// Reads a whole number from `low` to `high`.
pub(super) fn whole(text: &str, low: u64, high: u64) -> Result<u64, String> {
    let number = plain_number(text).filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("expected a whole number from {low} to {high}"))
}

/// Reads `true` or `false`.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "expected true or false".to_owned())
}

/// Reads one of the given words.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Digits only: no sign, no space.
fn plain_number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        let read = |text| size(text, 0, 1 << 40);
        assert_eq!(read("128"), Ok(128));
        assert_eq!(read("64KiB"), Ok(65_536));
        assert_eq!(read("1 MiB"), Ok(1 << 20));
        assert_eq!(read("2g"), Ok(2 << 30));
        for wrong in ["", "KiB", "-1", "+1", "1.5KiB", "1KB", "99999999999999999999", "2TiB", "1k1"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(size("0", 1, 2).is_err());
    }

    #[test]
    fn durations_have_units_and_bounds() {
        let read = |text| duration(text, Duration::from_millis(1), Duration::from_secs(3600));
        assert_eq!(read("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(read("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "5", "0s", "2h", "-1s", "soon"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_sockets_of_two_kinds() {
        let tcp = |text: &str| ListenAddress::Tcp(text.parse().expect("an address"));
        assert_eq!(address("127.0.0.1:80"), Ok(tcp("127.0.0.1:80")));
        assert_eq!(address("[::1]:0"), Ok(tcp("[::1]:0")));
        assert_eq!(address("unix:/a b"), Ok(ListenAddress::Unix("/a b".into())));
        let ListenAddress::Tcp(every) = address(":8080").expect("a port") else { panic!("TCP") };
        assert!(every.ip().is_unspecified() && every.port() == 8080, "{every}");
        for wrong in ["", ":", ":x", ":70000", "8080", "127.0.0.1", "127.0.0.1:70000", "unix:"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        let told = |text| address(text).expect_err("wrong");
        assert!(told("8080").starts_with("a port without its colon; expected HOST:PORT"));
        assert!(told("http://localhost:80/").starts_with("a URL; expected HOST:PORT"));
        assert!(address(&format!("unix:/{}", "x".repeat(107))).is_err());
        assert!(unix_path("127.0.0.1:80").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,20}") {
            let _ = (size(&text, 0, 9), whole(&text, 0, 9));
            let _ = duration(&text, Duration::ZERO, Duration::from_secs(1));
            let _ = address(&format!("unix:{text}"));
        }

        #[test]
        fn sizes_read_back(kib in 0_u64..1 << 20) {
            prop_assert_eq!(size(&format!("{kib}KiB"), 0, u64::MAX), Ok(kib << 10));
        }
    }
}
