//! Field lines: the reader that judges them byte by byte, the lines of a head that was found sound, and the
//! search for the end of a run of allowed bytes, eight at a time.
//!
//! [`Fields`] never judges: its lines were checked before. The conditions, the negotiation and the server
//! read them.
use crate::{LimitName, Rejection, Status};

/// The fields of one head, in the order of their arrival. An iterator; copies are free.
///
/// Every lookup walks the lines again: a head has few of them, most requests are never asked,
/// and so a request stays small enough to be handed around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields<'b> {
    /// Lines, each ended by CRLF.
    lines: &'b [u8],
}

/// One field line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'b> {
    /// The name as it was sent; compare it without regard to case.
    pub name: &'b str,
    /// The value without white space around it; bytes above 0x7f may occur.
    pub value: &'b [u8],
}

impl<'b> Fields<'b> {
    /// The fields of a block whose lines all were checked and end in CRLF.
    pub(crate) fn of_checked(lines: &'b [u8]) -> Self {
        Self { lines }
    }

    /// The fields of trailers that a [`BodyReader`](crate::BodyReader) has consumed, with the empty line that ends them or
    /// without.
    #[must_use]
    pub fn of_trailers(section: &'b [u8]) -> Self {
        Self { lines: section.strip_suffix(b"\r\n").unwrap_or_default() }
    }

    /// The value of the first field of that name, without regard to case.
    #[must_use]
    pub fn first(self, name: &str) -> Option<&'b [u8]> {
        self.all(name).next()
    }

    /// Bytes of all lines.
    #[must_use]
    pub const fn len_bytes(self) -> usize {
        self.lines.len()
    }

    /// The values of all fields of that name, without regard to case.
    pub fn all(self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        self.filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = Field<'b>;

    fn next(&mut self) -> Option<Field<'b>> {
        if self.lines.is_empty() {
            return None;
        }
        let colon = run_len(self.lines, not_in_names, is_token_byte);
        let (name, rest) = self.lines.split_at(colon);
        let rest = rest.get(1..)?;
        let end = run_len(rest, not_text, is_value_byte);
        let value = rest[..end].trim_ascii();
        self.lines = rest.get(end + 2..).unwrap_or_default();
        Some(Field { name: str::from_utf8(name).ok()?, value })
    }
}

impl Field<'_> {
    /// Whether the field has that name, without regard to case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Whether a token is that name without regard to case. All bytes at once: that bit 5 is the
/// case of letters, and that no token byte becomes a `-` by it, makes it exact.
#[inline(always)]
pub(crate) fn is_name<const LEN: usize>(name: &[u8], lower: &[u8; LEN]) -> bool {
    let Some(name) = name.first_chunk::<LEN>() else { return false };
    name.iter().zip(lower).fold(0, |differing, (b, lower)| differing | ((b | 0x20) ^ lower)) == 0
}

/// The elements of a comma-separated list (RFC 9110 5.6.1), trimmed; empty ones are left out.
/// For lists whose elements hold no quoted commas.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Whether a byte may stand in a token (RFC 9110 5.6.2).
pub(crate) const fn is_token_byte(b: u8) -> bool {
    TOKEN[b as usize]
}

/// Whether a byte may stand in a field value (RFC 9110 5.5).
pub(crate) const fn is_value_byte(b: u8) -> bool {
    b == b'\t' || (b >= b' ' && b != 0x7f)
}

static TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// A table that is true for letters, digits and the bytes named.
pub(crate) const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 128 {
        table[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// How many bytes at the front of `bytes` are allowed. `stops` finds those in a word that are
/// not, and perhaps others, which `is_allowed` then settles.
///
/// The request line, the field lines and the Host check call it. A word test may stop too early,
/// never too late: what it stops at is judged by the caller's own rule for single bytes, so the
/// rules stand in one place and this file only makes them cheap.
#[inline(always)]
pub(crate) fn run_len(
    bytes: &[u8],
    stops: impl Fn(u64) -> u64,
    is_allowed: impl Fn(u8) -> bool,
) -> usize {
    let mut rest = bytes;
    loop {
        let found = stops(match rest.first_chunk() {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => last_word(bytes, rest.len()),
        });
        if found == 0 {
            rest = &rest[WORD_BYTES..];
            continue;
        }
        let at = found.trailing_zeros() as usize / 8;
        match rest.get(at) {
            Some(&b) if is_allowed(b) => rest = &rest[at + 1..],
            _ => return bytes.len() - rest.len() + at,
        }
    }
}

/// Stops at all but letters and `-`: nearly all names are made of these.
#[inline(always)]
pub(crate) fn not_in_names(word: u64) -> u64 {
    let folded = word | each(b' ');
    let not_letter = !at_least(folded, b'a') | at_least(folded, b'z' + 1);
    let not_dash = at_least(word ^ each(b'-'), 1);
    (not_letter & not_dash | word) & HIGH_BITS
}

/// Stops at all but visible ASCII and spaces: control bytes end a field value or are refused in
/// it, and the rest is rare.
#[inline(always)]
pub(crate) fn not_text(word: u64) -> u64 {
    (below(word, b' ') | at_least(word, 0x7f) | word) & HIGH_BITS
}

/// Stops at all but visible ASCII, and at `#`.
#[inline(always)]
pub(crate) fn not_in_target(word: u64) -> u64 {
    (below(word, b'!') | at_least(word, 0x7f) | equal(word, b'#') | word) & HIGH_BITS
}

/// Stops at question marks, NULs and all but ASCII.
#[inline(always)]
pub(crate) fn question_mark(word: u64) -> u64 {
    (equal(word, b'?') | below(word, 1) | word) & HIGH_BITS
}

const WORD_BYTES: usize = 8;
const HIGH_BITS: u64 = each(0x80);

/// A word of eight equal bytes.
const fn each(b: u8) -> u64 {
    u64::from_ne_bytes([b; WORD_BYTES])
}

// Each of these sets or clears the high bit of every ASCII byte. It means nothing in other bytes,
// nor behind the first byte that is not ASCII, below the limit or equal: there a sum has carried
// or a subtraction borrowed. All callers stop at such a byte.

#[inline(always)]
fn at_least(word: u64, limit: u8) -> u64 {
    word.wrapping_add(each(0x80 - limit))
}

#[inline(always)]
fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(each(limit))
}

#[inline(always)]
fn equal(word: u64, b: u8) -> u64 {
    below(word ^ each(b), 1)
}

/// The last `len` bytes, fewer than a word, the first of them lowest; NULs stand for the others.
/// Not inlined: it would cost the loops their registers.
#[inline(never)]
fn last_word(bytes: &[u8], len: usize) -> u64 {
    let rest = &bytes[bytes.len() - len..];
    match bytes.last_chunk() {
        _ if rest.is_empty() => 0,
        Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD_BYTES - len)),
        None => rest.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b)),
    }
}

