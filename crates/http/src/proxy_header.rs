//! The head that a proxy puts in front of a connection to say whose it is: PROXY protocol, version 1
//! (a line of text) and 2 (binary).
//!
//! Source: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, sections 2.1 and 2.2. Both
//! parties have to agree that there is one: nothing in the bytes that follow tells a head from a
//! client's own words, so it is read where it was switched on and nowhere else, and then it is required.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The longest line of version 1, with its end.
const LINE_BYTES_MAX: usize = 107;
const LINE_START: &[u8] = b"PROXY ";
/// How version 2 begins.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const FIXED_BYTES: usize = 16;
/// Longest head.
const HEAD_BYTES_MAX: usize = 4096;
/// Type of the value that is a checksum of the whole head, with zeros in its place (section 2.2.3).
const CRC_32C: u8 = 0x03;

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyHeader {
    /// The proxy's own, such as a check, or one of which it says nothing.
    Own,
    /// A client's.
    Of {
        /// The client.
        source: SocketAddr,
        /// What it was connected to.
        destination: SocketAddr,
    },
}

/// The version that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// The bytes are not a head of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoProxyHeader {
    /// What is wrong.
    pub why: &'static str,
}

impl fmt::Display for NoProxyHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; expected a head of the PROXY protocol", self.why)
    }
}

impl std::error::Error for NoProxyHeader {}

impl ProxyHeader {
    /// Of a connection between these; the proxy's own where one of them is not known.
    #[must_use]
    pub fn of(source: Option<SocketAddr>, destination: Option<SocketAddr>) -> Self {
        match (source, destination) {
            (Some(source), Some(destination)) => Self::Of { source, destination },
            _ => Self::Own,
        }
    }

    /// The client's address.
    #[must_use]
    pub fn source(&self) -> Option<SocketAddr> {
        match self {
            Self::Own => None,
            Self::Of { source, .. } => Some(*source),
        }
    }

    /// The longest head that is read, in bytes.
    pub const LEN_BYTES_MAX: usize = HEAD_BYTES_MAX;

