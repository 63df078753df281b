//! Field lines, byte by byte from the left, so that the first wrong byte decides.
//!
//! [`crate::Request::parse`] calls it with what follows the request line. Why not a parser from
//! outside: httparse takes a bare LF for a line end and wants an array of slots that has to be
//! made, filled and walked again, which took two thirds of the time that a request costs here.
//! What is left without these is this one loop. httparse stays the oracle: the check of the fuzz
//! target compares both on every input.

use crate::fields::{is_token_byte, is_value_byte};
use crate::scan::{self, run_end};
use crate::{Rejection, Status};

const FIELDS_MANY: Rejection =
    Rejection::new(Status::FIELDS_TOO_LARGE, "more field lines than the limit", "RFC 6585 5");
const FIELD_NAME: Rejection = Rejection::bad(
    "a field line does not start with a token and a colon, or is folded",
    "RFC 9112 5",
);
const FIELD_VALUE: Rejection =
    Rejection::bad("a control byte or a bare CR in a field value", "RFC 9110 5.5");
const BARE_LF: Rejection = Rejection::bad("a line ends in LF without CR", "RFC 9112 2.2");
const BARE_CR: Rejection = Rejection::bad("a line starts with CR without LF", "RFC 9112 2.2");

/// Reads the lines of `head` from `at` on up to the empty one, and says where that ends; none
/// when it has not arrived. Each whole line is told to `note` as name and value, with the white
/// space around the value.
#[inline(always)]
pub(crate) fn read<'b>(
    head: &'b [u8],
    mut at: usize,
    fields_max: usize,
    mut note: impl FnMut(&'b [u8], &'b [u8]) -> Result<(), &'static Rejection>,
) -> Result<Option<usize>, &'static Rejection> {
    let mut fields_left = fields_max;
    loop {
        if let Some(b'\r' | b'\n') = head.get(at) {
            return Ok(empty_line(&head[at..])?.map(|len| at + len));
        }
        let colon = run_end(head, at, scan::not_name_like, is_token_byte);
        match head.get(colon) {
            Some(b':') if colon > at && fields_left > 0 => fields_left -= 1,
            Some(b':') if colon > at => return Err(&FIELDS_MANY),
            Some(_) => return Err(&FIELD_NAME),
            None => return Ok(None),
        }
        let end = run_end(head, colon + 1, scan::not_text, is_value_byte);
        match head.get(end..) {
            Some([b'\r', b'\n', ..]) => note(&head[at..colon], &head[colon + 1..end])?,
            None | Some([] | [b'\r']) => return Ok(None),
            Some([b'\n', ..]) => return Err(&BARE_LF),
            Some(_) => return Err(&FIELD_VALUE),
        }
        at = end + 2;
    }
}

/// The length of the empty line, whose first byte is there.
#[inline(always)]
fn empty_line(rest: &[u8]) -> Result<Option<usize>, &'static Rejection> {
    match rest {
        [b'\r', b'\n', ..] => Ok(Some(2)),
        [b'\r'] => Ok(None),
        [b'\n', ..] => Err(&BARE_LF),
        _ => Err(&BARE_CR),
    }
}
