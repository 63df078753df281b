//! Conditional requests and ranges: one pure function in the order of RFC 9110 13.2.2.
//!
//! The file server calls it when it knows the representation. It reads no clock.

use crate::entity_tag::EntityTags;
use crate::{ByteRange, EntityTag, Field, Fields, Method, parse_date, parse_range};

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
    /// The part does not exist: 416.
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
    match is_known(fields, is_read, representation) {
        true if is_read => Outcome::NotModified,
        true => Outcome::PreconditionFailed,
        false if method == Method::Get => range(fields, representation),
        false => Outcome::Whole,
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
}
