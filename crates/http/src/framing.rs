//! Where the body of a request (RFC 9112 6) and of a response (6.3) ends: the rules against request smuggling.
//!
//! [`crate::Request::parse`] hands over every Content-Length and Transfer-Encoding field. Where
//! the standard lets a server repair or refuse, this refuses: two parties that repair in two ways
//! see two different requests.

use crate::{LimitName, Limits, Method, Rejection, Status};

/// How the end of a request's body is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// So many bytes follow, 0 included.
    Length(u64),
    /// Chunks follow.
    Chunked,
}

impl Framing {
    /// Whether bytes of a body follow the head.
    #[must_use]
    pub fn has_body(self) -> bool {
        !matches!(self, Self::None | Self::Length(0))
    }
}

/// What the fields of one head have said so far.
#[derive(Default, Debug)]
pub(crate) struct FramingFields {
    length: Option<u64>,
    coding: Coding,
}

/// The transfer codings so far, in their order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Coding {
    #[default]
    None,
    /// The last one is chunked, all before it are unknown to us.
    Chunked { has_unknown: bool },
    /// The last one is unknown to us.
    Unknown,
}

const LENGTH: Rejection =
    Rejection::bad("Content-Length is not one number in digits", "RFC 9112 6.3");
const LENGTH_TWICE: Rejection =
    Rejection::bad("more than one Content-Length, equal or not", "RFC 9112 6.3");
pub(crate) const BODY_LARGE: Rejection = Rejection::beyond(
    LimitName::Body,
    Status::CONTENT_TOO_LARGE,
    "the announced body exceeds the limit",
    "RFC 9110 15.5.14",
);
const BOTH: Rejection = Rejection::bad("both Transfer-Encoding and Content-Length", "RFC 9112 6.1");
const NOT_CHUNKED: Rejection =
    Rejection::bad("the last transfer coding is not chunked", "RFC 9112 6.3");
const CHUNKED_TWICE: Rejection =
    Rejection::bad("chunked stands twice or is not the last coding", "RFC 9112 6.1");
const EMPTY_CODING: Rejection =
    Rejection::bad("Transfer-Encoding has an empty element", "RFC 9112 6.1");
const UNKNOWN_CODING: Rejection = Rejection::new(
    Status::NOT_IMPLEMENTED,
    "chunked is the only transfer coding served here",
    "RFC 9112 6.1",
);
pub(crate) const CODING_IN_1_0: Rejection =
    Rejection::bad("Transfer-Encoding in an HTTP/1.0 message", "RFC 9112 6.1");

impl FramingFields {
    /// Takes one Content-Length field. Lists of equal values are refused like differing ones.
    #[inline(never)]
    pub(crate) fn note_length(&mut self, value: &[u8]) -> Result<(), &'static Rejection> {
        if self.length.is_some() || value.contains(&b',') {
            return Err(&LENGTH_TWICE);
        }
        self.length = Some(length(value)?);
        Ok(())
    }

    /// Takes one Transfer-Encoding field.
    pub(crate) fn note_coding(&mut self, value: &[u8]) -> Result<(), &'static Rejection> {
        self.coding.note(value)
    }

    /// The length that was said.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// How the body is framed, when all fields were seen. An HTTP/1.0 sender does not know of transfer
    /// codings, so one in its request was not meant for us.
    pub(crate) fn decide(self, minor: u8, limits: &Limits) -> Result<Framing, &'static Rejection> {
        if self.coding == Coding::None {
            return match self.length {
                None => Ok(Framing::None),
                Some(len) if len > limits.body_bytes => Err(&BODY_LARGE),
                Some(len) => Ok(Framing::Length(len)),
            };
        }
        if minor == 0 {
            return Err(&CODING_IN_1_0);
        }
        if self.length.is_some() {
            return Err(&BOTH);
        }
        match self.coding {
            Coding::Chunked { has_unknown: false } => Ok(Framing::Chunked),
            Coding::Chunked { has_unknown: true } => Err(&UNKNOWN_CODING),
            Coding::None | Coding::Unknown => Err(&NOT_CHUNKED),
        }
    }
}

impl Coding {
    /// Takes one Transfer-Encoding field.
    #[inline(never)]
    pub(crate) fn note(&mut self, value: &[u8]) -> Result<(), &'static Rejection> {
        for coding in value.split(|&b| b == b',') {
            let coding = coding.trim_ascii();
            if coding.is_empty() {
                return Err(&EMPTY_CODING);
            }
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            *self = match self {
                Self::Chunked { .. } => return Err(&CHUNKED_TWICE),
                Self::None if is_chunked => Self::Chunked { has_unknown: false },
                Self::Unknown if is_chunked => Self::Chunked { has_unknown: true },
                Self::None | Self::Unknown => Self::Unknown,
            };
        }
        Ok(())
    }
}

/// The length that one value names; the largest number stands for all beyond it.
pub(crate) fn length(value: &[u8]) -> Result<u64, &'static Rejection> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(&LENGTH);
    }
    Ok(saturating_number(value))
}

