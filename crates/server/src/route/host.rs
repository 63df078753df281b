//! Names of hosts: exact ones, all below a domain, and any.

use std::fmt;
use std::io::Write;
use std::net::Ipv6Addr;

use pollux_http::{Rejection, Status};

/// Longest name that is looked for; a name has at most 253 bytes, a literal address fewer.
pub(crate) const HOST_BYTES_MAX: usize = 255;

/// A name that a site has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum HostName {
    /// One name, in small letters, or an address.
    Exact(String),
    /// All names below a domain, with its dot in front: `.example.org`.
    Below(String),
    /// Every name, and requests without one.
    Any,
}

impl HostName {
    /// Reads a name as it stands in settings.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (without_scheme, has_scheme) = match text.split_once("://") {
            Some((_, rest)) => (rest, true),
            None => (text, false),
        };
        let (name, has_path) = match without_scheme.split_once('/') {
            Some((name, _)) => (name, true),
            None => (without_scheme, false),
        };
        let behind_star = name.strip_prefix("*.").unwrap_or(name);
        let without_port = without_port(behind_star.as_bytes());
        let has_port = without_port.len() < behind_star.len();
        let extra = match (has_scheme, has_port, has_path) {
            (true, true, _) => "a scheme and a port",
            (true, false, _) => "a scheme",
            (false, true, _) => "a port",
            (false, false, true) => "a path",
            (false, false, false) => return Self::of_name(text),
        };
        let shown = str::from_utf8(without_port).ok().filter(|name| Self::of_name(name).is_ok());
        Err(format!("has {extra}; expected a name such as {}", shown.unwrap_or("www.example.org")))
    }

    fn of_name(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let (name, is_below) = match name.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (name, false),
        };
        if name.contains('*') {
            return Err(
                "has a * elsewhere than in front; expected a name such as www.example.org, \
                        *.example.org, or * for all"
                    .to_owned(),
            );
        }
        if !name.is_ascii() {
            let labels: Vec<String> = name.split('.').map(a_label).collect();
            let star = if is_below { "*." } else { "" };
            return Err(format!(
                "is not written as hosts are asked for; expected {star}{}",
                labels.join(".")
            ));
        }
        let mut lower = name.to_ascii_lowercase();
        let is_name = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(address) => match address.parse::<Ipv6Addr>() {
                // As clients write it.
                Ok(address) => {
                    lower = format!("[{address}]");
                    !is_below
                }
                Err(_) => false,
            },
            None => name.len() < HOST_BYTES_MAX && name.split('.').all(is_label),
        };
        match (is_name, is_below) {
            (true, false) => Ok(Self::Exact(lower)),
            (true, true) => Ok(Self::Below(format!(".{lower}"))),
            (false, _) => Err(
                "is not a name; expected one such as www.example.org, *.example.org, an address, or * for all"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(domain) => write!(f, "*{domain}"),
            Self::Any => f.write_str("*"),
        }
    }
}

fn is_label(label: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..64).contains(&label.len()) && label.bytes().all(is_letter)
}

/// The host of an authority, without its port.
pub(crate) fn without_port(authority: &[u8]) -> &[u8] {
    let end = match authority.first() {
        Some(b'[') => authority.iter().position(|byte| *byte == b']').map(|at| at + 1),
        _ => authority.iter().position(|byte| *byte == b':'),
    };
    &authority[..end.unwrap_or(authority.len())]
}

/// An escape in a host is another name to who decodes it.
const ESCAPED: Rejection = Rejection::new(
    Status::BAD_REQUEST,
    "an escape in the host has more than one reading",
    "RFC 3986 3.2.2",
);

/// Refuses a host that a backend may read in another way.
///
/// # Errors
/// Why it has not one reading.
#[inline]
pub(crate) fn has_one_reading(authority: &str) -> Result<(), Rejection> {
    if authority.as_bytes().contains(&b'%') { Err(ESCAPED) } else { Ok(()) }
}

/// A host as it is looked for: without port and the dot at its end, in small letters, an address of IPv6 in its shortest
/// form. None of one that is longer than names are.
pub(crate) fn folded<'r>(authority: &[u8], room: &'r mut [u8; HOST_BYTES_MAX]) -> Option<&'r [u8]> {
    let host = without_port(authority);
    let host = host.strip_suffix(b".").unwrap_or(host);
    if host.starts_with(b"[")
        && let Some(len) = write_address(host, room)
    {
        return Some(&room[..len]);
    }
    let room = room.get_mut(..host.len())?;
    room.copy_from_slice(host);
    room.make_ascii_lowercase();
    Some(room)
}

/// Writes an address of IPv6 in its shortest form; says how long it is, of what is one.
#[cold]
fn write_address(host: &[u8], room: &mut [u8; HOST_BYTES_MAX]) -> Option<usize> {
    let text = host.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let address: Ipv6Addr = str::from_utf8(text).ok()?.parse().ok()?;
    let mut rest = &mut room[..];
    write!(rest, "[{address}]").ok()?;
    let left = rest.len();
    Some(HOST_BYTES_MAX - left)
}

