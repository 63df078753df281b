//! HTTP dates: rendered once a second, read from conditional requests. The clock is the caller's.

use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

/// The Date field's value (`Sun, 06 Nov 1994 08:49:37 GMT`), made anew when the second changes.
#[derive(Clone, Debug)]
pub struct DateCache {
    unix_s: u64,
    text: [u8; Self::BYTES],
}

impl DateCache {
    /// Length of an IMF-fixdate (RFC 9110 5.6.7).
    pub const BYTES: usize = 29;

    /// The date of that second since 1970. Years beyond 9999 have no form and show its last
    /// second.
    #[must_use]
    pub fn new(unix_s: u64) -> Self {
        Self { unix_s, text: render(unix_s) }
    }

    /// The date of that second.
    #[inline]
    pub fn at(&mut self, unix_s: u64) -> &[u8; Self::BYTES] {
        if unix_s != self.unix_s {
            *self = Self::new(unix_s);
        }
        &self.text
    }

    /// The date that was rendered last.
    #[must_use]
    pub fn text(&self) -> &[u8; Self::BYTES] {
        &self.text
    }
}

/// The seconds since 1970 of a date in any of the three forms of RFC 9110 5.6.7; none for
/// anything else and for years before 1970.
#[must_use]
pub fn parse_date(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The last second of the year 9999.
const UNIX_S_MAX: u64 = 253_402_300_799;

fn render(unix_s: u64) -> [u8; DateCache::BYTES] {
    let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_s.min(UNIX_S_MAX)));
    let mut text = [0; DateCache::BYTES];
    write!(&mut text[..], "{date}").expect("an IMF-fixdate has 29 bytes");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_goes_there_and_back() {
        let mut cache = DateCache::new(0);
        assert_eq!(cache.text(), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(cache.at(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse_date(form.as_bytes()), Some(784_111_777), "{form}");
        }
    }

    #[test]
    fn the_end_of_time_is_shown_not_crossed() {
        assert_eq!(DateCache::new(u64::MAX).text(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn what_is_not_a_date_is_none() {
        for value in
            ["", "now", "Sun, 06 Nov 1994 08:49:37", "Sun, 31 Feb 1994 08:49:37 GMT", "\u{fc}"]
        {
            assert_eq!(parse_date(value.as_bytes()), None, "{value}");
        }
    }
}
