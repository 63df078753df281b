//! Boolean expressions over fields: `FIRSTNAME %% 'J.*n' && AGE[?] >= 18`.
//!
//! The C interface compiles and evaluates them; subscriptions to events filter by them. Any
//! text may be compiled: its length, its depth and the size of its patterns are bounded, and so is the
//! work of an evaluation. Nothing here changes a buffer. `docs/reference/xatmi.md` has the
//! grammar and what operators do.
//!
//! | file | subject |
//! |---|---|
//! | `parse.rs` | text to tree, every mistake with its column; regular expressions |
//! | `evaluate.rs` | a tree and a buffer to a value |

mod evaluate;
mod parse;

pub use evaluate::COMPARISONS_MAX;
pub use parse::EventPattern;

use std::fmt::{self, Write};

use thiserror::Error;

use crate::field_table::FieldTable;
use crate::ubf::{FieldId, FieldType, UbfError, UbfRef};
use parse::Pattern;

/// Most bytes of an expression.
pub const BYTES_MAX: usize = 8192;

/// Most parentheses and unary operators within one another: each is a call deep.
pub const DEPTH_MAX: usize = 32;

/// An expression that was compiled against a field table.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
}

/// Why a text is not an expression. [`number`](Self::number) is the `Berror` of C.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpressionError {
    /// The text is longer than [`BYTES_MAX`].
    #[error("the expression has {len} bytes, and at most {BYTES_MAX} are allowed")]
    TooLong { len: usize },
    /// The text does not follow the grammar.
    #[error("column {column}: {reason}")]
    Syntax {
        /// The byte, from 1.
        column: usize,
        /// The mistake, and what is expected.
        reason: &'static str,
    },
    /// A regular expression is wrong or too large.
    #[error("column {column}: the pattern is not valid: {reason}")]
    Pattern {
        /// The byte at which the pattern starts, from 1.
        column: usize,
        reason: String,
    },
    /// A name stands in no field table.
    #[error("column {column}: no field table has {name}")]
    UnknownField {
        /// The byte at which the name starts, from 1.
        column: usize,
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
    /// Operators of one level, from left to right; a long chain is as deep as a short one.
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
mod tests {
    use std::path::Path;

    use super::*;
    use crate::field_table::FieldFile;
    use crate::ubf::{Ubf, Value};

    fn table() -> FieldTable {
        const FIELDS: &str = "A_SHORT 1 short\nA_LONG 2 long\nA_CHAR 3 char\nA_FLOAT 4 float\n\
                          A_DOUBLE 5 double\nA_STRING 6 string\nA_CARRAY 7 carray\nA_PTR 8 ptr\n\
                          A_UBF 9 ubf\nNONE 10 long\n";
        let mut table = FieldTable::new();
        table
            .insert(&FieldFile::parse(Path::new("fields.fd"), FIELDS).expect("sound"))
            .expect("new");
        table
    }

    fn buffer(table: &FieldTable) -> Ubf {
        let id = |name| table.id(name).expect("known");
        let mut inner = Ubf::new();
        inner.add(id("A_STRING"), "deep").expect("added");
        let mut fields = Ubf::new();
        fields.add(id("A_SHORT"), -7_i16).expect("added");
        for number in [5_i64, 60, 0] {
            fields.add(id("A_LONG"), number).expect("added");
        }
        fields.add(id("A_CHAR"), b'M').expect("added");
        fields.add(id("A_FLOAT"), 0.5_f32).expect("added");
        fields.add(id("A_DOUBLE"), 1e10).expect("added");
        for text in ["John", "12abc", ""] {
            fields.add(id("A_STRING"), text).expect("added");
        }
        fields.add(id("A_CARRAY"), Value::Carray(b"a\0'\xff")).expect("added");
        fields.add(id("A_UBF"), Ubf::new().fields()).expect("added");
        fields.add(id("A_UBF"), inner.fields()).expect("added");
        fields
    }

    fn compiled(text: &str) -> Expression {
        Expression::compile(text.as_bytes(), &table())
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn holds(text: &str) -> bool {
        compiled(text).is_true(buffer(&table()).fields()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn fields_are_compared_by_their_types() {
        for text in [
            "A_LONG == 5",
            "A_LONG[1] > A_LONG",
            "A_SHORT < 0 && A_SHORT >= -7",
            "100.51 - 100.49 == 0.02 && 100.51 * 1.49 == 149.7599",
            "0.1 + 0.2 <= 0.3 && !(0.1 + 0.2 > 0.3) && 0.1 + 0.2 != 0.31",
            "A_FLOAT * 3.0 == 1.5 && 1e300 * 1e300 == 1e300 * 1e300",
            "A_CHAR == 'M'",
            "A_STRING == 'John'",
            "A_STRING > 'Joa' && A_STRING < 'K'",
            "A_STRING[1] == 12",
            "A_STRING[2] == '' && A_STRING[2] == 0",
            "A_FLOAT == .5",
            "A_DOUBLE == 1e10 && A_DOUBLE == 10000000000",
            r"A_CARRAY == 'a\00\'\ff'",
            "9007199254740993 != 9007199254740992",
            "'5' == 5.0 && '05' != '5'",
            "A_UBF[1].A_STRING == 'deep'",
            "2 < 3 == 1",
        ] {
            assert!(holds(text), "{text}");
            assert!(!holds(&format!("!({text})")), "{text}");
        }
    }

    #[test]
    fn a_field_by_itself_asks_whether_it_is_there() {
        for (text, expected) in [
            ("A_LONG[2]", true),
            ("A_LONG[3]", false),
            ("A_LONG[?]", true),
            ("NONE", false),
            ("NONE[?]", false),
            ("(NONE)", false),
            ("!NONE", true),
            ("NONE || A_LONG", true),
            ("NONE ^ A_LONG", true),
            ("A_STRING ^ A_LONG", false),
            ("A_UBF[0].A_STRING", false),
            ("A_UBF[1].A_STRING && !A_UBF[7].A_STRING", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_missing_field_matches_nothing() {
        for text in [
            "NONE == 0",
            "NONE != 0",
            "NONE < 1",
            "NONE == NONE",
            "NONE %% '.*'",
            "NONE !% '.*'",
            "NONE + 1",
            "NONE + 1 > 0",
            "-NONE == 0",
            "NONE[?] != 1",
            "A_UBF[0].A_STRING != ''",
        ] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn any_occurrence_is_enough() {
        for (text, expected) in [
            ("A_LONG[?] == 60", true),
            ("A_LONG[?] == 61", false),
            ("60 == A_LONG[?]", true),
            ("A_LONG[?] != 5", true),
            ("A_LONG[?] > A_LONG[?]", true),
            ("A_STRING[?] %% '[0-9]+[a-c]*'", true),
            ("A_STRING[?] %% 'J'", false),
            ("A_UBF[1].A_STRING[?] == 'deep'", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn patterns_fit_whole_values() {
        for (text, expected) in [
            ("A_STRING %% 'J.*n'", true),
            ("A_STRING %% 'J'", false),
            ("A_STRING !% 'J'", true),
            ("A_STRING %% 'J|John'", true),
            ("A_STRING %% '[[:alpha:]]{4}'", true),
            ("A_LONG %% '5'", true),
            ("A_FLOAT %% '0\\.50*'", true),
            (r"A_CARRAY %% 'a.*'", true),
            ("A_CHAR %% '[A-Z]' && A_SHORT %% '-[0-9]'", true),
            ("A_STRING[2] %% ''", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn arithmetic_follows_c() {
        let table = table();
        let fields = buffer(&table);
        for (text, expected) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("7 / 2", 3.0),
            ("7 / 2.0", 3.5),
            ("-7 % 3", -1.0),
            ("7.9 % 3", 1.0),
            ("10 - 2 - 3", 5.0),
            ("A_LONG + A_SHORT", -2.0),
            ("A_STRING[1] + 1", 13.0),
            ("~0", -1.0),
            ("- -5", 5.0),
            ("+'3.5'", 3.5),
            ("A_LONG", 5.0),
            ("A_LONG[1]", 60.0),
            ("A_STRING[1]", 12.0),
            ("A_STRING", 0.0),
            ("NONE", 0.0),
            ("!A_LONG[2]", 1.0),
            ("+A_LONG", 5.0),
            ("NONE + 1", 0.0),
            ("9223372036854775807 + 1", -9_223_372_036_854_775_808.0),
            ("(-9223372036854775807 - 1) / -1", -9_223_372_036_854_775_808.0),
            ("(-9223372036854775807 - 1) % -1", 0.0),
            ("1e3 * .5", 500.0),
        ] {
            assert_eq!(compiled(text).number(fields.fields()), Ok(expected), "{text}");
        }
        for text in ["1 / 0", "1 % 0", "1.5 / 0", "A_LONG / A_LONG[2]"] {
            let error = compiled(text).is_true(fields.fields()).expect_err(text);
            assert_eq!(error.number(), 14, "{text}");
            assert!(compiled(&format!("1 || {text}")).is_true(fields.fields()).expect("decided"));
            assert!(!compiled(&format!("0 && {text}")).is_true(fields.fields()).expect("decided"));
        }
    }

    #[test]
    fn an_error_names_its_column() {
        let (open, close) = ("(".repeat(33), ")".repeat(33));
        let deep = format!("{open}1{close}");
        for (text, number, words) in [
            ("", 11, "column 1: a field, a number, a text or `(` is expected"),
            ("A_LONG = 1", 11, "column 8: `==` compares"),
            ("A_LONG == ", 11, "column 11: a field"),
            ("(1", 11, "column 3: `)` is expected"),
            ("1)", 11, "column 2: this parenthesis closes none"),
            ("1 2", 11, "column 3: an operator is expected"),
            ("'abc", 11, "column 1: the text has no end"),
            ("\"a\"", 11, "column 1: texts stand between single quotes"),
            ("A_LONG[", 11, "column 8: a number or `?`"),
            ("A_LONG[-1]", 11, "column 8: a number or `?`"),
            ("A_LONG[1", 11, "column 9: `]` is expected"),
            ("A_LONG[99999999999]", 11, "column 8: a number or `?`"),
            ("A_LONG[?] + 1 == 2", 11, "[?] is for comparisons"),
            ("!A_LONG[?]", 11, "[?] is for comparisons"),
            ("A_STRING %% A_STRING", 11, "column 13: a pattern between single quotes"),
            ("A_STRING %% '['", 11, "column 13: the pattern is not valid"),
            ("A_STRING %% 'a)|(b'", 11, "column 13: the pattern is not valid"),
            ("A_STRING %% '(a{1000}){1000}'", 11, "once it is compiled"),
            ("99999999999999999999", 11, "column 1: the number is more than a long can be"),
            ("1e999", 11, "column 1: the number is not valid"),
            (".", 11, "column 1: the number is not valid"),
            ("UNKNOWN == 1", 9, "column 1: no field table has UNKNOWN"),
            ("A_UBF[1].x", 9, "column 10: no field table has x"),
            ("A_UBF == 1", 22, "column 1: A_UBF is a ubf"),
            ("A_PTR", 22, "column 1: A_PTR is a ptr"),
            ("A_LONG.A_LONG", 11, "a point follows a field that holds a buffer"),
            ("A_UBF[?].A_LONG == 1", 11, "[?] is for the last field of a path"),
            (&deep, 11, "column 34: at most 32"),
            (&"-".repeat(40), 11, "column 34: at most 32"),
            (&" ".repeat(BYTES_MAX + 1), 14, "at most 8192"),
        ] {
            let error = Expression::compile(text.as_bytes(), &table()).expect_err(text);
            assert_eq!(error.number(), number, "{text}: {error}");
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn printed_it_is_the_same_expression() {
        for (text, printed) in [
            (
                "A_LONG==1||A_STRING%%'J.*n'&&!NONE",
                "((A_LONG[0] == 1) || ((A_STRING[0] %% 'J.*n') && (!NONE[0])))",
            ),
            ("1-2-3", "(1 - 2 - 3)"),
            ("-(-.5)", "(-(-0.5))"),
            (r"A_UBF[1] .A_LONG[?]==1", ""),
            (r"A_UBF[1].A_STRING[?] != '\'\01\\\.'", r"(A_UBF[1].A_STRING[?] != '\'\01\\\\.')"),
        ] {
            match Expression::compile(text.as_bytes(), &table()) {
                Ok(expression) => {
                    assert_eq!(expression.to_string(), printed);
                    assert_eq!(compiled(printed).to_string(), printed);
                }
                Err(error) => assert!(printed.is_empty(), "{text}: {error}"),
            }
        }
        let chain = ["A_LONG == 1"; 450].join(" || ");
        assert!(!holds(&chain), "a long chain is not a deep one");
    }

    #[test]
    fn work_without_an_end_is_given_up() {
        let table = table();
        let id = |name| table.id(name).expect("known");
        let mut fields = Ubf::new();
        for number in 0..1001_i64 {
            fields.add(id("A_LONG"), number).expect("added");
            fields.add(id("A_SHORT"), -1_i16).expect("added");
        }
        let error =
            compiled("A_LONG[?] < A_SHORT[?]").is_true(fields.fields()).expect_err("endless");
        assert!(error.to_string().contains("more than 1000000 comparisons"), "{error}");
        assert!(compiled("A_LONG[?] == 1000").is_true(fields.fields()).expect("1001 comparisons"));
        // A long text counts by its length.
        let long = "x".repeat(64 << 10);
        let mut texts = Ubf::new();
        for _ in 0..1000 {
            texts.add(id("A_STRING"), &long[..]).expect("added");
        }
        let error =
            compiled("A_STRING[?] %% 'y'").is_true(texts.fields()).expect_err("64 MB of text");
        assert_eq!(error.number(), 14);
    }
}
