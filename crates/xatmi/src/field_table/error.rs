//! What can be wrong with a field table: where, what, and what would be right.
//!
//! Parser and lookup return it; `pollux fld` prints it, the C interface takes its number.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::parse::NAME_BYTES_MAX;
use crate::ubf::FieldId;

/// A field table that cannot be used. It prints as `file:line: what is wrong`.
#[derive(Debug, Error)]
pub struct TableError {
    /// The file, when one was at fault.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// What was wrong.
    pub problem: Problem,
}

/// What was wrong with a field table.
#[derive(Debug, Error)]
pub enum Problem {
    /// An environment variable is missing.
    #[error("{name} is not set: it holds {meaning}")]
    NotSet {
        /// The variable.
        name: &'static str,
        /// What it should hold.
        meaning: &'static str,
    },
    /// A table is in none of the folders.
    #[error("no folder of FLDTBLDIR ({folders}) has this field table")]
    NotFound {
        /// The folders, as the variable names them.
        folders: String,
    },
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The file is too long.
    #[error("it has more than {most} bytes, which is too much for a field table")]
    TooLong {
        /// What it may have.
        most: u64,
    },
    /// A line that starts with `*` is not `*base N`.
    #[error("'{line}' is no base: write *base and a number of 0 to {}", FieldId::NUMBER_MAX)]
    BadBase {
        /// The line.
        line: String,
    },
    /// A line has less than name, number and type.
    #[error("'{line}' is no field: write NAME NUMBER TYPE, as in T_ACCNUM 1 string")]
    TooFewWords {
        /// The line.
        line: String,
    },
    /// The name is none that C can use.
    #[error(
        "'{name}' is no name of a field: letters, digits and _, at most {NAME_BYTES_MAX}, and no digit in front"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The number of the line is none.
    #[error("'{text}' is no number of a field")]
    BadNumber {
        /// What stands there.
        text: String,
    },
    /// Base and number together are no number of a field.
    #[error("number {number} (base {base} + {relative}) is outside 1 to {}", FieldId::NUMBER_MAX)]
    OutOfRange {
        /// The sum.
        number: i64,
        /// The base in force.
        base: i64,
        /// The number of the line.
        relative: i64,
    },
    /// The type is none.
    #[error(
        "'{name}' is no type: short, long, char, float, double, string, carray, ptr, ubf (or fml32) and view are"
    )]
    BadType {
        /// What stands there.
        name: String,
    },
    /// Two fields have one name.
    #[error("the name {name} is taken by a field in {before}")]
    NameTaken {
        /// The name.
        name: String,
        /// Where the other stands, as `file:line`.
        before: String,
    },
    /// Two fields have one id.
    #[error("number {number} of type {field_type} is taken by {name} in {before}")]
    IdTaken {
        /// The number.
        number: i32,
        /// The type.
        field_type: crate::ubf::FieldType,
        /// The other's name.
        name: String,
        /// Where the other stands, as `file:line`.
        before: String,
    },
}

impl TableError {
    pub(super) fn at(file: &Path, line: usize, problem: Problem) -> Self {
        Self { file: Some(file.to_owned()), line: Some(line), problem }
    }

    pub(super) fn of(file: &Path, problem: Problem) -> Self {
        Self { file: Some(file.to_owned()), line: None, problem }
    }

    pub(super) fn anywhere(problem: Problem) -> Self {
        Self { file: None, line: None, problem }
    }

    /// The number that C programs see as `Berror`: 12 when a table could not be had, 13 when it is
    /// wrong.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self.problem {
            Problem::NotSet { .. }
            | Problem::NotFound { .. }
            | Problem::Unreadable(_)
            | Problem::TooLong { .. } => 12,
            _ => 13,
        }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: {}", file.display(), self.problem),
            (Some(file), None) => write!(f, "{}: {}", file.display(), self.problem),
            (None, _) => self.problem.fmt(f),
        }
    }
}
