//! Field lines, byte by byte from the left, so that the first wrong byte decides.
//!
//! [`crate::Request::parse`] calls it with what follows the request line. It never reads behind
//! a line that was refused.
//!
//! Why not a parser from outside: httparse takes a bare LF for a line end, and it wants an array
//! of slots that has to be made, filled and walked twice more. That was half of what the example
//! `head_cost` printed. This loop needs no array. httparse stays the oracle: the check of the fuzz
//! target compares both on every input.

use crate::fields::{is_token_byte, is_value_byte};
use crate::scan::{self, run_len};
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

/// Reads the lines at the front of `block` up to the empty one, and says how many bytes they and
/// it take; none when it has not arrived. Each complete line is passed to `note` as name and value,
/// with the white space around the value.
#[inline(always)]
pub(crate) fn read<'b>(
    block: &'b [u8],
    fields_max: usize,
    mut note: impl FnMut(&'b [u8], &'b [u8]) -> Result<(), &'static Rejection>,
) -> Result<Option<usize>, &'static Rejection> {
    let mut rest = block;
    let mut fields_left = fields_max;
    loop {
        match rest {
            [b'\r', b'\n', ..] => return Ok(Some(block.len() - rest.len() + 2)),
            [] | [b'\r'] => return Ok(None),
            [b'\n', ..] => return Err(&BARE_LF),
            [b'\r', ..] => return Err(&BARE_CR),
            _ => {}
        }
        let (name, behind) = rest.split_at(run_len(rest, scan::not_in_names, is_token_byte));
        let behind = match behind {
            [b':', behind @ ..] if !name.is_empty() => behind,
            [] => return Ok(None),
            _ => return Err(&FIELD_NAME),
        };
        if fields_left == 0 {
            return Err(&FIELDS_MANY);
        }
        fields_left -= 1;
        let (value, behind) = behind.split_at(run_len(behind, scan::not_text, is_value_byte));
        rest = match behind {
            [b'\r', b'\n', behind @ ..] => behind,
            [] | [b'\r'] => return Ok(None),
            [b'\n', ..] => return Err(&BARE_LF),
            _ => return Err(&FIELD_VALUE),
        };
        note(name, value)?;
    }
}
