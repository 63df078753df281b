//! Where a response's body ends (RFC 9112 6.3): by its status, by what it answers, by its fields,
//! or by the end of the connection.
//!
//! [`crate::Response::parse`] hands over every Content-Length and Transfer-Encoding field. They
//! are judged last, for an answer to HEAD has no body whatever they say. What could be read in
//! two ways is refused, or else takes the connection out of use.

use crate::framing::{BODY_LARGE, CODING_IN_1_0, Coding, length};
use crate::{Limits, Method, Rejection, Status};

/// What a response answers, as far as it decides where the response ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RequestKind {
    /// HEAD: there is never a body.
    Head,
    /// CONNECT: behind a 2xx head there is a tunnel.
    Connect,
    /// Any other method.
    #[default]
    Other,
}

impl RequestKind {
    /// The kind of a request with that method.
    #[must_use]
    pub fn of(method: Method<'_>) -> Self {
        match method {
            Method::Head => Self::Head,
            Method::Connect => Self::Connect,
            _ => Self::Other,
        }
    }

    /// Whether bytes behind an answer with that status are no longer HTTP: a tunnel, or the
    /// protocol that 101 switched to (RFC 9110 9.3.6, 15.2.2).
    #[must_use]
    pub fn leaves_http(self, status: Status) -> bool {
        status.code() == 101 || (self == Self::Connect && matches!(status.code(), 200..=299))
    }
}

/// How the end of a response's body is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ResponseBody {
    /// There is no body, whatever the fields say.
    #[default]
    None,
    /// So many bytes follow, 0 included.
    Length(u64),
    /// Chunks follow. Their data may be in another transfer coding, if the fields name one.
    Chunked,
    /// Everything up to the end of the connection.
    UntilClose,
}

/// What the fields of one head have said so far.
#[derive(Default)]
pub(crate) struct ResponseFraming {
    length: Option<u64>,
    coding: Coding,
    /// The first wrong thing they said.
    fault: Option<&'static Rejection>,
}

const LENGTHS_DIFFER: Rejection =
    Rejection::bad("two values of Content-Length differ", "RFC 9112 6.3");

impl ResponseFraming {
    /// Takes one Content-Length field: a number, or a list of equal ones.
    #[inline(never)]
    pub(crate) fn note_length(&mut self, value: &[u8]) {
        for element in value.split(|&b| b == b',') {
            match length(element.trim_ascii()) {
                Ok(len) if self.length.is_none_or(|before| before == len) => {
                    self.length = Some(len);
                }
                Ok(_) => self.note_fault(&LENGTHS_DIFFER),
                Err(fault) => self.note_fault(fault),
            }
        }
    }

    /// Takes one Transfer-Encoding field.
    pub(crate) fn note_coding(&mut self, value: &[u8]) {
        if let Err(fault) = self.coding.note(value) {
            self.note_fault(fault);
        }
    }

    fn note_fault(&mut self, fault: &'static Rejection) {
        self.fault.get_or_insert(fault);
    }

    /// Whether another program could see another end of the body, so that nothing behind it may be
    /// taken for an answer: a coding beside a length, and faults that this end need not mind.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.fault.is_some() || (self.coding != Coding::None && self.length.is_some())
    }

    /// The verdict, when all fields were seen: the rules of RFC 9112 6.3 in their order.
    #[inline]
    pub(crate) fn judge(
        &self,
        status: Status,
        to: RequestKind,
        minor: u8,
        limits: &Limits,
    ) -> Result<ResponseBody, &'static Rejection> {
        if to == RequestKind::Head || !status.allows_body() || to.leaves_http(status) {
            return Ok(ResponseBody::None);
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        match (self.coding, self.length) {
            (Coding::Chunked { .. } | Coding::Unknown, _) if minor == 0 => Err(&CODING_IN_1_0),
            (Coding::Chunked { .. }, _) => Ok(ResponseBody::Chunked),
            (Coding::Unknown, _) | (Coding::None, None) => Ok(ResponseBody::UntilClose),
            // The largest number stands for all beyond it.
            (_, Some(len)) if len > limits.body_bytes || len == u64::MAX => Err(&BODY_LARGE),
            (_, Some(len)) => Ok(ResponseBody::Length(len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(lengths: &[&str], codings: &[&str]) -> ResponseFraming {
        let mut framing = ResponseFraming::default();
        lengths.iter().for_each(|value| framing.note_length(value.as_bytes()));
        codings.iter().for_each(|value| framing.note_coding(value.as_bytes()));
        framing
    }

    fn judge(lengths: &[&str], codings: &[&str]) -> Result<ResponseBody, &'static Rejection> {
        noted(lengths, codings).judge(Status::OK, RequestKind::Other, 1, &Limits::default())
    }

    #[test]
    fn lengths_may_stand_twice_when_they_are_equal() {
        for lengths in [&["5"][..], &["5, 5"], &["5", "5"], &["5 ,\t05", "005"]] {
            assert_eq!(judge(lengths, &[]), Ok(ResponseBody::Length(5)), "{lengths:?}");
        }
        for lengths in [&["5, 6"][..], &["5", "6"], &["5", "5, 50"]] {
            assert_eq!(judge(lengths, &[]), Err(&LENGTHS_DIFFER), "{lengths:?}");
        }
        for value in ["", "5,", ",5", "+5", "0x5", "5 5", "-1"] {
            assert!(judge(&[value], &[]).is_err(), "{value}");
        }
    }

    #[test]
    fn no_length_fits_all_numbers() {
        let limits = Limits { body_bytes: u64::MAX, ..Limits::default() };
        for (value, is_taken) in [
            ("18446744073709551614", true),
            ("18446744073709551615", false),
            ("99999999999999999999, 99999999999999999998", false),
        ] {
            let body = noted(&[value], &[]).judge(Status::OK, RequestKind::Other, 1, &limits);
            assert_eq!(body.is_ok(), is_taken, "{value}");
        }
    }

    #[test]
    fn a_coding_comes_before_a_length_and_makes_it_ambiguous() {
        assert_eq!(judge(&["3"], &["chunked"]), Ok(ResponseBody::Chunked));
        assert_eq!(judge(&["3"], &["gzip"]), Ok(ResponseBody::UntilClose));
        assert!(noted(&["3"], &["chunked"]).is_ambiguous());
        assert!(
            !noted(&["3", "3"], &[]).is_ambiguous() && !noted(&[], &["chunked"]).is_ambiguous()
        );
    }

    #[test]
    fn without_a_body_no_field_matters() {
        let framing = noted(&["x", "5"], &["chunked, chunked"]);
        for (code, to) in [
            (200, RequestKind::Head),
            (500, RequestKind::Head),
            (100, RequestKind::Other),
            (101, RequestKind::Other),
            (204, RequestKind::Other),
            (304, RequestKind::Other),
            (200, RequestKind::Connect),
            (299, RequestKind::Connect),
        ] {
            for minor in [0, 1] {
                let body = framing.judge(Status::of(code), to, minor, &Limits::default());
                assert_eq!(body, Ok(ResponseBody::None), "{code} to {to:?}");
            }
        }
        assert!(framing.is_ambiguous());
        let refused = framing.judge(Status::of(403), RequestKind::Connect, 1, &Limits::default());
        assert!(refused.is_err());
    }
}
