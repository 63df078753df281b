//! Conditional requests and ranges, by entity tags and dates: one pure function in the order of RFC 9110
//! 13.2.2.
//!
//! The file server calls it when it knows the representation. It reads no clock.

use crate::{Field, Fields, Method, parse_date};

/// What is known of the thing that was asked for; it exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Representation<'r> {
    /// Its tag.
    pub etag: Option<EntityTag<'r>>,
    /// When it was last modified, in seconds since 1970.
    pub modified_s: Option<u64>,
    /// Its length.
    pub len_bytes: u64,
}

/// What to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All of it: 200, or whatever the method does.
    Whole,
    /// A part of it: 206.
    Part(ByteRange),
    /// The client has it: 304.
    NotModified,
    /// The client did not want it as it is: 412.
    PreconditionFailed,
    /// The part does not exist: 416, with
    /// [`HeadWriter::content_range_unsatisfied`](crate::HeadWriter::content_range_unsatisfied).
    Unsatisfiable,
}

/// Judges the conditions in `fields`; all of them together, as their order matters.
///
/// An If-Range date is believed when it is exactly the modification time. The standard would have
/// it believed only when no second change can have come within that second; a server of files that
/// change so fast gives them tags.
#[must_use]
pub fn evaluate(
    method: Method<'_>,
    fields: Fields<'_>,
    representation: &Representation<'_>,
) -> Outcome {
    // Most requests have no condition; one walk over the lines tells.
    if !fields.into_iter().any(|field| is_condition(&field)) {
        return Outcome::Whole;
    }
    let is_read = matches!(method, Method::Get | Method::Head);
    if is_match_failed(fields, representation) {
        return Outcome::PreconditionFailed;
    }
    if is_known(fields, is_read, representation) {
        if is_read { Outcome::NotModified } else { Outcome::PreconditionFailed }
    } else if method == Method::Get {
        range(fields, representation)
    } else {
        Outcome::Whole
    }
}

fn is_condition(field: &Field<'_>) -> bool {
    let prefix = field.name.as_bytes().first_chunk::<3>();
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"if-")) || field.is("range")
}

/// Steps 1 and 2: If-Match, or else If-Unmodified-Since.
fn is_match_failed(fields: Fields<'_>, representation: &Representation<'_>) -> bool {
    if fields.first("if-match").is_some() {
        return !any_tag(fields, "if-match", |tag| {
            representation.etag.is_some_and(|etag| etag.matches_strongly(tag))
        });
    }
    is_modified_since(fields, "if-unmodified-since", representation) == Some(true)
}

/// Steps 3 and 4: If-None-Match, or else If-Modified-Since, which only reading knows.
fn is_known(fields: Fields<'_>, is_read: bool, representation: &Representation<'_>) -> bool {
    if fields.first("if-none-match").is_some() {
        return any_tag(fields, "if-none-match", |tag| {
            representation.etag.is_some_and(|etag| etag.matches_weakly(tag))
        });
    }
    is_read && is_modified_since(fields, "if-modified-since", representation) == Some(false)
}

/// Step 5: Range, when If-Range allows it.
fn range(fields: Fields<'_>, representation: &Representation<'_>) -> Outcome {
    let Some(range) = only(fields, "range") else { return Outcome::Whole };
    let is_allowed = fields.first("if-range").is_none()
        || only(fields, "if-range").is_some_and(|value| is_unchanged(value, representation));
    if !is_allowed {
        return Outcome::Whole;
    }
    match parse_range(range, representation.len_bytes) {
        Ok(Some(part)) => Outcome::Part(part),
        Ok(None) => Outcome::Whole,
        Err(_) => Outcome::Unsatisfiable,
    }
}

/// Whether an If-Range value names exactly this representation (RFC 9110 13.1.5).
fn is_unchanged(value: &[u8], representation: &Representation<'_>) -> bool {
    match EntityTag::parse(value) {
        Some(tag) => representation.etag.is_some_and(|etag| etag.matches_strongly(&tag)),
        None => parse_date(value).is_some_and(|date| representation.modified_s == Some(date)),
    }
}

/// Whether any tag of all fields of that name matches; `*` matches whatever exists.
fn any_tag(fields: Fields<'_>, name: &str, matches: impl Fn(&EntityTag<'_>) -> bool) -> bool {
    fields.all(name).any(|value| value == b"*" || EntityTags(value).any(|tag| matches(&tag)))
}

/// None when the condition is missing, not a date, or nothing is known to compare it with.
fn is_modified_since(
    fields: Fields<'_>,
    name: &str,
    representation: &Representation<'_>,
) -> Option<bool> {
    let date = parse_date(only(fields, name)?)?;
    Some(representation.modified_s? > date)
}

