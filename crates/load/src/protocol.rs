//! Which HTTP is spoken, and what HTTP/2 bounds.

use pollux_tls::{HTTP_1_1, HTTP_2};

/// Streams of a connection that are under way at the same time, at most.
pub const STREAMS_MAX: u32 = 1024;
/// Least and largest window of a stream.
pub const STREAM_WINDOW: std::ops::RangeInclusive<u32> = 1..=(1 << 31) - 1;
/// Least and largest window of a connection: every one begins with 65,535 bytes, and none can be made smaller.
pub const CONNECTION_WINDOW: std::ops::RangeInclusive<u32> = 65_535..=(1 << 31) - 1;
/// The longest head of a request: packed in the worst way it fits into one call.
pub(crate) const HEAD_BYTES_MAX: usize = 24 * 1024;

/// Which HTTP is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: in clear text from the first byte on (RFC 9113 3.3), in TLS where the server agrees to it by ALPN; one that
    /// does not is not asked.
    Http2,
    /// In TLS what the server prefers of both, in clear text HTTP/1.1.
    Auto,
}

impl Protocol {
    /// Its name, as `--http` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "1.1",
            Self::Http2 => "2",
            Self::Auto => "auto",
        }
    }

    /// What is offered in TLS, the best first.
    pub(crate) const fn offered(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 => &[HTTP_1_1],
            Self::Http2 => &[HTTP_2],
            Self::Auto => &[HTTP_2, HTTP_1_1],
        }
    }

    /// Whether HTTP/2 may be spoken, in TLS or in clear text.
    pub(crate) const fn may_be_http2(self, is_encrypted: bool) -> bool {
        match self {
            Self::Http1 => false,
            Self::Http2 => true,
            Self::Auto => is_encrypted,
        }
    }
}

/// The room that a request takes whose head has so many bytes, as `Connection::ask_head` wants it.
pub(crate) const fn ask_room_bytes(head_bytes: usize) -> usize {
    2 * head_bytes + 9 * (1 + head_bytes / 8192) + 64
}

/// What of a request's fields HTTP/2 has not, in words.
pub(crate) fn has_not(fields: &[(String, String)]) -> Option<String> {
    const OF_CONNECTION: [&str; 4] = ["connection", "keep-alive", "proxy-connection", "upgrade"];
    let is_other = |(name, value): &&(String, String)| {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        OF_CONNECTION.into_iter().any(is)
            || (is("te") && !value.trim().eq_ignore_ascii_case("trailers"))
    };
    let (name, value) = fields.iter().find(is_other)?;
    Some(if name.eq_ignore_ascii_case("te") {
        format!("HTTP/2 has no \"{name}: {value}\" but for trailers (RFC 9113 8.2.2)")
    } else {
        format!(
            "the field {name} is about a connection of HTTP/1.1, and HTTP/2 has none of it (RFC 9113 8.2.2)"
        )
    })
}
