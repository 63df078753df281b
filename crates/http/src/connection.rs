//! Whether a connection outlives its request, and what a client expects before its body.
//!
//! [`crate::Request::parse`] hands over every Connection and Expect field.

use crate::fields::list;
use crate::{Rejection, Status};

/// What the Connection and Expect fields of one head have said so far.
#[derive(Default)]
pub(crate) struct ConnectionFields {
    has_close: bool,
    has_keep_alive: bool,
    has_continue: bool,
    has_other_expectation: bool,
}

const EXPECTATION: Rejection = Rejection::new(
    Status::EXPECTATION_FAILED,
    "100-continue is the only expectation there is",
    "RFC 9110 10.1.1",
);

impl ConnectionFields {
    /// Takes one Connection field: a list of tokens without regard to case.
    #[inline(never)]
    pub(crate) fn note_connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.has_close |= option.eq_ignore_ascii_case(b"close");
            self.has_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Takes one Expect field.
    #[inline(never)]
    pub(crate) fn note_expect(&mut self, value: &[u8]) {
        for expectation in list(value) {
            let is_continue = expectation.eq_ignore_ascii_case(b"100-continue");
            self.has_continue |= is_continue;
            self.has_other_expectation |= !is_continue;
        }
    }

    /// Whether the connection stays open: the default of HTTP/1.1, a wish in HTTP/1.0; `close`
    /// wins over everything (RFC 9112 9.3).
    pub(crate) fn keeps_alive(&self, minor: u8) -> bool {
        !self.has_close && (minor > 0 || self.has_keep_alive)
    }

    /// Whether the client waits for 100 Continue; expectations in HTTP/1.0 are ignored.
    ///
    /// # Errors
    /// 417 for any other expectation.
    pub(crate) fn expects_continue(&self, minor: u8) -> Result<bool, &'static Rejection> {
        if minor == 0 {
            return Ok(false);
        }
        if self.has_other_expectation { Err(&EXPECTATION) } else { Ok(self.has_continue) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(connection: &[&str], expect: &[&str]) -> ConnectionFields {
        let mut fields = ConnectionFields::default();
        connection.iter().for_each(|value| fields.note_connection(value.as_bytes()));
        expect.iter().for_each(|value| fields.note_expect(value.as_bytes()));
        fields
    }

    #[test]
    fn the_version_decides_when_nothing_is_said() {
        assert!(noted(&[], &[]).keeps_alive(1));
        assert!(!noted(&[], &[]).keeps_alive(0));
        assert!(noted(&["Keep-Alive"], &[]).keeps_alive(0));
    }

    #[test]
    fn close_wins_wherever_it_stands() {
        for values in [&["close"][..], &["keep-alive, CLOSE"], &["keep-alive", "x, close"]] {
            assert!(!noted(values, &[]).keeps_alive(1), "{values:?}");
            assert!(!noted(values, &[]).keeps_alive(0), "{values:?}");
        }
        assert!(noted(&["closed, x-close"], &[]).keeps_alive(1));
    }

    #[test]
    fn only_one_expectation_is_known() {
        assert_eq!(noted(&[], &["100-Continue"]).expects_continue(1), Ok(true));
        assert_eq!(noted(&[], &["100-continue"]).expects_continue(0), Ok(false));
        assert_eq!(noted(&[], &[]).expects_continue(1), Ok(false));
        for value in ["x", "100-continue, x", "100-continue=1"] {
            assert_eq!(noted(&[], &[value]).expects_continue(1), Err(&EXPECTATION), "{value}");
        }
    }
}
