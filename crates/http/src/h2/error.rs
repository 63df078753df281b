//! Error codes of RFC 9113 7, and the fault that ends a connection.

use std::fmt;

/// Why a stream or a connection ended (RFC 9113 7).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(u32);

impl ErrorCode {
    /// No error: a graceful end.
    pub const NO_ERROR: Self = Self(0);
    /// A rule of the protocol was broken.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// The implementation failed; also every code that is not known (RFC 9113 7).
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More was sent than the window allows, or a window grew too large.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// A frame for a stream that is closed.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame of a wrong size.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The request was not looked at: it may be sent again.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is not wanted any more.
    pub const CANCEL: Self = Self(8);
    /// A field block cannot be decoded.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The connection of a CONNECT broke.
    pub const CONNECT_ERROR: Self = Self(10);
    /// The peer makes more work than it has reason to.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// The TLS below is too weak.
    pub const INADEQUATE_SECURITY: Self = Self(12);
    /// The server wants HTTP/1.1 for this.
    pub const HTTP_1_1_REQUIRED: Self = Self(13);

    /// How many codes have a name.
    pub const NAMED: usize = NAMES.len();

    /// The code of this number.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        Self(number)
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Its place among those that have a name; that of `INTERNAL_ERROR` for all others.
    #[must_use]
    pub fn index(self) -> usize {
        match usize::try_from(self.0) {
            Ok(index) if index < NAMES.len() => index,
            _ => 2,
        }
    }

    /// Its name in RFC 9113 in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[self.index()]
    }
}

const NAMES: [&str; 14] = [
    "no_error",
    "protocol_error",
    "internal_error",
    "flow_control_error",
    "settings_timeout",
    "stream_closed",
    "frame_size_error",
    "refused_stream",
    "cancel",
    "compression_error",
    "connect_error",
    "enhance_your_calm",
    "inadequate_security",
    "http_1_1_required",
];

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// What ends a connection: the code of its GOAWAY, what was wrong, which rule says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The code that the peer gets.
    pub code: ErrorCode,
    /// What was wrong, in a few words, which the peer gets too.
    pub reason: &'static str,
    /// The rule, as `RFC 9113 6.5`.
    pub rfc: &'static str,
}

impl Fault {
    /// The end of a frame or field block did not come in time.
    pub const LATE: Self = Self::new(
        ErrorCode::ENHANCE_YOUR_CALM,
        "the end of a frame or field block did not come in time",
        "RFC 9113 10.5",
    );

    pub(crate) const fn new(code: ErrorCode, reason: &'static str, rfc: &'static str) -> Self {
        Self { code, reason, rfc }
    }

    pub(crate) const fn protocol(reason: &'static str, rfc: &'static str) -> Self {
        Self::new(ErrorCode::PROTOCOL_ERROR, reason, rfc)
    }

    pub(crate) const fn size(reason: &'static str, rfc: &'static str) -> Self {
        Self::new(ErrorCode::FRAME_SIZE_ERROR, reason, rfc)
    }

    pub(crate) const fn window(reason: &'static str) -> Self {
        Self::new(ErrorCode::FLOW_CONTROL_ERROR, reason, "RFC 9113 6.9")
    }

    pub(crate) const fn closed(reason: &'static str) -> Self {
        Self::new(ErrorCode::STREAM_CLOSED, reason, "RFC 9113 5.1")
    }

    pub(crate) const fn hpack(reason: &'static str, rfc: &'static str) -> Self {
        Self::new(ErrorCode::COMPRESSION_ERROR, reason, rfc)
    }

    pub(crate) const fn calm(reason: &'static str) -> Self {
        Self::new(ErrorCode::ENHANCE_YOUR_CALM, reason, "RFC 9113 10.5")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.code, self.reason, self.rfc)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_without_a_name_are_internal_errors() {
        assert_eq!(ErrorCode::of(8).name(), "cancel");
        for number in [14, 255, u32::MAX] {
            assert_eq!(ErrorCode::of(number).name(), "internal_error");
            assert_eq!(ErrorCode::of(number).number(), number);
        }
    }
}
