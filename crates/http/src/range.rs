//! `Range: bytes=`, one range of it (RFC 9110 14.2). The conditions call it.
//!
//! Several ranges are answered with the whole, as the standard allows: multipart answers cost
//! more than they give, and overlapping ranges have been used as an attack.

/// A part of a representation; not empty, never beyond its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
}

/// What a Range value asks for of `whole_bytes`: none when it is to be ignored (not `bytes`, not
/// sound, several ranges), else the part, or an error when no byte of it exists.
///
/// # Errors
/// `Unsatisfiable` when the answer is 416.
pub fn parse_range(value: &[u8], whole_bytes: u64) -> Result<Option<ByteRange>, Unsatisfiable> {
    let Some((first, last)) = split(value) else { return Ok(None) };
    match (first, last) {
        (None, None) => Ok(None),
        (Some(first), Some(last)) if first > last => Ok(None),
        (Some(first), _) if first >= whole_bytes => Err(Unsatisfiable),
        (Some(offset), last) => {
            let last = last.unwrap_or(u64::MAX).min(whole_bytes - 1);
            Ok(Some(ByteRange { offset, len_bytes: last - offset + 1 }))
        }
        (None, Some(0)) => Err(Unsatisfiable),
        // Nothing has no last bytes, but the standard calls this satisfied: the whole answers it.
        (None, Some(_)) if whole_bytes == 0 => Ok(None),
        (None, Some(suffix)) => {
            let len_bytes = suffix.min(whole_bytes);
            Ok(Some(ByteRange { offset: whole_bytes - len_bytes, len_bytes }))
        }
    }
}

/// No byte of what was asked for exists: answer 416 with
/// [`HeadWriter::content_range_unsatisfied`](crate::HeadWriter::content_range_unsatisfied).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsatisfiable;

impl std::fmt::Display for Unsatisfiable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the range starts behind the last byte")
    }
}

impl std::error::Error for Unsatisfiable {}

/// The two numbers around the dash of a single range; numbers beyond 64 bits are the largest one.
fn split(value: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    const UNIT: &[u8] = b"bytes=";
    let (unit, set) = value.split_at_checked(UNIT.len())?;
    if !unit.eq_ignore_ascii_case(UNIT) {
        return None;
    }
    let set = set.trim_ascii();
    let dash = set.iter().position(|&b| b == b'-')?;
    Some((number(&set[..dash])?, number(&set[dash + 1..])?))
}

/// None for what is not a number; none inside for nothing at all.
fn number(digits: &[u8]) -> Option<Option<u64>> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((!digits.is_empty()).then(|| crate::framing::saturating_number(digits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, len_bytes: u64) -> Result<Option<ByteRange>, Unsatisfiable> {
        Ok(Some(ByteRange { offset, len_bytes }))
    }

    #[test]
    fn one_range_in_its_three_forms() {
        for (value, expected) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-", part(0, 100)),
            ("bytes=99-", part(99, 1)),
            ("bytes=10-19", part(10, 10)),
            ("bytes=90-1000", part(90, 10)),
            ("bytes=-1", part(99, 1)),
            ("bytes=-1000", part(0, 100)),
            ("BYTES=5-5", part(5, 1)),
            ("bytes= 5-5 ", part(5, 1)),
            ("bytes=0-99999999999999999999999", part(0, 100)),
            ("bytes=-18446744073709551616", part(0, 100)),
        ] {
            assert_eq!(parse_range(value.as_bytes(), 100), expected, "{value}");
        }
    }

    #[test]
    fn ranges_behind_the_end_are_unsatisfiable() {
        for value in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=18446744073709551616-"] {
            assert_eq!(parse_range(value.as_bytes(), 100), Err(Unsatisfiable), "{value}");
        }
        assert_eq!(parse_range(b"bytes=0-", 0), Err(Unsatisfiable));
        assert_eq!(parse_range(b"bytes=-5", 0), Ok(None));
    }

    #[test]
    fn what_is_not_one_sound_range_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-1",
            "bytes=a-",
            "bytes=1",
            "bytes=0-1,3-4",
            "items=0-1",
            "bytes 0-1",
            "bytes=--1",
            "bytes=1-2-3",
            "bytes=+1-2",
            "bytes=0x1-2",
        ] {
            assert_eq!(parse_range(value.as_bytes(), 100), Ok(None), "{value}");
        }
    }

    #[test]
    fn no_range_leaves_the_whole() {
        for whole in [0, 1, 2, 10, u64::MAX] {
            for value in ["bytes=0-", "bytes=1-3", "bytes=-2", "bytes=0-18446744073709551615"] {
                if let Ok(Some(range)) = parse_range(value.as_bytes(), whole) {
                    assert!(range.len_bytes > 0);
                    assert!(range.offset.checked_add(range.len_bytes).is_some_and(|e| e <= whole));
                }
            }
        }
    }
}
