//! What a key of a job accepts, and how its text becomes a value.
//!
//! The key table names a [`Kind`] for each key. The same readers serve job files and flags, so a
//! value means the same in both; they never know where a text came from.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::fmt::friendly::{Spacing, SpanParser, SpanPrinter};
use pollux_engine::Driver;
use toml::de::DeValue;

use crate::experiments::{self, Experiment};

use super::arms::arm_names;
use super::keys::Key;
use super::mistake::did_you_mean;

/// Longest name; it becomes part of file names and table columns.
const NAME_CHARS_MAX: usize = 60;
/// Longest line of text: a title or a command line.
const LINE_CHARS_MAX: usize = 4096;

/// Which values a key accepts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// A whole number within these bounds.
    Whole(u64, u64),
    /// A share of one within these bounds: `"3%"` or `0.03`.
    Share(f64, f64),
    /// A duration within these bounds: `"500ms"`, `"1m30s"`.
    Length(Duration, Duration),
    /// `true` or `false`.
    Switch,
    /// A word that may become part of a file name.
    Name,
    /// One line of text.
    Line,
    /// A list of arms: names of the lab, and tables of the user.
    Arms,
    /// A sampling rate per second of CPU time within these bounds: `999` or `"cpu-clock:999"`.
    Profile(u32, u32),
    /// A list of texts; it may be empty.
    Texts,
    /// The name of an experiment.
    Experiment,
    /// A command line that splits into words.
    CommandLine,
    /// One that says where in it the port or the address stands.
    ServerLine,
    /// An address with its port.
    Address,
    /// A mechanism of pollux.
    Driver,
    /// A regular expression with at least one capture group.
    Pattern,
}

impl Kind {
    /// The accepted values in words.
    #[must_use]
    pub fn accepts(self) -> String {
        match self {
            Self::Whole(low, high) if low == high => format!("the number {low}"),
            Self::Whole(low, high) => format!("a whole number from {low} to {high}"),
            Self::Share(low, high) => {
                format!("a share from {} to {}", share_text(low), share_text(high))
            }
            Self::Length(low, high) => {
                format!("a duration from {} to {}", length_text(low), length_text(high))
            }
            Self::Switch => "true or false".to_owned(),
            Self::Name => format!(
                "a name of at most {NAME_CHARS_MAX} letters, digits, \"-\", \"_\" or \".\" that \
                 begins with a letter or digit"
            ),
            Self::Line => "one line of text".to_owned(),
            Self::Arms => format!("a list of {} or tables with a name", arm_names().join(", ")),
            Self::Profile(low, high) => format!("samples per second from {low} to {high}"),
            Self::Texts => "a list of texts".to_owned(),
            Self::Experiment => {
                format!("one of {}", experiments::names().join(", "))
            }
            Self::CommandLine => "a command line that splits into words".to_owned(),
            Self::ServerLine => "a command line with {port} or {address} in it".to_owned(),
            Self::Address => "an address with its port".to_owned(),
            Self::Driver => format!("one of {}", Driver::ALL.map(Driver::name).join(", ")),
            Self::Pattern => "a regular expression with a capture group".to_owned(),
        }
    }

    /// Whether a single TOML value has a type from which this kind can be read.
    pub(super) fn takes(self, value: &DeValue<'_>) -> bool {
        match self {
            Self::Whole(..) => value.is_integer(),
            Self::Share(..) => value.is_str() || value.is_float(),
            Self::Switch => value.is_bool(),
            Self::Profile(..) => value.is_str() || value.is_integer(),
            _ => value.is_str(),
        }
    }
}

/// Why a text is no value of `key`, with what would be right.
pub(super) fn refusal(key: &Key, why: &str) -> String {
    let accepts = key.kind.accepts();
    match key.kind {
        // Of one value there is no example but itself.
        Kind::Whole(low, high) if low == high => format!("{why}; expected {low}, {}", key.reason),
        _ => format!("{why}; expected {accepts}, such as {}", key.example),
    }
}

/// Reads a [`Kind::Whole`].
pub(super) fn whole(key: &Key, text: &str) -> Result<u64, String> {
    let Kind::Whole(low, high) = key.kind else { unreachable!("{} is no number", key.name) };
    let number = text.parse::<u64>();
    let number = number.map_err(|_| refusal(key, "not a whole number in bounds"))?;
    bounded(key, number, (low..=high).contains(&number))
}