/// The value of the only field of that name; repeated ones mean nothing.
fn only<'b>(fields: Fields<'b>, name: &str) -> Option<&'b [u8]> {
    let mut all = fields.all(name);
    let value = all.next()?;
    all.next().is_none().then_some(value)
}

/// An entity tag: `"opaque"` or `W/"opaque"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntityTag<'b> {
    /// Whether it only promises a representation that serves the same.
    pub is_weak: bool,
    /// What stands between the quotes.
    pub opaque: &'b [u8],
}

impl<'b> EntityTag<'b> {
    /// Reads a value that is one tag and nothing else.
    #[must_use]
    pub fn parse(value: &'b [u8]) -> Option<Self> {
        match Self::split_first(value)? {
            (tag, []) => Some(tag),
            _ => None,
        }
    }

    /// Same and neither weak.
    #[must_use]
    pub fn matches_strongly(&self, other: &EntityTag<'_>) -> bool {
        !self.is_weak && !other.is_weak && self.opaque == other.opaque
    }

    /// Same, weak or not.
    #[must_use]
    pub fn matches_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// The tag at the front, and what follows it.
    fn split_first(value: &'b [u8]) -> Option<(Self, &'b [u8])> {
        let (is_weak, quoted) = match value.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, value),
        };
        let opaque = quoted.strip_prefix(b"\"")?;
        let end = opaque.iter().position(|&b| b == b'"')?;
        let (opaque, rest) = opaque.split_at(end);
        let is_sound = opaque.iter().all(|&b| b > b' ' && b != 0x7f);
        is_sound.then(|| (Self { is_weak, opaque }, &rest[1..]))
    }
}

/// The tags of a list; it ends at the first thing that is none. Tags may hold commas.
pub(crate) struct EntityTags<'b>(pub(crate) &'b [u8]);

impl<'b> Iterator for EntityTags<'b> {
    type Item = EntityTag<'b>;