/// The number that digits stand for, or the largest one: more than any limit allows.
pub(crate) fn saturating_number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number: u64, &b| {
        number.saturating_mul(10).saturating_add(u64::from(b.wrapping_sub(b'0')))
    })
}

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
///
/// [`crate::Response::parse`] hands over every Content-Length and Transfer-Encoding field. They
/// are judged last, for an answer to HEAD has no body whatever they say. What could be read in
/// two ways is refused, or else takes the connection out of use.
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

    /// How the body is framed, when all fields were seen: the rules of RFC 9112 6.3 in their order.
    #[inline]
    pub(crate) fn decide(
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

    fn decide(
        lengths: &[&str],
        codings: &[&str],
        minor: u8,
    ) -> Result<Framing, &'static Rejection> {
        let mut fields = FramingFields::default();
        for value in lengths {
            fields.note_length(value.as_bytes())?;
        }
        for value in codings {
            fields.note_coding(value.as_bytes())?;
        }
        fields.decide(minor, &Limits::default())
    }

    #[test]
    fn lengths_are_one_number() {
        assert_eq!(decide(&[], &[], 1), Ok(Framing::None));
        assert_eq!(decide(&["0"], &[], 1), Ok(Framing::Length(0)));
        assert_eq!(decide(&["00042"], &[], 0), Ok(Framing::Length(42)));
        for value in ["", "-1", "+1", "0x10", "1 2", "1.0", "1e3", "a", "\u{661}"] {
            assert_eq!(decide(&[value], &[], 1), Err(&LENGTH), "{value}");
        }
    }

    #[test]
    fn several_lengths_are_refused_even_when_they_agree() {
        assert_eq!(decide(&["5", "5"], &[], 1), Err(&LENGTH_TWICE));
        assert_eq!(decide(&["5, 5"], &[], 1), Err(&LENGTH_TWICE));
        assert_eq!(decide(&["5", "6"], &[], 1), Err(&LENGTH_TWICE));
    }

    #[test]
    fn lengths_beyond_every_integer_are_too_large_not_small() {
        for value in ["18446744073709551616", "18446744073709551621", "99999999999999999999999"] {
            assert_eq!(decide(&[value], &[], 1), Err(&BODY_LARGE), "{value}");
        }
    }

    #[test]
    fn chunked_stands_once_and_last() {
        assert_eq!(decide(&[], &["chunked"], 1), Ok(Framing::Chunked));
        assert_eq!(decide(&[], &["\tChunkeD "], 1), Ok(Framing::Chunked));
        assert_eq!(decide(&[], &["gzip, chunked"], 1), Err(&UNKNOWN_CODING));
        assert_eq!(decide(&[], &["gzip", "chunked"], 1), Err(&UNKNOWN_CODING));
        for value in ["gzip", "identity", "xchunked", "chunked;a=b", "\"chunked\""] {
            assert_eq!(decide(&[], &[value], 1), Err(&NOT_CHUNKED), "{value}");
        }
        for value in ["chunked, chunked", "chunked, gzip", "chunked, identity"] {
            assert_eq!(decide(&[], &[value], 1), Err(&CHUNKED_TWICE), "{value}");
        }
        assert_eq!(decide(&[], &["chunked", "chunked"], 1), Err(&CHUNKED_TWICE));
        for value in ["", ",chunked", "chunked,", "chunked,,chunked"] {
            assert!(decide(&[], &[value], 1).is_err(), "{value}");
        }
    }

    #[test]
    fn a_length_beside_chunks_and_chunks_in_1_0_are_refused() {
        assert_eq!(decide(&["3"], &["chunked"], 1), Err(&BOTH));
        assert_eq!(decide(&[], &["chunked"], 0), Err(&CODING_IN_1_0));
    }

    #[test]
    fn only_bytes_make_a_body() {
        assert!(!Framing::Length(0).has_body() && !Framing::None.has_body());
        assert!(Framing::Length(1).has_body() && Framing::Chunked.has_body());
    }
}

#[cfg(test)]
mod response_framing_tests {
    use super::*;

    fn noted(lengths: &[&str], codings: &[&str]) -> ResponseFraming {
        let mut framing = ResponseFraming::default();
        lengths.iter().for_each(|value| framing.note_length(value.as_bytes()));
        codings.iter().for_each(|value| framing.note_coding(value.as_bytes()));
        framing
    }

    fn decide(lengths: &[&str], codings: &[&str]) -> Result<ResponseBody, &'static Rejection> {
        noted(lengths, codings).decide(Status::OK, RequestKind::Other, 1, &Limits::default())
    }

    #[test]
    fn lengths_may_stand_twice_when_they_are_equal() {
        for lengths in [&["5"][..], &["5, 5"], &["5", "5"], &["5 ,\t05", "005"]] {
            assert_eq!(decide(lengths, &[]), Ok(ResponseBody::Length(5)), "{lengths:?}");
        }
        for lengths in [&["5, 6"][..], &["5", "6"], &["5", "5, 50"]] {
            assert_eq!(decide(lengths, &[]), Err(&LENGTHS_DIFFER), "{lengths:?}");
        }
        for value in ["", "5,", ",5", "+5", "0x5", "5 5", "-1"] {
            assert!(decide(&[value], &[]).is_err(), "{value}");
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
            let body = noted(&[value], &[]).decide(Status::OK, RequestKind::Other, 1, &limits);
            assert_eq!(body.is_ok(), is_taken, "{value}");
        }
    }

    #[test]
    fn a_coding_comes_before_a_length_and_makes_it_ambiguous() {
        assert_eq!(decide(&["3"], &["chunked"]), Ok(ResponseBody::Chunked));
        assert_eq!(decide(&["3"], &["gzip"]), Ok(ResponseBody::UntilClose));
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
                let body = framing.decide(Status::of(code), to, minor, &Limits::default());
                assert_eq!(body, Ok(ResponseBody::None), "{code} to {to:?}");
            }
        }
        assert!(framing.is_ambiguous());
        let refused = framing.decide(Status::of(403), RequestKind::Connect, 1, &Limits::default());
        assert!(refused.is_err());
    }
}
