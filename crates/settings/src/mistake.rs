//! What is wrong with what was said: every mistake, where it stands, what is expected.
//!
//! The readers collect mistakes and a command prints them, one line each. Nothing here decides what
//! is right.

use std::fmt;

/// Most mistakes of one file that are listed: a wrong file of megabytes has no use for more.
const MISTAKES_MAX: usize = 100;
/// Longest value or name that is repeated.
const SHOWN_CHARS_MAX: usize = 60;
/// Shortest word for which a similar one is looked for: any letter is near any other.
const SUGGESTED_CHARS_MIN: usize = 2;
/// Longest word for which a similar one is looked for; longer ones are not typing errors.
const SUGGESTED_CHARS_MAX: usize = 40;

/// Everything that is wrong. Never empty; flags first, then the file from its top.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SettingErrors {
    /// One or more.
    pub mistakes: Vec<SettingError>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// Where it stands.
    pub location: Location,
    /// What was found there and what is expected, in one line.
    pub message: String,
}

/// Where a value comes from. In order: the flags and the whole stand before the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A flag of the command line, with its dashes and its value.
    Flag(String),
    /// What was said as a whole.
    Whole,
    File {
        /// As the user called it.
        file: String,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
    },
}

impl SettingErrors {
    #[must_use]
    pub fn one(location: Location, message: impl Into<String>) -> Self {
        Self { mistakes: vec![SettingError { location, message: message.into() }] }
    }

    /// These, in order, each once, of a file with this name and those that it includes; none where there is none.
    pub(crate) fn of(mut mistakes: Vec<SettingError>, own: &str) -> Option<Self> {
        // Flags keep the order of the table. Files that are included come behind the one that does, by their names.
        let order = |location: &Location| match location {
            Location::File { file, line, column } => {
                let included = if file == own { String::new() } else { file.clone() };
                (included, *line, *column)
            }
            Location::Flag(_) | Location::Whole => (String::new(), 0, 0),
        };
        mistakes.sort_by_cached_key(|mistake| order(&mistake.location));
        mistakes.dedup();
        let more = mistakes.len().saturating_sub(MISTAKES_MAX);
        mistakes.truncate(MISTAKES_MAX);
        if more > 0 {
            let message = format!("and {more} mistakes more");
            mistakes.push(SettingError { location: Location::Whole, message });
        }
        (!mistakes.is_empty()).then_some(Self { mistakes })
    }
}

impl Location {
    /// The place of byte `offset` in the text of a file; past the end means its end.
    pub(crate) fn in_file(file: &str, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self::File { file: file.to_owned(), line, column }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::File { file, line, column } => {
                write!(f, "{file}:{line}:{column}: {}", self.message)
            }
            Location::Flag(flag) => write!(f, "{flag}: {}", self.message),
            Location::Whole => f.write_str(&self.message),
        }
    }
}

/// The end of a message about a name that is not known: `; did you mean "x"?`, or nothing where no
/// candidate is near. A third of the letters may be wrong, of 2 to 40.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let length = word.chars().count();
    if !(SUGGESTED_CHARS_MIN..=SUGGESTED_CHARS_MAX).contains(&length) {
        return String::new();
    }
    // A third of the letters may be wrong, but always one: short words differ by little.
    let distance_max = (length / 3).max(1);
    let nearest = candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| (1..=distance_max).contains(distance))
        .min_by_key(|(distance, _)| *distance);
    nearest.map_or_else(String::new, |(_, candidate)| format!("; did you mean \"{candidate}\"?"))
}

/// A text of the user in one line that stays short, in quotes where it would not be seen as one.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    let shown = shown.replace(char::is_control, "?");
    if shown.is_empty() || shown.contains(' ') { format!("\"{shown}\"") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let location = |offset| Location::in_file("x", "ab\nµc\n", offset);
        let at = |line, column| Location::File { file: "x".to_owned(), line, column };
        assert_eq!([0, 3, 5, 99].map(location), [at(1, 1), at(2, 1), at(2, 2), at(3, 1)]);
    }

    #[test]
    fn only_near_words_are_suggested() {
        let words = ["blocks", "budget", "seed"];
        assert_eq!(did_you_mean("blcoks", words), "; did you mean \"blocks\"?");
        assert_eq!(did_you_mean("transport", words), "");
        assert_eq!(did_you_mean("3", ["0", "1"]), "");
        assert_eq!(did_you_mean(&"b".repeat(100_000), words), "");
    }

    #[test]
    fn a_value_stays_in_one_line() {
        assert_eq!(shown("a\nb"), "a?b");
        assert_eq!([shown(""), shown("a b")], ["\"\"", "\"a b\""]);
        assert_eq!(shown(&"x".repeat(100)).len(), SHOWN_CHARS_MAX + 3);
    }

    #[test]
    fn mistakes_without_number_are_cut() {
        let wrong = |at: usize| SettingError {
            location: Location::in_file("x", &"\n".repeat(at), at),
            message: "wrong".to_owned(),
        };
        let message =
            SettingErrors::of((0..300).rev().map(wrong).collect(), "").expect("some").to_string();
        assert!(message.starts_with("x:1:1: wrong\nx:2:1: "), "{message}");
        assert!(message.ends_with("and 200 mistakes more"), "{message}");
        assert_eq!(SettingErrors::of(Vec::new(), ""), None);
    }
}
