//! What is wrong with a configuration: file, line, what was found, what would be right.

use std::fmt;

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

impl ConfigError {
    /// One mistake.
    pub(super) fn one(file: &str, line: usize, message: impl Into<String>) -> Self {
        let mistake = Remark { file: file.to_owned(), line, message: message.into() };
        Self { mistakes: vec![mistake] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.mistakes.iter().map(ToString::to_string).collect();
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
