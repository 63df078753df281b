//! What is wrong with a configuration: every mistake, where it stands, what would be right.
//!
//! The reader of files and the builder collect mistakes; the command line prints them, one line
//! each. Nothing here decides what is right.

use std::fmt;

/// How alike two names must be for one to be suggested for the other.
const ALIKE: f64 = 0.8;

/// Everything that is wrong with a configuration. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.mistakes))]
pub struct ConfigError {
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

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A configuration file.
    File {
        /// As the user called it.
        file: String,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
    },
    /// A flag of the command line, with its dashes.
    Flag(String),
    /// The settings as a whole.
    Whole,
}

impl Place {
    /// The place of byte `offset` in the text of a file; past the end means its end.
    pub(super) fn in_file(file: &str, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self::File { file: file.to_owned(), line, column }
    }

    /// Flags first, then the file from its top.
    pub(super) fn order(&self) -> (usize, usize) {
        match self {
            Self::File { line, column, .. } => (*line, *column),
            Self::Flag(_) | Self::Whole => (0, 0),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { file, line, column } => {
                write!(f, "{file}:{line}:{column}: {}", self.message)
            }
            Place::Flag(flag) => write!(f, "{flag}: {}", self.message),
            Place::Whole => f.write_str(&self.message),
        }
    }
}

/// The end of a message: `; did you mean x?`, or nothing where no candidate is near.
pub(super) fn did_you_mean(word: &str, candidates: impl IntoIterator<Item = String>) -> String {
    let scored = candidates.into_iter().map(|name| (strsim::jaro_winkler(word, &name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score >= ALIKE);
    best.map_or_else(String::new, |(_, name)| format!("; did you mean {name}?"))
}

fn lines(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let place = |offset| Place::in_file("p.toml", "ä = 1\nbc = 2\n", offset);
        let at = |line, column| Place::File { file: "p.toml".to_owned(), line, column };
        assert_eq!(
            [place(0), place(6), place(7), place(11)],
            [at(1, 1), at(1, 6), at(2, 1), at(2, 5)]
        );
        assert_eq!(place(99), at(3, 1));
    }

    #[test]
    fn only_names_that_are_near_are_suggested() {
        let names = || ["header_timeout", "idle_timeout"].map(str::to_owned);
        assert_eq!(did_you_mean("heade_timeout", names()), "; did you mean header_timeout?");
        assert_eq!(did_you_mean("colour", names()), "");
    }
}