    /// Reads the head in front of `input`, and says how long it is; none while some of it is missing.
    /// The verdict depends on the bytes alone, however they come.
    ///
    /// # Errors
    /// [`NoProxyHeader`], as soon as no more bytes can make it one.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, NoProxyHeader> {
        let common = |start: &[u8]| start.iter().zip(input).all(|(one, two)| one == two);
        if common(SIGNATURE) {
            parse_binary(input)
        } else if common(LINE_START) {
            parse_line(input)
        } else {
            Err(NoProxyHeader { why: "neither \"PROXY \" nor the signature" })
        }
    }

    /// Writes it behind what is in `out`.
    pub fn write(&self, version: ProxyVersion, out: &mut Vec<u8>) {
        match version {
            ProxyVersion::V1 => self.write_line(out),
            ProxyVersion::V2 => self.write_binary(out),
        }
    }

    fn write_line(&self, out: &mut Vec<u8>) {
        let Self::Of { source, destination } = self.of_one_family() else {
            return out.extend_from_slice(b"PROXY UNKNOWN\r\n");
        };
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let from = source.ip();
        let to = destination.ip();
        let ports = (source.port(), destination.port());
        write!(out, "PROXY {family} {from} {to} {} {}\r\n", ports.0, ports.1).expect("a Vec grows");
    }

    fn write_binary(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(SIGNATURE);
        let Self::Of { source, destination } = self.of_one_family() else {
            return out.extend_from_slice(&[0x20, 0, 0, 0]);
        };
        out.push(0x21);
        let mut put = |family: u8, from: &[u8], to: &[u8]| {
            out.extend_from_slice(&[family, 0, (from.len() * 2 + 4) as u8]);
            out.extend_from_slice(from);
            out.extend_from_slice(to);
        };
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => put(0x11, &from.octets(), &to.octets()),
            (from, to) => put(0x21, &mapped(from).octets(), &mapped(to).octets()),
        }
        out.extend_from_slice(&source.port().to_be_bytes());
        out.extend_from_slice(&destination.port().to_be_bytes());
    }

    /// Both addresses as IPv4 where both can be, else as IPv6.
    fn of_one_family(self) -> Self {
        let Self::Of { source, destination } = self else { return self };
        let from = source.ip().to_canonical();
        let to = destination.ip().to_canonical();
        let (from, to) = match (from, to) {
            (IpAddr::V4(_), IpAddr::V4(_)) => (from, to),
            (from, to) => (mapped(from).into(), mapped(to).into()),
        };
        let source = SocketAddr::new(from, source.port());
        Self::Of { source, destination: SocketAddr::new(to, destination.port()) }
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn parse_line(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, NoProxyHeader> {
    let wrong = |why| Err(NoProxyHeader { why });
    let seen = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = seen.windows(2).position(|two| two == b"\r\n") else {
        let is_over = seen.len() == LINE_BYTES_MAX;
        return if is_over { wrong("a line of more than 107 bytes") } else { Ok(None) };
    };
    let len = end + 2;
    let Ok(line) = str::from_utf8(&input[LINE_START.len()..end.max(LINE_START.len())]) else {
        return wrong("a line that is not ASCII");
    };
    let words: Vec<&str> = line.split(' ').collect();
    let header = match words.as_slice() {
        // What follows has no meaning (section 2.1).
        ["UNKNOWN", ..] => Some(ProxyHeader::Own),
        ["TCP4", rest @ ..] => addresses::<Ipv4Addr>(rest),
        ["TCP6", rest @ ..] => addresses::<Ipv6Addr>(rest),
        _ => return wrong("neither TCP4, TCP6 nor UNKNOWN"),
    };
    match header {
        Some(header) => Ok(Some((header, len))),
        None => wrong("not two addresses and two ports"),
    }
}

fn addresses<A: FromStr + Into<IpAddr>>(words: &[&str]) -> Option<ProxyHeader> {
    let [from, to, from_port, to_port] = words else { return None };
    let at = |address: &str, port: &str| {
        let address: A = address.parse().ok()?;
        Some(SocketAddr::new(address.into(), self::port(port)?))
    };
    Some(ProxyHeader::Of { source: at(from, from_port)?, destination: at(to, to_port)? })
}

/// Digits only, without zeros in front.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    if is_plain && is_short { text.parse().ok() } else { None }
}

fn parse_binary(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, NoProxyHeader> {
    let wrong = |why| Err(NoProxyHeader { why });
    let own = match input.get(SIGNATURE.len()) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return wrong("another version, or an unknown command"),
    };
    let Some(fixed) = input.first_chunk::<FIXED_BYTES>() else { return Ok(None) };
    let rest_bytes = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if FIXED_BYTES + rest_bytes > HEAD_BYTES_MAX {
        return wrong("a head of more than 4 KiB");
    }
    let address_bytes = match fixed[13] {
        // What a proxy says of its own connection is passed over.
        _ if own => 0,
        0x00 => 0,
        0x11 => 12,
        0x21 => 36,
        0x31 => 216,
        _ => return wrong("an unknown family, or not a stream"),
    };
    if rest_bytes < address_bytes {
        return wrong("less than its addresses take");
    }
    let len = FIXED_BYTES + rest_bytes;
    let Some(rest) = input.get(FIXED_BYTES..len) else { return Ok(None) };
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let header = match address_bytes {
        12 => {
            let at = |at: usize| Ipv4Addr::new(rest[at], rest[at + 1], rest[at + 2], rest[at + 3]);
            let source = SocketAddr::new(at(0).into(), port(8));
            ProxyHeader::Of { source, destination: SocketAddr::new(at(4).into(), port(10)) }
        }
        36 => {
            let at = |at: usize| {
                let octets: [u8; 16] = rest[at..at + 16].try_into().expect("16 of them");
                Ipv6Addr::from(octets)
            };
            let source = SocketAddr::new(at(0).into(), port(32));
            ProxyHeader::Of { source, destination: SocketAddr::new(at(16).into(), port(34)) }
        }
        _ => ProxyHeader::Own,
    };
    if own {
        return Ok(Some((header, len)));
    }
    match check_values(&input[..len], FIXED_BYTES + address_bytes) {
        Ok(()) => Ok(Some((header, len))),
        Err(why) => wrong(why),
    }
}

/// Whether what stands in `head` from `at` on is a row of types, lengths and values, and a checksum among them
/// that of the head.
fn check_values(head: &[u8], mut at: usize) -> Result<(), &'static str> {
    const OPEN: &str = "a value that does not end within the head";
    while at < head.len() {
        let Some([kind, high, low, values @ ..]) = head.get(at..) else { return Err(OPEN) };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let value = values.get(..len).ok_or(OPEN)?;
        if *kind == CRC_32C {
            let sum: [u8; 4] = value.try_into().map_err(|_| "a checksum that is not of 4 bytes")?;
            let place = at + 3;
            let parts = [&head[..place], &[0; 4], &head[place + 4..]];
            if crc_32c(parts.into_iter().flatten()) != u32::from_be_bytes(sum) {
                return Err("a checksum that is not that of the head");
            }
        }
        at += 3 + len;
    }
    Ok(())
}

