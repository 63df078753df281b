//! What is wrong with a configuration: file, line, what was found, what would be right.

use std::fmt;

/// Mistakes that are shown at once: a screen.
const TOLD_MAX: usize = 50;
/// Longest message, so that all that are shown fit into one answer of the manager.
const MESSAGE_CHARS_MAX: usize = 300;

/// A configuration that can't be used. Never without a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// One or more, in the order of the file.
    pub mistakes: Vec<Remark>,
}

/// One thing to be said about one line: a mistake, or a warning beside a configuration that
/// can be used.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Remark {
    /// The file as the user called it.
    pub file: String,
    /// Counted from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// What was found and what would be right, in one line.
    pub message: String,
}

impl Remark {
    /// A remark; of what was found, only the beginning is told.
    pub(super) fn new(file: &str, line: usize, message: &str) -> Self {
        let mut message = message.to_owned();
        if let Some((at, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(at);
            message.push('…');
        }
        Self { file: file.to_owned(), line, message }
    }
}

impl ConfigError {
    /// One mistake.
    pub(super) fn one(file: &str, line: usize, message: impl AsRef<str>) -> Self {
        Self { mistakes: vec![Remark::new(file, line, message.as_ref())] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.mistakes.iter().take(TOLD_MAX);
        let mut lines: Vec<String> = told.map(ToString::to_string).collect();
        if let more @ 1.. = self.mistakes.len().saturating_sub(TOLD_MAX) {
            lines.push(format!("and {more} more mistakes"));
        }
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}
