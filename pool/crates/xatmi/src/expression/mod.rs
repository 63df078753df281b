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

/// Most bytes of the name of a function, and of the text that one is given.
pub const FUNCTION_BYTES_MAX: usize = 64;
pub const ARGUMENT_BYTES_MAX: usize = 510;

/// The field of a name.
pub type FieldOf<'a> = dyn Fn(&str) -> Option<FieldId> + 'a;
/// Whether a function of this name is known, and then whether it is given a text.
pub type Known<'a> = dyn Fn(&str) -> Option<bool> + 'a;
/// The value of a function that was known.
pub type Call<'a> = dyn Fn(&str, Option<&[u8]>) -> Result<i64, UbfError> + 'a;

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
    /// What stands behind the name of a field that holds a buffer or a view leads to no value.
    #[error("column {column}: {reason}")]
    Path {
        /// The byte, from 1.
        column: usize,
        /// The mistake, and what is expected.
        reason: &'static str,
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
            Self::BadType { .. } | Self::Path { .. } => 22,
        }
    }
}

impl Expression {
    /// Compiles a text; names of fields are those of `table`.
    ///
    /// # Errors
    /// [`ExpressionError`] with what was wrong and where.
    pub fn compile(text: &[u8], table: &FieldTable) -> Result<Self, ExpressionError> {
        Self::with_functions(text, &|name| table.id(name), &|_| None)
    }

    /// The same, which may call functions: `NAME()`, `NAME('text')`. `field_of` is asked when a field is named, and not
    /// before.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn with_functions(
        text: &[u8],
        field_of: &FieldOf<'_>,
        known: &Known<'_>,
    ) -> Result<Self, ExpressionError> {
        parse::parse(text, field_of, known).map(|root| Self { root })
    }

    /// Whether it calls functions.
    #[must_use]
    pub fn calls_functions(&self) -> bool {
        self.root.calls_functions()
    }

    /// Whether it holds for these fields.
    ///
    /// # Errors
    /// [`UbfError::Invalid`] for more comparisons than [`COMPARISONS_MAX`], [`UbfError::NotFielded`] for a damaged region.
    pub fn is_true(&self, fields: UbfRef<'_>) -> Result<bool, UbfError> {
        self.is_true_by(fields, &no_function)
    }

    /// The same; functions are called by `call`.
    ///
    /// # Errors
    /// As [`is_true`](Self::is_true), and those of `call`.
    pub fn is_true_by(&self, fields: UbfRef<'_>, call: &Call<'_>) -> Result<bool, UbfError> {
        evaluate::is_true(&self.root, fields, call)
    }

    /// Its value as a number; 0 where a field is missing.
    ///
    /// # Errors
    /// As [`is_true`](Self::is_true).
    pub fn number(&self, fields: UbfRef<'_>) -> Result<f64, UbfError> {
        self.number_by(fields, &no_function)
    }

    /// The same; functions are called by `call`.
    ///
    /// # Errors
    /// As [`is_true_by`](Self::is_true_by).
    pub fn number_by(&self, fields: UbfRef<'_>, call: &Call<'_>) -> Result<f64, UbfError> {
        evaluate::number(&self.root, fields, call)
    }
}

/// What is compiled without functions calls none.
fn no_function(_: &str, _: Option<&[u8]>) -> Result<i64, UbfError> {
    Err(UbfError::Invalid { reason: "the expression calls a function, and there is none here" })
}

/// With all parentheses, and each field with its occurrence; compiling it gives the same values, where no more than
/// [`DEPTH_MAX`] parentheses are within one another.
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
    /// A function of the program, with the text that it is given.
    Function(String, Option<Vec<u8>>),
    /// Only on the right of `%%` and `!%`.
    Pattern(Box<Pattern>),
    Unary(Unary, Box<Node>),
    /// Operators of one level, from left to right; a long chain is as deep as a short one.
    Chain(Box<Node>, Vec<(Binary, Node)>),
}

/// A field, or one within inner buffers, or a member of the view that it holds.
#[derive(Clone, Debug)]
struct FieldPath {
    /// Buffers on the way, each with its occurrence.
    outer: Vec<Step>,
    name: String,
    id: FieldId,
    /// `None` is `?`, any.
    occurrence: Option<i32>,
    /// Of a view the member and its occurrence.
    member: Option<(String, i32)>,
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

impl Node {
    /// Whether a pattern may fit it: a field, a text or a number that stands there.
    const fn has_text(&self) -> bool {
        matches!(self, Self::Field(_) | Self::Text(_) | Self::Long(_) | Self::Double(_))
    }

