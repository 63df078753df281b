//! Status codes with their phrases. Rejections carry codes, the response writer prints them.

use std::fmt;

/// A status code of RFC 9110 15.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

#[expect(missing_docs, reason = "the phrase of each code stands in `reason`")]
impl Status {
    pub const CONTINUE: Self = Self(100);
    pub const OK: Self = Self(200);
    pub const NO_CONTENT: Self = Self(204);
    pub const PARTIAL_CONTENT: Self = Self(206);
    pub const MOVED_PERMANENTLY: Self = Self(301);
    pub const NOT_MODIFIED: Self = Self(304);
    pub const PERMANENT_REDIRECT: Self = Self(308);
    pub const BAD_REQUEST: Self = Self(400);
    pub const FORBIDDEN: Self = Self(403);
    pub const NOT_FOUND: Self = Self(404);
    pub const METHOD_NOT_ALLOWED: Self = Self(405);
    pub const REQUEST_TIMEOUT: Self = Self(408);
    pub const PRECONDITION_FAILED: Self = Self(412);
    pub const CONTENT_TOO_LARGE: Self = Self(413);
    pub const URI_TOO_LONG: Self = Self(414);
    pub const RANGE_NOT_SATISFIABLE: Self = Self(416);
    pub const EXPECTATION_FAILED: Self = Self(417);
    pub const FIELDS_TOO_LARGE: Self = Self(431);
    pub const INTERNAL_ERROR: Self = Self(500);
    pub const NOT_IMPLEMENTED: Self = Self(501);
    pub const BAD_GATEWAY: Self = Self(502);
    pub const UNAVAILABLE: Self = Self(503);
    pub const GATEWAY_TIMEOUT: Self = Self(504);
    pub const VERSION_NOT_SUPPORTED: Self = Self(505);
}

impl Status {
    /// Any other code, for answers that are passed on.
    ///
    /// # Panics
    /// When it has not three digits.
    #[must_use]
    pub const fn of(code: u16) -> Self {
        assert!(100 <= code && code <= 999, "a status code has three digits");
        Self(code)
    }

    /// The number, 100 to 999.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// The phrase of RFC 9110 15 and RFC 6585; empty for codes that pollux never makes.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self.0 {
            100 => "Continue",
            200 => "OK",
            204 => "No Content",
            206 => "Partial Content",
            301 => "Moved Permanently",
            304 => "Not Modified",
            308 => "Permanent Redirect",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            406 => "Not Acceptable",
            408 => "Request Timeout",
            412 => "Precondition Failed",
            413 => "Content Too Large",
            414 => "URI Too Long",
            416 => "Range Not Satisfiable",
            417 => "Expectation Failed",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            501 => "Not Implemented",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            505 => "HTTP Version Not Supported",
            _ => "",
        }
    }

    /// Whether an answer with this status may have a body at all (RFC 9110 6.4.1); HEAD is the
    /// caller's to know.
    #[must_use]
    pub const fn allows_body(self) -> bool {
        !(self.0 < 200 || self.0 == 204 || self.0 == 304)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.reason())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_follow_the_rule_of_the_standard() {
        for (code, allows) in [(100, false), (200, true), (204, false), (206, true), (304, false)] {
            assert_eq!(Status::of(code).allows_body(), allows, "{code}");
        }
    }

    #[test]
    fn display_names_code_and_phrase() {
        assert_eq!(Status::URI_TOO_LONG.to_string(), "414 URI Too Long");
        assert_eq!(Status::of(599).reason(), "");
    }
}
