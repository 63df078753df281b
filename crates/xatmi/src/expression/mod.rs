//! Boolean expressions over fields: `FIRSTNAME %% 'J.*n' && AGE[?] >= 18`.
//!
//! The C interface compiles and evaluates them; subscriptions to events filter by them. A text of a
//! stranger is fine: its length, its depth and the size of its patterns are bounded, and so is the
//! work of an evaluation. Nothing here changes a buffer. `docs/boolean-expressions.md` has the
//! grammar and what operators do.
//!
//! | file | subject |
//! |---|---|
//! | `parse.rs` | text to tree, every mistake with its column |
//! | `evaluate.rs` | a tree and a buffer to a value |
//! | `pattern.rs` | regular expressions |

mod evaluate;
mod parse;
mod pattern;

pub use evaluate::COMPARISONS_MAX;
pub use pattern::EventPattern;

use std::fmt::{self, Write};

use thiserror::Error;

use self::pattern::Pattern;
use crate::field_table::FieldTable;
use crate::ubf::{FieldId, FieldType, UbfError, UbfRef};

/// Most bytes of an expression.
pub const BYTES_MAX: usize = 8192;

/// Most parentheses and unary operators within one another: each is a call deep.
pub const DEPTH_MAX: usize = 32;

/// An expression that was compiled against a field table.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
}

/// Why a text is no expression. [`number`](Self::number) is the `Berror` of C.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpressionError {
    /// The text is longer than [`BYTES_MAX`].
    #[error("the expression has {len} bytes, and at most {BYTES_MAX} are allowed")]
    TooLong {
        /// Its bytes.
        len: usize,
    },
    /// The text does not follow the grammar.
    #[error("column {column}: {reason}")]
    Syntax {
        /// The byte, from 1.
        column: usize,
        /// What was wrong and what is expected.
        reason: &'static str,
    },
    /// A regular expression is wrong or too large.
    #[error("column {column}: the pattern is not valid: {reason}")]
    Pattern {
        /// The byte at which the pattern starts, from 1.
        column: usize,
        /// What was wrong.
        reason: String,
    },
    /// A name stands in no field table.
    #[error("column {column}: no field table has {name}")]
    UnknownField {
        /// The byte at which the name starts, from 1.
        column: usize,
        /// The name.
        name: String,
    },
    /// A field has a type that expressions cannot use.
    #[error(
        "column {column}: {name} is a {field_type}, and only short to carray have a value here"
    )]
    BadType {
        /// The byte at which the name starts, from 1.
        column: usize,
        /// The field's name.
        name: String,
        /// Its type.
        field_type: FieldType,
    },
}

impl ExpressionError {
    /// The number that C programs see as `Berror`.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self {
            Self::UnknownField { .. } => 9,
            Self::Syntax { .. } | Self::Pattern { .. } => 11,
            Self::TooLong { .. } => 14,
            Self::BadType { .. } => 22,
        }
    }
}

impl Expression {
    /// Compiles a text; names of fields are those of `table`.
    ///
    /// # Errors
    /// [`ExpressionError`] with what was wrong and where.
    pub fn compile(text: &[u8], table: &FieldTable) -> Result<Self, ExpressionError> {
        parse::parse(text, table).map(|root| Self { root })
    }

    /// Whether it holds for these fields.
    ///
    /// # Errors
    /// [`UbfError::Invalid`] for a division by 0 or more comparisons than
    /// [`COMPARISONS_MAX`], [`UbfError::NotFielded`] for a damaged region.
    pub fn is_true(&self, fields: UbfRef<'_>) -> Result<bool, UbfError> {
        evaluate::is_true(&self.root, fields)
    }

    /// Its value as a number; 0 where a field is missing.
    ///
    /// # Errors
    /// As [`is_true`](Self::is_true).
    pub fn number(&self, fields: UbfRef<'_>) -> Result<f64, UbfError> {
        evaluate::number(&self.root, fields)
    }
}

/// With all parentheses, and each field with its occurrence; compiling it gives the same tree.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