/// Reads a [`Kind::Whole`] whose bounds fit into 32 bits.
pub(super) fn whole_u32(key: &Key, text: &str) -> Result<u32, String> {
    let number = whole(key, text)?;
    Ok(u32::try_from(number).expect("the key table bounds it"))
}

/// Reads a [`Kind::Share`].
pub(super) fn share(key: &Key, text: &str) -> Result<f64, String> {
    let Kind::Share(low, high) = key.kind else { unreachable!("{} is no share", key.name) };
    let percent = text.trim().strip_suffix('%');
    let (digits, divisor) = percent.map_or((text, 1.0), |digits| (digits, 100.0));
    let number = digits.trim().parse::<f64>().map_err(|_| refusal(key, "not a share"))?;
    let share = number / divisor;
    bounded(key, share, (low..=high).contains(&share))
}

/// Reads a [`Kind::Length`].
pub(super) fn length(key: &Key, text: &str) -> Result<Duration, String> {
    let Kind::Length(low, high) = key.kind else { unreachable!("{} is no duration", key.name) };
    let length = SpanParser::new().parse_unsigned_duration(text);
    let length = length.map_err(|_| refusal(key, "not a duration"))?;
    bounded(key, length, (low..=high).contains(&length))
}

/// Reads a [`Kind::Switch`].
pub(super) fn switch(key: &Key, text: &str) -> Result<bool, String> {
    text.parse::<bool>().map_err(|_| refusal(key, "neither true nor false"))
}

/// Reads a [`Kind::Name`].
pub(super) fn name(key: &Key, text: &str) -> Result<String, String> {
    let is_name = text.chars().count() <= NAME_CHARS_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_name { Ok(text.to_owned()) } else { Err(refusal(key, "not a usable name")) }
}

/// Makes a [`Kind::Name`] of any text; what a name may not have becomes `-`.
pub(super) fn to_name(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = text.chars().map(kept).collect();
    let name: String =
        name.trim_start_matches(['-', '_', '.']).chars().take(NAME_CHARS_MAX).collect();
    if name.is_empty() { "job".to_owned() } else { name }
}

/// Reads a [`Kind::Line`].
pub(super) fn line(key: &Key, text: &str) -> Result<String, String> {
    let is_line = !text.trim().is_empty()
        && text.chars().count() <= LINE_CHARS_MAX
        && !text.contains(char::is_control);
    if is_line { Ok(text.to_owned()) } else { Err(refusal(key, "not one line of text")) }
}

/// Reads a [`Kind::Profile`].
pub(super) fn profile(key: &Key, text: &str) -> Result<u32, String> {
    let Kind::Profile(low, high) = key.kind else { unreachable!("{} is no rate", key.name) };
    let digits = match text.split_once(':') {
        None => text,
        Some(("cpu-clock", digits)) => digits,
        Some((event, _)) => {
            let why = format!("the event {event:?} is not known, only cpu-clock");
            return Err(refusal(key, &why));
        }
    };
    let rate_hz = digits.parse::<u32>().map_err(|_| refusal(key, "not a sampling rate"))?;
    bounded(key, rate_hz, (low..=high).contains(&rate_hz))
}

/// Reads a [`Kind::Experiment`].
pub(super) fn experiment(key: &Key, text: &str) -> Result<&'static dyn Experiment, String> {
    experiments::by_name(text).ok_or_else(|| {
        let suggestion = did_you_mean(text, experiments::names());
        format!("no such experiment; expected {}{suggestion}", key.kind.accepts())
    })
}

/// Reads a [`Kind::CommandLine`].
pub(super) fn command_line(key: &Key, text: &str) -> Result<String, String> {
    let text = line(key, text)?;
    match shell_words::split(&text) {
        Ok(words) if !words.is_empty() => Ok(text),
        Ok(_) => Err(refusal(key, "holds no word")),
        Err(error) => Err(refusal(key, &format!("does not split into words ({error})"))),
    }
}

/// Reads a [`Kind::ServerLine`].
pub(super) fn server_line(key: &Key, text: &str) -> Result<String, String> {
    let text = command_line(key, text)?;
    match text.contains("{port}") || text.contains("{address}") {
        true => Ok(text),
        false => Err(refusal(key, "does not say where the server has to listen")),
    }
}