/// A label as it is asked for: as it is, or in the ASCII form of international names (RFC 3492).
fn a_label(label: &str) -> String {
    let label = label.to_lowercase();
    if label.is_ascii() { label } else { format!("xn--{}", punycode(&label)) }
}

/// The encoding of RFC 3492 6.3.
fn punycode(label: &str) -> String {
    const BASE: u32 = 36;
    const T_MIN: u32 = 1;
    const T_MAX: u32 = 26;
    const SKEW: u32 = 38;
    const DAMP: u32 = 700;
    let digit = |value: u32| {
        let byte = if value < 26 { b'a' + value as u8 } else { b'0' + (value - 26) as u8 };
        char::from(byte)
    };
    let mut out: String = label.chars().filter(char::is_ascii).collect();
    let basic = out.len() as u32;
    if basic > 0 {
        out.push('-');
    }
    let all: Vec<u32> = label.chars().map(u32::from).collect();
    let mut code = 128_u32;
    let mut delta = 0_u32;
    let mut bias = 72_u32;
    let mut handled = basic;
    while (handled as usize) < all.len() {
        let next = all.iter().copied().filter(|one| *one >= code).min().expect("some are left");
        delta = delta.saturating_add((next - code).saturating_mul(handled + 1));
        code = next;
        for one in &all {
            if *one < code {
                delta = delta.saturating_add(1);
            }
            if *one != code {
                continue;
            }
            let mut rest = delta;
            let mut k = BASE;
            loop {
                let t = k.saturating_sub(bias).clamp(T_MIN, T_MAX);
                if rest < t {
                    break;
                }
                out.push(digit(t + (rest - t) % (BASE - t)));
                rest = (rest - t) / (BASE - t);
                k += BASE;
            }
            out.push(digit(rest));
            delta = if handled == basic { delta / DAMP } else { delta / 2 };
            delta += delta / (handled + 1);
            let mut shift = 0;
            while delta > ((BASE - T_MIN) * T_MAX) / 2 {
                delta /= BASE - T_MIN;
                shift += BASE;
            }
            bias = shift + (BASE - T_MIN + 1) * delta / (delta + SKEW);
            (delta, handled) = (0, handled + 1);
        }
        (delta, code) = (delta + 1, code + 1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_small_letters_and_shown_as_they_are_meant() {
        for (text, shown) in [
            ("www.Example.org", "www.example.org"),
            ("www.example.org.", "www.example.org"),
            ("*.Example.org", "*.example.org"),
            ("*", "*"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("[2001:db8:0:0::1]", "[2001:db8::1]"),
            ("localhost", "localhost"),
            ("a_b.example", "a_b.example"),
        ] {
            assert_eq!(HostName::read(text).expect(text).to_string(), shown);
        }
    }

    #[test]
    fn what_is_not_a_name_is_answered_with_one() {
        for (text, why) in [
            (
                "https://www.example.org:443",
                "has a scheme and a port; expected a name such as www.example.org",
            ),
            ("http://a.example", "has a scheme; expected a name such as a.example"),
            ("a.example:80", "has a port; expected a name such as a.example"),
            ("[::1]:80", "has a port; expected a name such as [::1]"),
            ("a.example/x", "has a path; expected a name such as a.example"),
            ("www.*.org", "has a * elsewhere than in front; expected"),
            ("*example.org", "has a * elsewhere than in front; expected"),
            ("", "is not a name; expected one such as"),
            ("a..b", "is not a name; expected one such as"),
            ("a b", "is not a name; expected one such as"),
            ("*.", "has a * elsewhere than in front; expected"),
            ("*.[::1]", "is not a name; expected one such as"),
            ("bücher.example", "expected xn--bcher-kva.example"),
            ("*.Bücher.example", "expected *.xn--bcher-kva.example"),
            ("faß.de", "expected xn--fa-hia.de"),
            ("例え.テスト", "expected xn--r8jz45g.xn--zckzah"),
        ] {
            let wrong = HostName::read(text).expect_err(text);
            assert!(wrong.contains(why), "{text}: {wrong}");
        }
    }

    #[test]
    fn a_host_of_a_request_is_folded_whatever_its_spelling() {
        for (sent, expected) in [
            ("Example.ORG", "example.org"),
            ("example.org:8080", "example.org"),
            ("example.org.:80", "example.org"),
            ("example.org..", "example.org."),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("[2001:DB8:0:0::1]:80", "[2001:db8::1]"),
            ("[0::1]", "[::1]"),
            ("[v1.x]", "[v1.x]"),
            ("[::1", "[::1"),
            ("", ""),
            (":80", ""),
        ] {
            let mut room = [0; HOST_BYTES_MAX];
            assert_eq!(folded(sent.as_bytes(), &mut room), Some(expected.as_bytes()), "{sent}");
        }
        let mut room = [0; HOST_BYTES_MAX];
        assert_eq!(folded(&[b'a'; HOST_BYTES_MAX + 1], &mut room), None);
    }

    #[test]
    fn a_host_with_an_escape_has_two_readings() {
        assert!(has_one_reading("a.example:80").is_ok() && has_one_reading("").is_ok());
        for host in ["%61.example", "a.example%2e", "[fe80::1%25eth0]"] {
            assert_eq!(has_one_reading(host), Err(ESCAPED), "{host}");
        }
    }
}
