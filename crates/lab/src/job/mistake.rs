//! What is wrong with a job: every mistake, where it stands and what would be right.
//!
//! The parser of job files and the reader of flags collect [`Mistake`]s; the command line
//! prints the whole [`JobError`], one line for each. Nothing here decides what is right.

use std::fmt;

/// Shortest word for which a similar one is looked for: any letter is near any other.
const SUGGESTED_CHARS_MIN: usize = 2;
/// Longest word for which a similar one is looked for; longer ones are not typing errors.
const SUGGESTED_CHARS_MAX: usize = 40;

/// Everything that is wrong with a job. Never empty; the mistakes of a file stand in the order
/// of its lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.mistakes))]
pub struct JobError {
    /// One or more.
    pub mistakes: Vec<Mistake>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands.
    pub place: Place,
    /// What was found there and what would be right, in one line.
    pub message: String,
}

/// Where a mistake stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a job file.
    File {
        /// As the user called it.
        file: String,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
    },
    /// In a flag of the command line, such as `--blocks`.
    Flag(String),
    /// In the name of what is to be run.
    Target,
}

impl JobError {
    /// An error with one mistake.
    pub(super) fn one(place: Place, message: String) -> Self {
        Self { mistakes: vec![Mistake { place, message }] }
    }
}

impl Place {
    /// The place of byte `offset` in the text of a file; past the end means its end.
    pub(super) fn in_file(file: &str, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self::File { file: file.to_owned(), line, column }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { file, line, column } => {
                write!(f, "{file}:{line}:{column}: {}", self.message)
            }
            Place::Flag(flag) => write!(f, "{flag}: {}", self.message),
            Place::Target => f.write_str(&self.message),
        }
    }
}

/// The end of a message about a name that is not known: `; did you mean "x"?`, or nothing where no
/// candidate is near: a third of the letters may be wrong, of 2 to 40.
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

fn lines(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let place = |offset| Place::in_file("x", "ab\nµc\n", offset);
        let at = |line, column| Place::File { file: "x".to_owned(), line, column };
        assert_eq!(place(0), at(1, 1));
        assert_eq!(place(3), at(2, 1));
        assert_eq!(place(5), at(2, 2));
        assert_eq!(place(99), at(3, 1));
    }

    #[test]
    fn only_near_words_are_suggested() {
        let words = ["blocks", "budget", "seed"];
        assert_eq!(did_you_mean("blcoks", words), "; did you mean \"blocks\"?");
        assert_eq!(did_you_mean("transport", words), "");
        assert_eq!(did_you_mean("3", ["0", "1"]), "");
        assert_eq!(did_you_mean(&"b".repeat(100_000), words), "");
    }
}
