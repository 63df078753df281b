//! Authorities: `host[:port]` of the Host field and of request targets (RFC 3986 3.2).
//!
//! Syntax only; whether the name exists is not checked here. User information is refused:
//! RFC 9110 4.2.4 calls it a means of deception, and no client sends it.

/// Whether the bytes are a `uri-host [ ":" port ]`; the empty host is one (RFC 9112 3.2).
#[inline]
pub(crate) fn is_host_and_port(authority: &[u8]) -> bool {
    // One pass settles what nearly every request sends.
    let plain = authority.iter().take_while(|&&b| NAME[usize::from(b)]).count();
    match &authority[plain..] {
        [] => true,
        [b':', port @ ..] => is_port(port),
        _ => is_rare_host_and_port(authority),
    }
}

#[cold]
fn is_rare_host_and_port(authority: &[u8]) -> bool {
    let Some((host, port)) = split_port(authority) else { return false };
    is_host(host) && port.is_none_or(is_port)
}

/// Whether the bytes name a host and a port, both present, as CONNECT needs.
pub(crate) fn has_host_and_port(authority: &[u8]) -> bool {
    let Some((host, Some(port))) = split_port(authority) else { return false };
    !host.is_empty() && is_host(host) && !port.is_empty() && is_port(port)
}

/// Splits at the colon before the port; none when there is something else behind a literal.
fn split_port(authority: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let host_end = match authority.first() {
        Some(b'[') => authority.iter().position(|&b| b == b']')? + 1,
        _ => authority.iter().position(|&b| b == b':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(host_end);
    match rest.split_first() {
        None => Some((host, None)),
        Some((b':', port)) => Some((host, Some(port))),
        Some(_) => None,
    }
}

/// An empty port is allowed by the grammar; a number must be one a socket can have.
fn is_port(port: &[u8]) -> bool {
    let mut value = 0u32;
    for &b in port {
        let digit = b.wrapping_sub(b'0');
        value = value * 10 + u32::from(digit);
        if digit > 9 || value > 65_535 {
            return false;
        }
    }
    true
}

fn is_host(host: &[u8]) -> bool {
    match host {
        [b'[', literal @ .., b']'] => is_literal(literal),
        name => is_registered_name(name),
    }
}

fn is_literal(literal: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(literal) else { return false };
    if let Some(future) = text.strip_prefix(['v', 'V']) {
        let Some((version, rest)) = future.split_once('.') else { return false };
        return !version.is_empty()
            && version.bytes().all(|b| b.is_ascii_hexdigit())
            && !rest.is_empty()
            && rest.bytes().all(|b| b == b':' || NAME[usize::from(b)]);
    }
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

fn is_registered_name(name: &[u8]) -> bool {
    let mut rest = name;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [b, rest @ ..] if NAME[usize::from(*b)] => rest,
            _ => return false,
        }
    }
}

/// `unreserved` and `sub-delims` of RFC 3986 2.
static NAME: [bool; 256] = crate::fields::alphanumeric_and(b"-._~!$&'()*+,;=");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_sound() {
        for host in [
            "",
            "a",
            "example.org",
            "example.org:80",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:443",
            "[v1.fe:80]",
            "a%20b",
            "a:",
            "x_y",
            "localhost:65535",
        ] {
            assert!(is_host_and_port(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn hosts_that_are_not() {
        for host in [
            "a b", "a/b", "user@a", "a:b", "a:80:80", "a:65536", "a:-1", "[::1", "::1", "[::1]x",
            "[zz]", "a%2", "a%zz", "a?b", "a#b", "a\\b", "\u{e4}", "a,b c", "[v.a]", "[]",
        ] {
            assert!(!is_host_and_port(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn connect_needs_both_parts() {
        assert!(has_host_and_port(b"a:443"));
        assert!(has_host_and_port(b"[::1]:443"));
        for target in ["a", "a:", ":443", "", "[::1]"] {
            assert!(!has_host_and_port(target.as_bytes()), "{target}");
        }
    }
}
