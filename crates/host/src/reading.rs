//! A figure of the machine, or the reason why there is none: never 0, never an empty string, and never left out.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A figure, or the reason why there is none.
///
/// ```
/// use pollux_host::Reading;
///
/// let release = Reading::of_file("/proc/sys/kernel/osrelease");
/// assert!(release.value().is_some_and(|release| !release.is_empty()));
///
/// let missing = Reading::of_file("/proc/no-such-entry").map(|text| text.len());
/// assert_eq!(missing.to_string(), "n/a");
/// assert!(missing.reason().is_some_and(|why| why.starts_with("/proc/no-such-entry:")));
/// ```
///
/// As JSON: `{"value": x}` or `{"unavailable": "reason", "enable": "command"}`, the command only
/// where one is known. Shown as text it is the value or `n/a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// It was read, and this is it.
    Value(T),
    /// It could not be read.
    Unavailable {
        /// What stood in the way, in one clause.
        reason: String,
        /// What would make it readable: a shell command, or a word for the kernel's boot line.
        enable: Option<String>,
    },
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self::unavailable("nothing was read")
    }
}

impl<T> Reading<T> {
    /// A figure that is missing for `reason`, with no known remedy.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into(), enable: None }
    }

    /// The result of an operation on `what`; a failure becomes the reason.
    pub fn from_io(what: &str, result: io::Result<T>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(error) => Self::unavailable(format!("{what}: {error}")),
        }
    }

    /// Names the command that would help, if the figure is missing.
    #[must_use]
    pub fn or_enable_with(self, command: &str) -> Self {
        match self {
            Self::Unavailable { reason, .. } => {
                Self::Unavailable { reason, enable: Some(command.to_owned()) }
            }
            read => read,
        }
    }

    /// The figure, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unavailable { .. } => None,
        }
    }

    /// Why there is no figure.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Value(_) => None,
            Self::Unavailable { reason, .. } => Some(reason),
        }
    }

    /// Borrows the figure and copies the reason.
    pub fn as_ref(&self) -> Reading<&T> {
        match self {
            Self::Value(value) => Reading::Value(value),
            Self::Unavailable { reason, enable } => {
                Reading::Unavailable { reason: reason.clone(), enable: enable.clone() }
            }
        }
    }

    /// Changes the figure and keeps the reason.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        self.and_then(|value| Reading::Value(change(value)))
    }

    /// Uses the figure for another one that may be missing in its turn.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Self::Value(value) => next(value),
            Self::Unavailable { reason, enable } => Reading::Unavailable { reason, enable },
        }
    }
}

impl Reading<String> {
    /// The text of a file, without white space around it. An empty file counts as unreadable.
    #[must_use]
    pub fn of_file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let name = path.display().to_string();
        Self::from_io(&name, std::fs::read_to_string(path))
            .parsed(&format!("{name} is empty"), |text| {
                Some(text.trim().to_owned()).filter(|text| !text.is_empty())
            })
    }

    /// What `parse` finds in the text; `otherwise` is the reason if it finds nothing.
    #[must_use]
    pub fn parsed<U>(self, otherwise: &str, parse: impl FnOnce(&str) -> Option<U>) -> Reading<U> {
        self.and_then(|text| match parse(&text) {
            Some(value) => Reading::Value(value),
            None => Reading::unavailable(otherwise),
        })
    }
}

impl<T: fmt::Display> fmt::Display for Reading<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The value sees width and precision, so tables line up.
            Self::Value(value) => value.fmt(out),
            Self::Unavailable { .. } => not_available(out),
        }
    }
}

/// The number of a line `name: number …`, as in `/proc/meminfo`.
#[must_use]
pub fn number_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// Keeps the column but not the precision, which would cut the text short.
fn not_available(out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let width = out.width().unwrap_or(0);
    match out.align() {
        Some(fmt::Alignment::Left) => write!(out, "{:<width$}", "n/a"),
        _ => write!(out, "{:>width$}", "n/a"),
    }
}

/// The two JSON shapes; borrowed when writing, owned when reading.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Shape<T, S> {
    Value {
        value: T,
    },
    Unavailable {
        unavailable: S,
        #[serde(default = "none", skip_serializing_if = "Option::is_none")]
        enable: Option<S>,
    },
}

/// Spelled out because a plain `default` would ask `S` to have one.
fn none<S>() -> Option<S> {
    None
}

impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => Shape::<&T, &str>::Value { value },
            Self::Unavailable { reason, enable } => {
                Shape::Unavailable { unavailable: reason.as_str(), enable: enable.as_deref() }
            }
        }
        .serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Shape::<T, String>::deserialize(deserializer)? {
            Shape::Value { value } => Self::Value(value),
            Shape::Unavailable { unavailable, enable } => {
                Self::Unavailable { reason: unavailable, enable }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(reading: &Reading<u64>, json: &str) {
        assert_eq!(serde_json::to_string(reading).expect("json"), json);
        let back: Reading<u64> = serde_json::from_str(json).expect("our own json");
        assert_eq!(&back, reading);
    }

    #[test]
    fn a_missing_figure_travels_with_its_reason() {
        round_trip(&Reading::Value(7), r#"{"value":7}"#);
        let missing = Reading::unavailable("no such file");
        round_trip(&missing, r#"{"unavailable":"no such file"}"#);
        let json = r#"{"unavailable":"no such file","enable":"sudo true"}"#;
        round_trip(&missing.or_enable_with("sudo true"), json);
        assert!(serde_json::from_str::<Reading<u64>>("0").is_err());
        assert!(serde_json::from_str::<Reading<u64>>("{}").is_err());
    }

    #[test]
    fn text_form_is_the_value_or_not_available() {
        assert_eq!(format!("{:>6.1}", Reading::Value(1.25)), "   1.2");
        let missing = Reading::<f64>::unavailable("x");
        assert_eq!(format!("{missing:>6.1}|{missing:<6.1}|{missing}"), "   n/a|n/a   |n/a");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let reading = Reading::of_file("/proc/no-such-entry");
        assert!(reading.reason().is_some_and(|why| why.starts_with("/proc/no-such-entry:")));
    }
}
