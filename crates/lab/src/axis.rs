//! Axes: what an experiment varies, as data, and the values that a point has on them.
//!
//! A list of values for one axis makes a point of the plan for each value. Each experiment has a
//! table, read by the job parser, the command line, the documentation and the experiment itself. A
//! value is read once and stays what it is, a number, a word or a switch, down to the process that
//! runs the point.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing that can be varied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Key in a job file; the flag is the same with `-` for `_`.
    pub name: &'static str,
    /// What it sets, in one line.
    pub about: &'static str,
    /// The option of the original program, where there is one.
    pub original: Option<&'static str>,
    /// Which values are accepted.
    pub kind: AxisKind,
    /// The value, or values, when nothing is said.
    pub default: &'static [&'static str],
}

/// Which values an axis accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AxisKind {
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// One of these words, or a whole number from the first to the second.
    WordOrCount(&'static [&'static str], u64, u64),
    /// `true` or `false`; never a list.
    Switch,
    /// `true`, `false` or a list of both.
    Either,
    /// What a request asks for: it begins with `/`.
    Path,
}

impl Axis {
    /// The name as a command-line flag, without the dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The accepted values in words.
    #[must_use]
    pub fn accepts(&self) -> String {
        match self.kind {
            AxisKind::Word(words) => words.join(", "),
            AxisKind::Count(low, high) => format!("a whole number from {low} to {high}"),
            AxisKind::WordOrCount(words, low, high) => {
                format!("a whole number from {low} to {high}, {}", words.join(", "))
            }
            AxisKind::Switch => "true or false".to_owned(),
            AxisKind::Either => "true, false".to_owned(),
            AxisKind::Path => "a path such as /x, in ASCII and without spaces".to_owned(),
        }
    }

    /// Reads one value.
    ///
    /// # Errors
    /// [`AxisValueError`] with what would be right.
    pub fn read(&self, text: &str) -> Result<Value, AxisValueError> {
        let value = Value::of(&text.replace('_', ""));
        let value = if self.accepts_number() { value } else { Value::of(text) };
        if self.holds(&value) {
            return Ok(value);
        }
        Err(AxisValueError { axis: self.name, value: text.to_owned(), accepts: self.accepts() })
    }

    /// Whether it accepts this value.
    #[must_use]
    pub fn holds(&self, value: &Value) -> bool {
        match (self.kind, value) {
            (AxisKind::Word(words) | AxisKind::WordOrCount(words, ..), Value::Word(word)) => {
                words.contains(&word.as_str())
            }
            (
                AxisKind::Count(low, high) | AxisKind::WordOrCount(_, low, high),
                Value::Number(n),
            ) => (low..=high).contains(n),
            (AxisKind::Switch | AxisKind::Either, Value::Switch(_)) => true,
            (AxisKind::Path, Value::Word(path)) => {
                path.starts_with('/')
                    && path.bytes().all(|byte| byte.is_ascii_graphic() && !b",#".contains(&byte))
            }
            _ => false,
        }
    }

    /// The values when nothing is said.
    #[must_use]
    pub fn defaults(&self) -> Vec<Value> {
        self.default.iter().map(|text| Value::of(text)).collect()
    }

    const fn accepts_number(&self) -> bool {
        matches!(self.kind, AxisKind::Count(..) | AxisKind::WordOrCount(..))
    }
}

/// A value on an axis. In files of results and between processes it is written as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Value {
    /// A count.
    Number(u64),
    /// One of the words of the axis.
    Word(String),
    /// On or off.
    Switch(bool),
}

impl Value {
    /// The value that is written so. No axis has a word that reads as a number or a switch.
    #[must_use]
    pub fn of(text: &str) -> Self {
        match (text.parse(), text.parse()) {
            (Ok(number), _) => Self::Number(number),
            (_, Ok(is_on)) => Self::Switch(is_on),
            _ => Self::Word(text.to_owned()),
        }
    }

