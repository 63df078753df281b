//! Entity tags and their two comparisons (RFC 9110 8.8.3). The conditions call it.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
