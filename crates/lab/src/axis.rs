//! Axes: what an experiment varies, as data, and the values that a point has on them.
//!
//! A list of values for one axis makes a point of the plan for each value. Each experiment has a
//! table, read by the job parser, the command line, the documentation and the experiment itself. A
//! value is read once and stays what it is, a number, a word or a switch, down to the process that
//! runs the point.

use std::collections::BTreeMap;
use std::fmt;

use pollux_load::campaign::AgentName;
use pollux_settings::{Kind, boolean, bytes, integer, one_of, size_text};
use serde::{Deserialize, Serialize};

/// What the plan adds to the axes of a point whose server takes several processes: their number.
pub const PROCESSES: &str = "processes";

/// Values of an axis of CPUs, that of one CPU last.
pub(crate) const CPUS: [&str; 2] = ["split", "free"];

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
    /// The value when nothing is said, or several with commas.
    pub default: &'static str,
}

/// Which values an axis accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AxisKind {
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, which say nothing without the name of the axis.
    Manner(&'static [&'static str]),
    /// One of these versions of what the axis is named after, such as 1.1 and 2.
    Version(&'static [&'static str]),
    /// Whether threads have CPUs of their own, `split`, or not, `free`; with one CPU it is `free`.
    Cpus,
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// So many bytes, from the first to the second: `128`, `64KiB`, `1MiB`.
    Bytes(u64, u64),
    /// One of these words, or this one with a colon and a name of an agent behind it.
    WordOrAgent(&'static [&'static str], &'static str),
    /// One of these words, or a whole number from the first to the second.
    WordOrCount(&'static [&'static str], u64, u64),
    /// `true` or `false`; never a list.
    Switch,
    /// `true`, `false` or a list of both.
    Either {
        /// The key whose flag is short for one of them.
        short: &'static str,
        means: bool,
    },
    /// What a request asks for: it begins with `/`.
    Path,
}

impl Axis {
    /// What it sets, with the option of the original program.
    #[must_use]
    pub fn about(&self) -> String {
        match self.original {
            None => self.about.to_owned(),
            Some(option) => format!("{}; {option} of the original", self.about),
        }
    }

    /// The accepted values.
    #[must_use]
    pub fn kind(&self) -> Kind<Value> {
        match self.kind {
            AxisKind::Word(words) | AxisKind::Manner(words) => one_of_words(words),
            AxisKind::Version(versions) => {
                let read = move |text: &str| {
                    if versions.contains(&text) { Ok(Value::of(text)) } else { Err(String::new()) }
                };
                let kind = Kind::new("VERSION", versions.join(" or "), read);
                kind.or_number().offering(versions.iter().copied())
            }
            AxisKind::Cpus => one_of_words(&CPUS),
            AxisKind::Count(low, high) => integer(low..=high).map(Value::Number),
            AxisKind::Bytes(low, high) => bytes(low..=high).map(Value::Number),
            AxisKind::WordOrAgent(words, agent) => {
                let accepts = format!("{} or {agent}:NAME", words.join(", "));
                let read = move |text: &str| {
                    let name = text.strip_prefix(agent).and_then(|rest| rest.strip_prefix(':'));
                    match name {
                        Some(name) => name.parse::<AgentName>().map(drop)?,
                        None if words.contains(&text) => {}
                        None => return Err(String::new()),
                    }
                    Ok(Value::Word(text.to_owned()))
                };
                Kind::new("WORD", accepts, read).offering(words.iter().copied())
            }
            AxisKind::WordOrCount(words, low, high) => {
                let count = integer(low..=high).map(Value::Number);
                let accepts = format!("{} or {}", words.join(", "), count.accepts());
                let read = move |text: &str| {
                    if words.contains(&text) {
                        Ok(Value::Word(text.to_owned()))
                    } else {
                        count.read(text).map_err(|_| String::new())
                    }
                };
                Kind::new("N", accepts, read).or_number().offering(words.iter().copied())
            }
            AxisKind::Switch | AxisKind::Either { .. } => boolean().map(Value::Switch),
            AxisKind::Path => {
                Kind::new("PATH", "a path such as /x, in ASCII and without spaces", |text| {
                    let is_path = text.starts_with('/')
                        && text
                            .bytes()
                            .all(|byte| byte.is_ascii_graphic() && !b",#".contains(&byte));
                    is_path.then(|| Value::Word(text.to_owned())).ok_or_else(String::new)
                })
            }
        }
    }

    /// Whether it accepts this value.
    #[must_use]
    pub fn holds(&self, value: &Value) -> bool {
        self.kind().read(&value.to_string()).as_ref() == Ok(value)
    }

    /// The values when nothing is said.
    #[must_use]
    pub fn defaults(&self) -> Vec<Value> {
        self.default.split(',').map(Value::of).collect()
    }
}

fn one_of_words(words: &'static [&'static str]) -> Kind<Value> {
    let each = words.iter().map(|word| (*word, "", Value::Word((*word).to_owned())));
    one_of("value", each).called("WORD")
}

/// A value on an axis. In files of results and between processes it is written as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Value {
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
        axes.iter().map(|axis| (axis.name, axis.defaults().swap_remove(0))).collect()
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
    pub(crate) fn is_on(&self, axis: &str) -> bool {
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

/// `300`, `64KiB`, `1MiB`: of an axis of bytes.
pub(crate) fn size_of(value: &Value) -> String {
    value.number().map_or_else(|| value.to_string(), size_text)
}

/// `16 workers`, `1 worker`.
pub(crate) fn counted(value: &Value, name: &str) -> String {
    match name.strip_suffix('s') {
        Some(one) if *value == Value::Number(1) => format!("{value} {one}"),
        _ => format!("{value} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_named_behind_its_word() {
        let kind = AxisKind::WordOrAgent(&["pollux", "wrk"], "agent");
        let axis = Axis { name: "generator", about: "", original: None, kind, default: "pollux" };
        for (text, is_right) in [
            ("wrk", true),
            ("agent:gen-1", true),
            ("agent", false),
            ("agent:", false),
            ("agent:a.b", false),
            ("agents:a", false),
        ] {
            assert_eq!(axis.holds(&Value::Word(text.to_owned())), is_right, "{text}");
        }
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