/// A part of an expression.
#[derive(Clone, Debug)]
enum Node {
    Long(i64),
    Double(f64),
    Text(Vec<u8>),
    Field(FieldPath),
    /// Only on the right of `%%` and `!%`.
    Pattern(Box<Pattern>),
    Unary(Unary, Box<Node>),
    /// Operators of one level, from left to right; so a long chain is no deeper than a short one.
    Chain(Box<Node>, Vec<(Binary, Node)>),
}

/// A field, or one within inner buffers.
#[derive(Clone, Debug)]
struct FieldPath {
    /// Buffers on the way, each with its occurrence.
    outer: Vec<Step>,
    name: String,
    id: FieldId,
    /// `None` is `?`, any.
    occurrence: Option<i32>,
}

#[derive(Clone, Debug)]
struct Step {
    name: String,
    id: FieldId,
    occurrence: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unary {
    Plus,
    Minus,
    Complement,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binary {
    Or,
    And,
    Xor,
    Equal,
    NotEqual,
    Matches,
    MatchesNot,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Divided,
    Remainder,
}

impl Unary {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Plus, "+"), (Self::Minus, "-"), (Self::Complement, "~"), (Self::Not, "!")];

    fn sign(self) -> &'static str {
        Self::ALL.iter().find(|(unary, _)| *unary == self).map_or("", |(_, sign)| sign)
    }
}

impl Binary {
    /// Levels from the weakest on; within one, a sign stands before those that it starts with.
    const LEVELS: [&'static [(Self, &'static str)]; 7] = [
        &[(Self::Or, "||")],
        &[(Self::And, "&&")],
        &[(Self::Xor, "^")],
        &[
            (Self::Equal, "=="),
            (Self::NotEqual, "!="),
            (Self::Matches, "%%"),
            (Self::MatchesNot, "!%"),
        ],
        &[
            (Self::LessOrEqual, "<="),
            (Self::GreaterOrEqual, ">="),
            (Self::Less, "<"),
            (Self::Greater, ">"),
        ],
        &[(Self::Plus, "+"), (Self::Minus, "-")],
        &[(Self::Times, "*"), (Self::Divided, "/"), (Self::Remainder, "%")],
    ];

    fn sign(self) -> &'static str {
        let mut all = Self::LEVELS.iter().flat_map(|level| level.iter());
        all.find(|(binary, _)| *binary == self).map_or("", |(_, sign)| sign)
    }

    fn is_match(self) -> bool {
        matches!(self, Self::Matches | Self::MatchesNot)
    }

    /// Takes the values of fields in pairs, so that one side may be any occurrence.
    fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal
                | Self::NotEqual
                | Self::Less
                | Self::LessOrEqual
                | Self::Greater
                | Self::GreaterOrEqual
        ) || self.is_match()
    }

    /// Asks whether its operands are true, not for their values.
    fn is_logical(self) -> bool {
        matches!(self, Self::Or | Self::And | Self::Xor)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(number) => write!(f, "{number}"),
            Self::Double(number) => write!(f, "{number:?}"),
            Self::Text(text) => write_text(f, text),
            Self::Pattern(pattern) => write_text(f, pattern.text().as_bytes()),
            Self::Field(path) => path.fmt(f),
            Self::Unary(unary, operand) => write!(f, "({}{operand})", unary.sign()),
            Self::Chain(first, rest) => {
                write!(f, "({first}")?;
                for (binary, operand) in rest {
                    write!(f, " {} {operand}", binary.sign())?;
                }
                f.write_char(')')
            }
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Step { name, occurrence, .. } in &self.outer {
            write!(f, "{name}[{occurrence}].")?;
        }
        match self.occurrence {
            Some(occurrence) => write!(f, "{}[{occurrence}]", self.name),
            None => write!(f, "{}[?]", self.name),
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    f.write_char('\'')?;
    for &byte in text {
        match byte {
            b'\\' => f.write_str("\\\\")?,
            b'\'' => f.write_str("\\'")?,
            b' '..=b'~' => f.write_char(char::from(byte))?,
            _ => write!(f, "\\{byte:02x}")?,
        }
    }
    f.write_char('\'')
}

#[cfg(test)]
mod tests;