    fn next(&mut self) -> Option<EntityTag<'b>> {
        let skipped = self.0.iter().take_while(|&&b| matches!(b, b' ' | b'\t' | b',')).count();
        let (tag, rest) = EntityTag::split_first(&self.0[skipped..])?;
        let rest = rest.trim_ascii_start();
        // What follows a tag without a comma makes the rest of the list void.
        self.0 = if rest.first().is_none_or(|&b| b == b',') { rest } else { &[] };
        Some(tag)
    }
}

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
/// Several ranges are answered with the whole, as the standard allows: multipart answers cost
/// more than they give, and overlapping ranges have been used as an attack.
fn parse_range(value: &[u8], whole_bytes: u64) -> Result<Option<ByteRange>, Unsatisfiable> {
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

/// No byte of what was asked for exists.
#[derive(PartialEq, Eq, Debug)]
struct Unsatisfiable;

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

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const EXACT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn outcome(method: Method<'_>, lines: &[(&str, &str)]) -> Outcome {
        let block: String =
            lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let etag = Some(EntityTag { is_weak: false, opaque: b"v1" });
        let modified_s = Some(784_111_777);
        evaluate(
            method,
            Fields::of_checked(block.as_bytes()),
            &Representation { etag, modified_s, len_bytes: 100 },
        )
    }

    fn get(lines: &[(&str, &str)]) -> Outcome {
        outcome(Method::Get, lines)
    }

    const PART: Outcome = Outcome::Part(ByteRange { offset: 0, len_bytes: 10 });
    const RANGE: (&str, &str) = ("Range", "bytes=0-9");

    #[test]
    fn without_conditions_it_is_the_whole() {
        assert_eq!(get(&[]), Outcome::Whole);
        assert_eq!(get(&[("Accept", "*/*"), ("If", "x")]), Outcome::Whole);
    }

    #[test]
    fn if_none_match_compares_weakly_and_stands_before_the_date() {
        for value in ["\"v1\"", "W/\"v1\"", "\"x\", \"v1\"", "*"] {
            assert_eq!(get(&[("If-None-Match", value)]), Outcome::NotModified, "{value}");
            assert_eq!(
                outcome(Method::Put, &[("If-None-Match", value)]),
                Outcome::PreconditionFailed,
                "{value}"
            );
        }
        assert_eq!(
            get(&[("If-None-Match", "\"x\""), ("If-Modified-Since", AFTER)]),
            Outcome::Whole
        );
        assert_eq!(
            get(&[("If-None-Match", "\"x\""), ("if-none-match", "\"v1\"")]),
            Outcome::NotModified
        );
    }

    #[test]
    fn if_modified_since_is_for_reading_and_wants_one_date() {
        for (date, expected) in
            [(BEFORE, Outcome::Whole), (EXACT, Outcome::NotModified), (AFTER, Outcome::NotModified)]
        {
            assert_eq!(get(&[("If-Modified-Since", date)]), expected, "{date}");
            assert_eq!(outcome(Method::Head, &[("If-Modified-Since", date)]), expected);
            assert_eq!(outcome(Method::Post, &[("If-Modified-Since", date)]), Outcome::Whole);
        }
        assert_eq!(get(&[("If-Modified-Since", "soon")]), Outcome::Whole);
        assert_eq!(
            get(&[("If-Modified-Since", AFTER), ("If-Modified-Since", AFTER)]),
            Outcome::Whole
        );
    }

    #[test]
    fn if_match_compares_strongly_and_stands_before_all() {
        for value in ["\"x\", \"v1\"", "*", "\"v1\""] {
            assert_eq!(get(&[("If-Match", value)]), Outcome::Whole, "{value}");
        }
        for value in ["W/\"v1\"", "\"x\"", "", "v1"] {
            assert_eq!(get(&[("If-Match", value)]), Outcome::PreconditionFailed, "{value}");
        }
        let both = [("If-Match", "\"v1\""), ("If-Unmodified-Since", BEFORE)];
        assert_eq!(get(&both), Outcome::Whole);
        let failed_first = [("If-Match", "\"x\""), ("If-None-Match", "\"v1\"")];
        assert_eq!(get(&failed_first), Outcome::PreconditionFailed);
    }

    #[test]
    fn if_unmodified_since_fails_only_when_it_was_modified() {
        assert_eq!(get(&[("If-Unmodified-Since", BEFORE)]), Outcome::PreconditionFailed);
        assert_eq!(get(&[("If-Unmodified-Since", EXACT)]), Outcome::Whole);
        assert_eq!(get(&[("If-Unmodified-Since", "soon")]), Outcome::Whole);
    }

    #[test]
    fn ranges_are_for_get_and_come_last() {
        assert_eq!(get(&[RANGE]), PART);
        assert_eq!(outcome(Method::Head, &[RANGE]), Outcome::Whole);
        assert_eq!(get(&[RANGE, RANGE]), Outcome::Whole);
        assert_eq!(get(&[("Range", "bytes=100-")]), Outcome::Unsatisfiable);
        assert_eq!(get(&[RANGE, ("If-None-Match", "\"v1\"")]), Outcome::NotModified);
        assert_eq!(get(&[("Range", "bytes=100-"), ("If-None-Match", "*")]), Outcome::NotModified);
    }

    #[test]
    fn if_range_wants_the_very_same() {
        for (value, expected) in [
            ("\"v1\"", PART),
            ("W/\"v1\"", Outcome::Whole),
            ("\"v2\"", Outcome::Whole),
            (EXACT, PART),
            (AFTER, Outcome::Whole),
            (BEFORE, Outcome::Whole),
            ("nonsense", Outcome::Whole),
        ] {
            assert_eq!(get(&[RANGE, ("If-Range", value)]), expected, "{value}");
        }
        assert_eq!(get(&[("If-Range", "\"v1\"")]), Outcome::Whole);
        assert_eq!(get(&[("Range", "bytes=100-"), ("If-Range", "\"v2\"")]), Outcome::Whole);
    }

    fn tags(list: &str) -> Vec<String> {
        EntityTags(list.as_bytes())
            .map(|tag| {
                let opaque = tag.opaque.escape_ascii();
                if tag.is_weak { format!("W/{opaque}") } else { opaque.to_string() }
            })
            .collect()
    }

    #[test]
    fn a_value_is_one_tag() {
        assert_eq!(EntityTag::parse(b"\"\""), Some(EntityTag { is_weak: false, opaque: b"" }));
        assert!(EntityTag::parse(b"W/\"x\"").is_some_and(|tag| tag.is_weak));
        for value in ["", "x", "\"x", "x\"", "w/\"x\"", "\"x\" ", "\"a b\"", "W/x", "\"x\"\"y\""] {
            assert_eq!(EntityTag::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn the_table_of_comparisons_of_the_standard() {
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            let parse = |tag: &'static str| EntityTag::parse(tag.as_bytes()).expect("a tag");
            assert_eq!(parse(a).matches_strongly(&parse(b)), strong, "{a} {b}");
            assert_eq!(parse(a).matches_weakly(&parse(b)), weak, "{a} {b}");
        }
    }

    #[test]
    fn lists_hold_commas_and_end_at_nonsense() {
        assert_eq!(tags("\"a\", W/\"b\" ,,\"c,d\""), ["a", "W/b", "c,d"]);
        assert_eq!(tags("\"a\" \"b\""), ["a"]);
        assert_eq!(tags("\"a\", b, \"c\""), ["a"]);
        assert_eq!(tags("*"), [""; 0]);
        assert_eq!(tags(""), [""; 0]);
    }

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
