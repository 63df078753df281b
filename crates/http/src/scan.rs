//! Where a run of allowed bytes ends, eight bytes at a time.
//!
//! The request line, the field lines and the Host check call it. A word test may stop too early,
//! never too late: what it stops at is judged by the caller's own rule for single bytes, so the
//! rules stand in one place and this file only makes them cheap.

/// How many bytes at the front of `bytes` are allowed. `stops` finds those in a word that are
/// not, and perhaps others, which `is_allowed` then settles.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        agrees_with_single_bytes(b'a', not_in_names, crate::fields::is_token_byte);
        agrees_with_single_bytes(b'1', not_in_names, crate::fields::is_token_byte);
        agrees_with_single_bytes(b'a', not_text, crate::fields::is_value_byte);
        agrees_with_single_bytes(0xe4, not_text, crate::fields::is_value_byte);
        agrees_with_single_bytes(b'/', not_in_target, |b| b.is_ascii_graphic() && b != b'#');
        agrees_with_single_bytes(b'/', question_mark, |b| b != b'?');
    }
}