pub(crate) const FIELDS_MANY: Rejection = Rejection::beyond(
    LimitName::Fields,
    Status::FIELDS_TOO_LARGE,
    "more field lines than the limit",
    "RFC 6585 5",
);
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
///
/// [`crate::Request::parse`] calls it with what follows the request line. It never reads behind
/// a line that was refused.
///
/// Why not a parser from outside: httparse takes a bare LF for a line end, and it wants an array
/// of slots that has to be made, filled and walked twice more, half of the time that a head took.
/// This loop needs no array. httparse stays the oracle: the check of the fuzz
/// target compares both on every input.
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
        let (name, behind) = rest.split_at(run_len(rest, not_in_names, is_token_byte));
        let behind = match behind {
            [b':', behind @ ..] if !name.is_empty() => behind,
            [] => return Ok(None),
            _ => return Err(&FIELD_NAME),
        };
        if fields_left == 0 {
            return Err(&FIELDS_MANY);
        }
        fields_left -= 1;
        let (value, behind) = behind.split_at(run_len(behind, not_text, is_value_byte));
        rest = match behind {
            [b'\r', b'\n', behind @ ..] => behind,
            [] | [b'\r'] => return Ok(None),
            [b'\n', ..] => return Err(&BARE_LF),
            _ => return Err(&FIELD_VALUE),
        };
        note(name, value)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"Host: a\r\nAccept:  x/y \t\r\nX-Empty:\r\naccept: z:z\r\n";

    #[test]
    fn lines_come_in_order_with_trimmed_values() {
        let all: Vec<_> = Fields::of_checked(LINES).map(|f| (f.name, f.value)).collect();
        let expected: [(&str, &[u8]); 4] =
            [("Host", b"a"), ("Accept", b"x/y"), ("X-Empty", b""), ("accept", b"z:z")];
        assert_eq!(all, expected);
    }

    #[test]
    fn lookups_do_not_mind_case() {
        let fields = Fields::of_checked(LINES);
        assert_eq!(fields.first("ACCEPT"), Some(&b"x/y"[..]));
        assert_eq!(fields.all("accept").count(), 2);
        assert_eq!(fields.first("range"), None);
        assert!(fields.last().is_some_and(|f| f.is("Accept")));
    }

    #[test]
    fn lists_leave_empty_elements_out() {
        let elements: Vec<_> = list(b" a, ,b\t,, c d ").collect();
        assert_eq!(elements, [&b"a"[..], b"b", b"c d"]);
    }

    /// Every byte at every place of two words, among bytes that continue.
    fn agrees_with_single_bytes(
        filler: u8,
        stops: impl Fn(u64) -> u64,
        is_allowed: impl Fn(u8) -> bool,
    ) {
        for b in 0..=u8::MAX {
            for place in 0..16 {
                for behind in [filler, 0, 0x80, 0xff, b] {
                    let mut bytes = [filler; 19];
                    bytes[place] = b;
                    bytes[place + 1] = behind;
                    for from in 0..=bytes.len() {
                        let bytes = &bytes[from..];
                        let slow = bytes.iter().position(|&b| !is_allowed(b));
                        let fast = run_len(bytes, &stops, &is_allowed);
                        assert_eq!(fast, slow.unwrap_or(bytes.len()), "{b:#x}, {bytes:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn runs_end_where_single_bytes_say() {
        agrees_with_single_bytes(b'a', not_in_names, is_token_byte);
        agrees_with_single_bytes(b'1', not_in_names, is_token_byte);
        agrees_with_single_bytes(b'a', not_text, is_value_byte);
        agrees_with_single_bytes(0xe4, not_text, is_value_byte);
        agrees_with_single_bytes(b'/', not_in_target, |b| b.is_ascii_graphic() && b != b'#');
        agrees_with_single_bytes(b'/', question_mark, |b| b != b'?');
    }
}