    fn calls_functions(&self) -> bool {
        match self {
            Self::Function(..) => true,
            Self::Unary(_, operand) => operand.calls_functions(),
            Self::Chain(first, rest) => {
                first.calls_functions() || rest.iter().any(|(_, operand)| operand.calls_functions())
            }
            Self::Long(_) | Self::Double(_) | Self::Text(_) | Self::Field(_) | Self::Pattern(_) => {
                false
            }
        }
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
            Self::Function(name, None) => write!(f, "{name}()"),
            Self::Function(name, Some(text)) => {
                write!(f, "{name}('{}')", String::from_utf8_lossy(text))
            }
            Self::Unary(unary, operand) => write!(f, "({}{operand})", unary.sign()),
            Self::Chain(first, rest) => {
                // As the tree is: what stands on the left was done before.
                for _ in rest {
                    f.write_char('(')?;
                }
                write!(f, "{first}")?;
                for (binary, operand) in rest {
                    let sign = binary.sign();
                    if binary.is_comparison() || binary.is_logical() {
                        write!(f, " {sign} {operand})")?;
                    } else {
                        write!(f, "{sign}{operand})")?;
                    }
                }
                Ok(())
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
            Some(occurrence) => write!(f, "{}[{occurrence}]", self.name)?,
            None => write!(f, "{}[?]", self.name)?,
        }
        match &self.member {
            Some((name, occurrence)) => write!(f, ".{name}[{occurrence}]"),
            None => Ok(()),
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
                          A_UBF 9 ubf\nNONE 10 long\nA_VIEW 11 view\n";
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
            "'5' == 5 && '05' != '5'",
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
    }

    #[test]
    fn constants_zero_and_complements_are_as_the_references_have_them() {
        let table = table();
        let fields = buffer(&table);
        for text in ["1 / 0", "1.5 / 0", "A_LONG / A_LONG[2]", "!'0'", "!''"] {
            assert_eq!(compiled(text).number(fields.fields()), Ok(0.0), "{text}");
        }
        // Nothing is taken away by a remainder of 0.
        for (text, expected) in [("1 % 0", 1.0), ("5 % 0.2", 5.0), ("A_LONG % A_LONG[2]", 5.0)] {
            assert_eq!(compiled(text).number(fields.fields()), Ok(expected), "{text}");
        }
        // A text of the expression is true, and a number is compared with it as the text that it is printed as.
        for (text, expected) in [
            ("100 / 0 == 0", true),
            ("'0'", true),
            ("'' && 1", true),
            ("~'0' == -2", true),
            ("~A_LONG == -2", true),
            ("~NONE == -1", true),
            ("A_LONG == '5'", true),
            ("A_LONG[1] < '7'", true),
            ("A_LONG[1] < '500'", false),
            ("'500' > A_LONG[1]", false),
            ("A_LONG < '-4000'", false),
            ("A_FLOAT < 'abc'", true),
            ("A_FLOAT == '0.5000000000000'", true),
            ("A_FLOAT %% '0[.]500000'", true),
            ("'2' + 3 == 5", true),
            ("NONE == '1'", false),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn an_error_names_its_column() {
        let open = "(".repeat(33);
        let close = ")".repeat(33);
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
            ("A_LONG.A_LONG", 22, "a point follows a field that holds a buffer"),
            ("A_UBF[?].A_LONG == 1", 22, "[?] is for the last field of a path"),
            ("A_UBF[X].A_LONG == 1", 22, "column 7: a number or `?`"),
            ("A_UBF..A_LONG == 1", 22, "column 7: the name of a field"),
            ("A_UBF.", 22, "column 7: the name of a field"),
            ("A_UBF.A_STRING.A_STRING == 1", 22, "column 15: a point follows"),
            ("A_VIEW == 1", 22, "column 1: A_VIEW is a view"),
            ("A_VIEW[?].a == 1", 22, "[?] is for the last field of a path"),
            ("A_VIEW.a[?] == 1", 22, "column 10: a number is expected"),
            ("A_VIEW.a.b == 1", 22, "column 9: nothing follows a member of a view"),
            ("A_LONG - 1 %% '4'", 11, "a pattern fits a field or a text"),
            ("-A_LONG %% '-5'", 11, "a pattern fits a field or a text"),
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
    fn functions_are_called_with_their_text() {
        let known = |name: &str| match name {
            "seven" => Some(false),
            "length" => Some(true),
            _ => None,
        };
        let fields = buffer(&table());
        let table_of_fields = table();
        let field_of = |name: &str| table_of_fields.id(name);
        let call = |name: &str, text: Option<&[u8]>| {
            Ok(text.map_or(7, |text| i64::try_from(text.len()).expect("short"))
                + i64::from(name == "zero"))
        };
        for (text, expected) in [
            ("seven()", 7.0),
            ("seven ( ) + 1", 8.0),
            ("length('')", 0.0),
            ("length('a\\n(b)') * seven()", 42.0),
            ("seven() == '7' && length('abc') == 3", 1.0),
            ("!seven()", 0.0),
        ] {
            let compiled = Expression::with_functions(text.as_bytes(), &field_of, &known)
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(compiled.number_by(fields.fields(), &call), Ok(expected), "{text}");
            let again = compiled.to_string();
            let again = Expression::with_functions(again.as_bytes(), &field_of, &known);
            assert_eq!(
                again.expect(text).number_by(fields.fields(), &call),
                Ok(expected),
                "{text}"
            );
        }
        let too_long = format!("length('{}')", "f".repeat(ARGUMENT_BYTES_MAX + 1));
        for text in [
            "none()",
            "seven('x')",
            "length()",
            "length(A_LONG)",
            "length('x'",
            "length('x",
            "seven() %% '7'",
            &too_long,
        ] {
            let wrong = Expression::with_functions(text.as_bytes(), &field_of, &known);
            assert_eq!(wrong.expect_err(text).number(), 11, "{text}");
        }
        assert_eq!(
            Expression::compile(b"seven()", &table()).expect_err("no functions").number(),
            11
        );
    }

    #[test]
    fn printed_it_is_the_same_expression() {
        for (text, printed) in [
            (
                "A_LONG==1||A_STRING%%'J.*n'&&!NONE",
                "((A_LONG[0] == 1) || ((A_STRING[0] %% 'J.*n') && (!NONE[0])))",
            ),
            ("1-2-3", "((1-2)-3)"),
            (
                "2*(4+5)||5&&'abc'%%'..b'&&2/2*4==5",
                "((2*(4+5)) || ((5 && ('abc' %% '..b')) && (((2/2)*4) == 5)))",
            ),
            (
                "1<1&&2>1&&2>=1&&1<=~2&&2^1",
                "(((((1 < 1) && (2 > 1)) && (2 >= 1)) && (1 <= (~2))) && (2 ^ 1))",
            ),
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