/// CRC-32C of RFC 4960, appendix B, bit by bit: a head is short, and there is one for each connection.
fn crc_32c<'b>(bytes: impl Iterator<Item = &'b u8>) -> u32 {
    !bytes.fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0x82f6_3b78 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str, destination: &str) -> ProxyHeader {
        let at = |text: &str| text.parse().expect("an address");
        ProxyHeader::Of { source: at(source), destination: at(destination) }
    }

    /// Every whole head of the table is read byte by byte, too: nothing before its end, the same at
    /// its end, and what follows changes nothing.
    fn reads(head: &[u8], expected: ProxyHeader) {
        for cut in 0..head.len() {
            assert_eq!(ProxyHeader::parse(&head[..cut]), Ok(None), "{head:?} up to {cut}");
        }
        let with_more = [head, b"GET / HTTP/1.1\r\n\r\n"].concat();
        for whole in [head, &with_more] {
            assert_eq!(ProxyHeader::parse(whole), Ok(Some((expected, head.len()))), "{whole:?}");
        }
    }

    #[test]
    fn heads_of_both_versions_are_read_however_they_are_split() {
        let four = of("192.168.0.1:56324", "192.168.0.11:443");
        reads(b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", four);
        let six = of("[2001:db8::1]:1", "[::1]:65535");
        reads(b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", six);
        reads(b"PROXY UNKNOWN\r\n", ProxyHeader::Own);
        reads(b"PROXY UNKNOWN ffff:f::ff 1 2 3\r\n", ProxyHeader::Own);
        for header in [four, six, ProxyHeader::Own] {
            for version in [ProxyVersion::V1, ProxyVersion::V2] {
                let mut head = Vec::new();
                header.write(version, &mut head);
                reads(&head, header);
            }
        }
        // With values behind the addresses, of a unix socket, and of a check with addresses.
        let binary = |command: u8, family: u8, rest: &[u8]| {
            let mut head = SIGNATURE.to_vec();
            head.extend_from_slice(&[command, family, 0, rest.len() as u8]);
            head.extend_from_slice(rest);
            head
        };
        let rest = [192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 1, 0xbb, 4, 0, 2, 7, 7];
        reads(&binary(0x21, 0x11, &rest), four);
        reads(&binary(0x20, 0x11, &rest), ProxyHeader::Own);
        reads(&binary(0x21, 0x31, &[0; 216]), ProxyHeader::Own);
        reads(&binary(0x21, 0x00, &[]), ProxyHeader::Own);
    }

    #[test]
    fn a_checksum_is_believed_and_a_wrong_one_is_not() {
        assert_eq!(crc_32c(b"123456789".iter()), 0xe306_9283);
        let mut head = SIGNATURE.to_vec();
        let rest =
            [192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 1, 0xbb, 4, 0, 1, 7, 3, 0, 4, 0, 0, 0, 0];
        head.extend_from_slice(&[0x21, 0x11, 0, rest.len() as u8]);
        head.extend_from_slice(&rest);
        let sum = crc_32c(head.iter());
        let at = head.len() - 4;
        head[at..].copy_from_slice(&sum.to_be_bytes());
        reads(&head, of("192.168.0.1:56324", "192.168.0.11:443"));
        for wrong in (16..28).chain(head.len() - 4..head.len()) {
            let mut head = head.clone();
            head[wrong] ^= 1;
            assert!(ProxyHeader::parse(&head).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_head_of_4_kib_is_the_longest() {
        let of_len = |len: usize| {
            let rest = len - FIXED_BYTES;
            let mut head = SIGNATURE.to_vec();
            head.extend_from_slice(&[0x21, 0x00, (rest >> 8) as u8, rest as u8]);
            head.extend_from_slice(&[4, ((rest - 3) >> 8) as u8, (rest - 3) as u8]);
            head.resize(len, 0);
            head
        };
        assert_eq!(ProxyHeader::parse(&of_len(4096)), Ok(Some((ProxyHeader::Own, 4096))));
        assert!(ProxyHeader::parse(&of_len(4097)).is_err());
    }

    #[test]
    fn what_can_be_not_a_head_any_more_is_refused_at_once() {
        let signature = |rest: &[u8]| [SIGNATURE.as_slice(), rest].concat();
        let long = format!("PROXY UNKNOWN {}", "x".repeat(107));
        for head in [
            b"G".as_slice(),
            b"PROXX",
            b"\r\nX",
            b"proxy TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
            b"PROXY TCP4  1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n",
            b"PROXY TCP4 1.1.1.01 2.2.2.2 1 2\r\n",
            b"PROXY TCP4 ::1 ::2 1 2\r\n",
            b"PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY \r\n",
            b"PROXY TCP4 \xff\r\n",
            long.as_bytes(),
            &signature(&[0x11]),
            &signature(&[0x22]),
            &signature(&[0x21, 0x12, 0, 0]),
            &signature(&[0x21, 0x11, 0, 11]),
            &signature(&[0x21, 0x11, 0xff, 0xff]),
            &signature(&[0x21, 0x11, 0x0f, 0xf1]),
            &signature(&[0x21, 0x00, 0, 7, 3, 0, 4, 1, 2, 3, 4]),
            &signature(&[0x21, 0x00, 0, 6, 3, 0, 3, 1, 2, 3]),
            &signature(&[0x21, 0x00, 0, 2, 4, 0]),
            &signature(&[0x21, 0x00, 0, 3, 4, 0, 1]),
        ] {
            let error = ProxyHeader::parse(head).expect_err(&String::from_utf8_lossy(head));
            assert!(error.to_string().ends_with("expected a head of the PROXY protocol"));
        }
    }

    #[test]
    fn addresses_of_two_families_are_written_as_one() {
        let mixed = of("10.0.0.1:1", "[::1]:2");
        let mut line = Vec::new();
        mixed.write(ProxyVersion::V1, &mut line);
        assert_eq!(line, b"PROXY TCP6 ::ffff:10.0.0.1 ::1 1 2\r\n");
        let mapped = of("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:2");
        let mut line = Vec::new();
        mapped.write(ProxyVersion::V1, &mut line);
        assert_eq!(line, b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n");
    }
}