    /// The count; none of words and switches.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.pad(word),
            Self::Switch(is_on) => is_on.fmt(f),
        }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::of(&text)
    }
}

impl From<Value> for String {
    fn from(value: Value) -> Self {
        value.to_string()
    }
}

/// The values of a point, each under the name of its axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Axes(BTreeMap<String, Value>);

impl Axes {
    /// Every axis at its default; of several the first.
    #[must_use]
    pub fn defaults(axes: &[Axis]) -> Self {
        axes.iter().map(|axis| (axis.name, Value::of(axis.default[0]))).collect()
    }

    /// The value of an axis, where the point has it.
    #[must_use]
    pub fn get(&self, axis: &str) -> Option<&Value> {
        self.0.get(axis)
    }

    /// A count.
    ///
    /// # Panics
    /// When the point has no number there: its axes were checked when it was read.
    #[must_use]
    pub fn number(&self, axis: &str) -> u64 {
        self.get(axis).and_then(Value::number).unwrap_or_else(|| panic!("{axis} is a number"))
    }

    /// A word, or none where the value is none.
    #[must_use]
    pub fn word(&self, axis: &str) -> Option<&str> {
        match self.get(axis)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Whether the axis has this word.
    #[must_use]
    pub fn is(&self, axis: &str, word: &str) -> bool {
        self.word(axis) == Some(word)
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, axis: &str) -> bool {
        self.get(axis) == Some(&Value::Switch(true))
    }

    /// Sets a value.
    pub fn set(&mut self, axis: &str, value: Value) {
        self.0.insert(axis.to_owned(), value);
    }

    /// Takes a value away.
    pub fn remove(&mut self, axis: &str) -> Option<Value> {
        self.0.remove(axis)
    }

    /// Every axis with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The values as they are shown.
    #[must_use]
    pub fn texts(&self) -> BTreeMap<String, String> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    }
}

impl<N: Into<String>> FromIterator<(N, Value)> for Axes {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(values: I) -> Self {
        Self(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

/// `16 workers`, `1 worker`.
pub(crate) fn counted(value: &Value, name: &str) -> String {
    match name.strip_suffix('s') {
        Some(one) if *value == Value::Number(1) => format!("{value} {one}"),
        _ => format!("{value} {name}"),
    }
}

/// A value that an axis does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisValueError {
    axis: &'static str,
    value: String,
    accepts: String,
}

impl fmt::Display for AxisValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = \"{}\" is not accepted; expected {}", self.axis, self.value, self.accepts)
    }
}

impl std::error::Error for AxisValueError {}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Axis = Axis {
        name: "transport",
        about: "",
        original: None,
        kind: AxisKind::Word(&["pipe", "unix", "tcp"]),
        default: &["pipe"],
    };
    const COUNT: Axis =
        Axis { name: "nfds", kind: AxisKind::Count(1, 500_000), default: &["2000"], ..WORDS };

    #[test]
    fn a_wrong_value_is_answered_with_the_right_ones() {
        let error = WORDS.read("tpc").expect_err("no such transport");
        assert_eq!(
            error.to_string(),
            "transport = \"tpc\" is not accepted; expected pipe, unix, tcp"
        );
        assert!(WORDS.read("1").is_err() && COUNT.read("pipe").is_err());
    }

    #[test]
    fn counts_may_carry_underscores_and_keep_their_bounds() {
        assert_eq!(COUNT.read("2_000"), Ok(Value::Number(2000)));
        assert!(COUNT.read("0").is_err());
    }

    #[test]
    fn values_are_written_as_text_and_read_back() {
        let values = [Value::Number(7), Value::Word("tcp".to_owned()), Value::Switch(true)];
        for (value, text) in values.iter().zip(["\"7\"", "\"tcp\"", "\"true\""]) {
            assert_eq!(serde_json::to_string(value).expect("plain data"), text);
            assert_eq!(serde_json::from_str::<Value>(text).expect(text), *value);
        }
    }
}
