//! Field lines of a head that was found sound. The request makes them; the conditions, the
//! negotiation and the server read them. It never judges: what is looked at was checked before.

use crate::scan::{self, run_len};

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

    /// The value of the first field of that name, without regard to case.
    #[must_use]
    pub fn first(self, name: &str) -> Option<&'b [u8]> {
        self.all(name).next()
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
        let colon = run_len(self.lines, scan::not_in_names, is_token_byte);
        let (name, rest) = self.lines.split_at(colon);
        let rest = rest.get(1..)?;
        let end = run_len(rest, scan::not_text, is_value_byte);
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
}