/// Reads a [`Kind::Address`].
pub(super) fn address(key: &Key, text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| refusal(key, "not an address with a port"))
}

/// Reads a [`Kind::Driver`].
pub(super) fn driver(key: &Key, text: &str) -> Result<Driver, String> {
    text.parse().map_err(|_| {
        let suggestion = did_you_mean(text, Driver::ALL.map(Driver::name));
        format!("no such driver; expected {}{suggestion}", key.kind.accepts())
    })
}

/// Reads a [`Kind::Pattern`].
pub(super) fn pattern(key: &Key, text: &str) -> Result<String, String> {
    match regex::Regex::new(text) {
        // Group 0 is the whole match.
        Ok(regex) if regex.captures_len() >= 2 => Ok(text.to_owned()),
        Ok(_) => Err(refusal(key, "has no capture group, so no figure can be found")),
        Err(error) => {
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or("unreadable").trim();
            let reason = reason.trim_start_matches("error: ");
            Err(refusal(key, &format!("not a regular expression ({reason})")))
        }
    }
}

/// A duration as it is written in a job file.
pub(super) fn length_text(length: Duration) -> String {
    SpanPrinter::new().spacing(Spacing::None).unsigned_duration_to_string(&length)
}

/// A share as it is written in a job file: in percent where that reads back to the same number.
pub(super) fn share_text(share: f64) -> String {
    let percent = (share * 100.0 * 1e6).round() / 1e6;
    if percent / 100.0 == share { format!("{percent}%") } else { format!("{share}") }
}

fn bounded<T>(key: &Key, value: T, is_within: bool) -> Result<T, String> {
    if is_within { Ok(value) } else { Err(refusal(key, "out of bounds")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::keys::{Section, key};

    #[test]
    fn durations_are_read_as_people_write_them() {
        let runtime = key(Section::Global, "runtime");
        for (text, ms) in [("500ms", 500), ("2s", 2000), ("1m30s", 90_000), ("1m 30s", 90_000)] {
            assert_eq!(length(runtime, text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "2", "two seconds", "-2s", "2s ago", "1ms", "2h", "9999999999999h"] {
            assert!(length(runtime, text).is_err(), "{text}");
        }
        assert_eq!(length_text(Duration::from_secs(90)), "1m30s");
        assert_eq!(length_text(Duration::ZERO), "0s");
    }

    #[test]
    fn shares_are_percents_or_fractions() {
        let effect = key(Section::Global, "min_effect");
        for (text, value) in [("3%", 0.03), ("1.5 %", 0.015), ("0.03", 0.03)] {
            assert_eq!(share(effect, text), Ok(value), "{text}");
        }
        for text in ["", "%", "3", "-1%", "0", "NaN", "inf", "three"] {
            assert!(share(effect, text).is_err(), "{text}");
        }
        assert_eq!(share_text(0.07), "7%");
        assert_eq!(share_text(0.015), "1.5%");
    }

    #[test]
    fn a_profile_is_a_rate_with_or_without_its_event() {
        let rate = key(Section::Global, "profile");
        assert_eq!(profile(rate, "999"), Ok(999));
        assert_eq!(profile(rate, "cpu-clock:999"), Ok(999));
        for text in ["", "cycles:999", "cpu-clock:", "cpu-clock:0", "-1"] {
            assert!(profile(rate, text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pattern_needs_a_group_and_a_command_a_word() {
        let shape = key(Section::Arm, "pattern");
        assert!(pattern(shape, "Avg: ([0-9]+)").is_ok());
        assert!(pattern(shape, "Avg: [0-9]+").unwrap_err().contains("no capture group"));
        assert!(pattern(shape, "Avg: ([0-9]+").unwrap_err().contains("unclosed group"));
        let command = key(Section::Arm, "command");
        assert!(command_line(command, "epoll_bench -n 2000 -u").is_ok());
        assert!(command_line(command, "echo \"half").is_err());
        assert!(command_line(command, "  ").is_err());
    }

    #[test]
    fn any_text_becomes_a_name() {
        for text in ["quick", "../../etc", "", "...", "µ", "my job"] {
            let made = to_name(text);
            assert_eq!(name(key(Section::Global, "name"), &made), Ok(made.clone()), "{text}");
        }
    }
}
