//! Where a run of allowed bytes ends, eight bytes at a time.
//!
//! The request line, the field lines and the Host check call it. A word test may stop too early,
//! never too late: what it stops at is judged by the caller's own rule for single bytes, so the
//! rules stand in one place and this file only makes them cheap.

/// Where the run of bytes that are allowed ends: the first place from `at` on whose byte
/// `is_allowed` refuses, or the end. `stops` finds such bytes in a word, and perhaps others.
#[inline(always)]
pub(crate) fn run_end(
    bytes: &[u8],
    mut at: usize,
    stops: impl Fn(u64) -> u64,
    is_allowed: impl Fn(u8) -> bool,
) -> usize {
    loop {
        let found = stops(word(bytes, at));
        if found == 0 {
            at += WORD_BYTES;
            continue;
        }
        at += found.trailing_zeros() as usize / 8;
        if !bytes.get(at).is_some_and(|&b| is_allowed(b)) {
            return at;
        }
        at += 1;
    }
}

/// Stops at all but letters, digits, `-` and `.`: most of what names and hosts are made of.
#[inline(always)]
pub(crate) fn not_name_like(word: u64) -> u64 {
    let low = word & !HIGH_BITS;
    // Sets the high bit of the bytes from the first to the last; no sum carries into the next.
    let is_within = |bytes: u64, first: u8, last: u8| {
        (bytes + each(0x80 - first)) & !(bytes + each(0x7f - last))
    };
    let is_letter = is_within(low | each(0x20), b'a', b'z');
    let is_other = is_within(low, b'0', b'9') | is_within(low, b'-', b'.');
    !(is_letter | is_other) & HIGH_BITS | word & HIGH_BITS
}

/// Stops at all but visible ASCII and spaces: control bytes end a field value or are refused in
/// it, and the rest is rare.
#[inline(always)]
pub(crate) fn not_text(word: u64) -> u64 {
    (below(word, b' ') | beyond_visible(word)) & HIGH_BITS
}

/// Stops at all but visible ASCII, and at `#`.
#[inline(always)]
pub(crate) fn not_in_target(word: u64) -> u64 {
    (below(word, b'!') | beyond_visible(word) | equal(word, b'#')) & HIGH_BITS
}

/// Stops at question marks and all but ASCII.
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

// Each of these sets the high bit of certain bytes. Other bytes may get it too: those beyond
// ASCII, and those behind the first one found, for a subtraction borrows and a sum carries.

#[inline(always)]
fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(each(limit))
}

#[inline(always)]
fn equal(word: u64, b: u8) -> u64 {
    below(word ^ each(b), 1)
}

/// DEL, and all beyond ASCII.
#[inline(always)]
fn beyond_visible(word: u64) -> u64 {
    word.wrapping_add(each(1)) | word
}

/// The eight bytes from `at` on, the first of them lowest; NULs stand for those behind the end.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    match (rest.first_chunk(), bytes.last_chunk()) {
        (Some(chunk), _) => u64::from_le_bytes(*chunk),
        (None, _) if rest.is_empty() => 0,
        (None, Some(last)) => u64::from_le_bytes(*last) >> (8 * (WORD_BYTES - rest.len())),
        (None, None) => rest.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of two words, among bytes that go on.
    fn agrees_with_single_bytes(
        filler: u8,
        stops: impl Fn(u64) -> u64,
        is_allowed: impl Fn(u8) -> bool,
    ) {
        for b in 0..=u8::MAX {
            for place in 0..16 {
                for behind in [filler, 0, 0x80, b] {
                    let mut bytes = [filler; 19];
                    bytes[place] = b;
                    bytes[place + 1] = behind;
                    for at in 0..=bytes.len() {
                        let slow = bytes[at..].iter().position(|&b| !is_allowed(b));
                        let slow = slow.map_or(bytes.len(), |run| at + run);
                        let fast = run_end(&bytes, at, &stops, &is_allowed);
                        assert_eq!(fast, slow, "{b:#x} at {place}, from {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn runs_end_where_single_bytes_say() {
        agrees_with_single_bytes(b'a', not_name_like, crate::fields::is_token_byte);
        agrees_with_single_bytes(b'_', not_name_like, |b| {
            b.is_ascii_alphanumeric() || b"-._".contains(&b)
        });
        agrees_with_single_bytes(b'a', not_text, crate::fields::is_value_byte);
        agrees_with_single_bytes(b'/', not_in_target, |b| b.is_ascii_graphic() && b != b'#');
        agrees_with_single_bytes(b'/', question_mark, |b| b != b'?' && b != 0);
    }
}
