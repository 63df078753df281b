//! Which values a key accepts, in words, and how a text becomes one of them.
//!
//! The same reader serves flags and files, so a value means the same in both; it never knows where
//! a text came from. What only one command knows it reads with [`parsed`] or [`Kind::map`].

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::fmt::friendly::{Spacing, SpanPrinter};
use toml::de::DeValue;

use crate::mistake::did_you_mean;
use crate::quantity::{self, NotADuration, OF_BYTES};

/// Longest name; it becomes part of file names and table columns.
const NAME_CHARS_MAX: usize = 60;
/// Longest line of text: a title or a command line.
const LINE_CHARS_MAX: usize = 4096;

/// The values that a key accepts, as a `T`.
#[derive(Clone)]
pub struct Kind<T> {
    pub(crate) placeholder: &'static str,
    pub(crate) accepts: String,
    shape: Shape,
    pub(crate) words: Vec<Word>,
    read: Reader<T>,
}

type Reader<T> = Arc<dyn Fn(&str) -> Result<T, Fault> + Send + Sync>;

/// A word that is accepted, for completions and lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// As it is written.
    pub name: &'static str,
    /// What it means, where that needs a line.
    pub about: &'static str,
}

/// Types of TOML from which a kind can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Text,
    WholeOrText,
    FractionOrText,
    Boolean,
}

/// Why a text is not a value.
enum Fault {
    /// What it is not; what is expected is the kind's to say.
    Why(String),
    /// The whole line.
    Line(String),
}

impl<T: 'static> Kind<T> {
    /// Values that are read by `read`, which answers with what is wrong, such as "not a rate".
    /// `accepts` says what is expected, as in "expected {accepts}", where the answer itself has no
    /// "; expected …"; `placeholder` stands for a value in help texts, such as `TIME`.
    pub fn new(
        placeholder: &'static str,
        accepts: impl Into<String>,
        read: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let read = Arc::new(move |text: &str| {
            read(text).map_err(|why| {
                if why.contains("; expected ") { Fault::Line(why) } else { Fault::Why(why) }
            })
        });
        let shape = Shape::Text;
        Self { placeholder, accepts: accepts.into(), shape, words: Vec::new(), read }
    }

    /// The same values as something else.
    #[must_use]
    pub fn map<U>(self, make: impl Fn(T) -> U + Send + Sync + 'static) -> Kind<U> {
        let Self { placeholder, accepts, shape, words, read } = self;
        Kind {
            placeholder,
            accepts,
            shape,
            words,
            read: Arc::new(move |text| read(text).map(&make)),
        }
    }

    /// Another placeholder for help texts.
    #[must_use]
    pub fn called(self, placeholder: &'static str) -> Self {
        Self { placeholder, ..self }
    }

    /// Words that completions offer beside what is accepted anyway.
    #[must_use]
    pub fn offering(mut self, words: impl IntoIterator<Item = &'static str>) -> Self {
        self.words.extend(words.into_iter().map(|name| Word { name, about: "" }));
        self
    }

    /// Numbers of a file as well, which are read as their text.
    #[must_use]
    pub fn or_number(self) -> Self {
        Self { shape: Shape::WholeOrText, ..self }
    }

    /// The value of a text.
    ///
    /// # Errors
    /// What is wrong and what is expected.
    pub fn read(&self, text: &str) -> Result<T, String> {
        self.judge(text, "")
    }

    /// The value of a text that stands in a table.
    pub(crate) fn of_table(&self, text: &str) -> T {
        let read = self.read(text);
        read.unwrap_or_else(|why| panic!("the default {text} is not accepted: {why}"))
    }

    /// The accepted values in words, as in "expected {accepts}".
    #[must_use]
    pub fn accepts(&self) -> &str {
        &self.accepts
    }

    /// The value of a text.
    ///
    /// # Errors
    /// What is wrong and what is expected; `example` is one that is accepted, if there is one.
    pub(crate) fn judge(&self, text: &str, example: &str) -> Result<T, String> {
        (self.read)(text).map_err(|fault| match fault {
            Fault::Why(why) => self.refusal(&why, example),
            Fault::Line(line) => line,
        })
    }

    /// Why something is not accepted, and what is expected.
    pub(crate) fn refusal(&self, why: &str, example: &str) -> String {
        let example =
            if example.is_empty() { String::new() } else { format!(", such as {example}") };
        let why = if why.is_empty() { String::new() } else { format!("{why}; ") };
        format!("{why}expected {}{example}", self.accepts)
    }

    /// Whether a TOML value has a type from which this kind can be read.
    pub(crate) fn takes(&self, value: &DeValue<'_>) -> bool {
        match self.shape {
            Shape::Text => value.is_str(),
            Shape::WholeOrText => value.is_integer() || value.is_str(),
            Shape::FractionOrText => value.is_float() || value.is_str(),
            Shape::Boolean => value.is_bool(),
        }
    }
}

/// A whole number within these bounds, as [`whole_number`](quantity::whole_number) reads it.
#[must_use]
pub fn integer<N: TryFrom<u64> + 'static>(bounds: RangeInclusive<u64>) -> Kind<N> {
    let low = *bounds.start();
    let high = *bounds.end();
    let accepts = if low == high {
        format!("the number {}", grouped(low))
    } else {
        format!("a whole number from {} to {}", grouped(low), grouped(high))
    };
    let read = move |text: &str| {
        let number = quantity::whole_number(text).filter(|number| bounds.contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(String::new)
    };
    Kind { shape: Shape::WholeOrText, ..Kind::new("N", accepts, read) }
}

/// The same, of things that people give in thousands and millions: what is accepted says so.
#[must_use]
pub fn many<N: TryFrom<u64> + 'static>(bounds: RangeInclusive<u64>) -> Kind<N> {
    let kind = integer(bounds);
    Kind { accepts: format!("{}, such as 500, 10k or 2M", kind.accepts), ..kind }
}

/// `true` or `false`, for lists of them: one alone is a [`switch`](crate::Key::switch).
#[must_use]
pub fn boolean() -> Kind<bool> {
    let read = |text: &str| text.parse::<bool>().map_err(|_| String::new());
    Kind { shape: Shape::Boolean, ..Kind::new("BOOL", "true or false", read) }
        .offering(["true", "false"])
}

/// An amount of bytes within these bounds: `128`, `64KiB`, `1MiB`, `2GiB`.
#[must_use]
pub fn bytes<N: TryFrom<u64> + 'static>(bounds: RangeInclusive<u64>) -> Kind<N> {
    let low = size_text(*bounds.start());
    let high = size_text(*bounds.end());
    let accepts = format!("a size from {low} to {high}, such as 128, 64KiB or 1MiB");
    let read = move |text: &str| {
        let size = quantity::size(text).filter(|size| bounds.contains(size));
        size.and_then(|size| N::try_from(size).ok()).ok_or_else(String::new)
    };
    Kind { shape: Shape::WholeOrText, ..Kind::new("SIZE", accepts, read) }
}

/// A duration within these bounds: `500ms`, `2s`, `1m30s`.
#[must_use]
pub fn duration(bounds: RangeInclusive<Duration>) -> Kind<Duration> {
    let low = duration_text(*bounds.start());
    let high = duration_text(*bounds.end());
    let accepts = format!("a duration from {low} to {high}, such as 500ms, 10s or 1m30s");
    Kind::new("TIME", accepts, move |text| match quantity::duration(text) {
        Ok(length) if bounds.contains(&length) => Ok(length),
        Err(NotADuration::WithoutUnit) => Err("a number without its unit".to_owned()),
        Ok(_) | Err(NotADuration::Other) => Err(String::new()),
    })
}

/// A share of one within these bounds: `3%` or `0.03`.
#[must_use]
pub fn share(bounds: RangeInclusive<f64>) -> Kind<f64> {
    let low = share_text(*bounds.start());
    let high = share_text(*bounds.end());
    let read = move |text: &str| {
        let share = quantity::part(text).ok_or_else(|| "not a share".to_owned())?;
        bounds.contains(&share).then_some(share).ok_or_else(|| "out of bounds".to_owned())
    };
    let kind = Kind::new("PERCENT", format!("a share from {low} to {high}"), read);
    Kind { shape: Shape::FractionOrText, ..kind }
}

/// A word that may become part of a file name.
#[must_use]
pub fn name() -> Kind<String> {
    let accepts = format!(
        "a name of at most {NAME_CHARS_MAX} letters, digits, \"-\", \"_\" or \".\" that begins with \
         a letter or digit"
    );
    Kind::new("NAME", accepts, |text| {
        let is_name = text.chars().count() <= NAME_CHARS_MAX
            && text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        is_name.then(|| text.to_owned()).ok_or_else(|| "not a usable name".to_owned())
    })
}

/// One line of text that is not blank.
#[must_use]
pub fn line() -> Kind<String> {
    Kind::new("TEXT", "one line of text", |text| {
        let is_line = !text.trim().is_empty()
            && text.chars().count() <= LINE_CHARS_MAX
            && !text.contains(char::is_control);
        is_line.then(|| text.to_owned()).ok_or_else(|| "not one line of text".to_owned())
    })
}

/// A path; nothing is looked for there.
#[must_use]
pub fn path() -> Kind<PathBuf> {
    Kind::new("PATH", "a path", |text| match text {
        "" => Err("no path".to_owned()),
        path => Ok(path.into()),
    })
}

/// One of these values by its name. `what` says what the names are of, such as "poller"; each may
/// have a line about it.
#[must_use]
pub fn one_of<T: Clone + Send + Sync + 'static>(
    what: &'static str,
    values: impl IntoIterator<Item = (&'static str, &'static str, T)>,
) -> Kind<T> {
    let values: Vec<_> = values.into_iter().collect();
    let words: Vec<_> = values.iter().map(|&(name, about, _)| Word { name, about }).collect();
    let accepts = words.iter().map(|word| word.name).collect::<Vec<_>>().join(", ");
    let expected = accepts.clone();
    let read = Arc::new(move |text: &str| {
        let found = values.iter().find(|(name, ..)| *name == text);
        found.map(|(.., value)| value.clone()).ok_or_else(|| {
            let near = did_you_mean(text, values.iter().map(|(name, ..)| *name));
            Fault::Line(format!("no such {what}; expected {expected}{near}"))
        })
    });
    Kind { placeholder: "NAME", accepts, shape: Shape::Text, words, read }
}

/// What `read` makes of a text. Its error is the whole line: it says what is wrong and what is
/// expected. `accepts` is for the reference page and for values of another type.
pub fn parsed<T: 'static, E: Display>(
    placeholder: &'static str,
    accepts: impl Into<String>,
    read: impl Fn(&str) -> Result<T, E> + Send + Sync + 'static,
) -> Kind<T> {
    let read = Arc::new(move |text: &str| read(text).map_err(|line| Fault::Line(line.to_string())));
    let shape = Shape::Text;
    Kind { placeholder, accepts: accepts.into(), shape, words: Vec::new(), read }
}

/// A duration as it is written in a file.
#[must_use]
pub fn duration_text(length: Duration) -> String {
    SpanPrinter::new().spacing(Spacing::None).unsigned_duration_to_string(&length)
}

/// A share as it is written in a file: in percent where that reads back to the same number.
#[must_use]
pub fn share_text(share: f64) -> String {
    let percent = (share * 100.0 * 1e6).round() / 1e6;
    if percent / 100.0 == share { format!("{percent}%") } else { format!("{share}") }
}

/// An amount of bytes in the largest unit that says it without a fraction.
/// `128`, `64KiB`, `1MiB`: the largest unit of which it is a whole number.
#[must_use]
pub fn size_text(size: u64) -> String {
    let is_one = |(_, bytes): &&(&str, u32)| {
        size >= u64::from(*bytes) && size.is_multiple_of(u64::from(*bytes))
    };
    let unit = OF_BYTES.iter().find(is_one);
    unit.map_or_else(
        || size.to_string(),
        |(name, bytes)| format!("{}{name}", size / u64::from(*bytes)),
    )
}

/// A number with a comma before every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused<T: 'static>(kind: &Kind<T>, texts: &[&str]) {
        for text in texts {
            assert!(kind.judge(text, "").is_err(), "{text}");
        }
    }

    #[test]
    fn whole_numbers_have_bounds_that_are_reported() {
        let kind = integer::<u32>(1..=u64::from(u32::MAX));
        assert_eq!(kind.judge("7", ""), Ok(7));
        let message = kind.judge("0", "").expect_err("too small");
        assert_eq!(message, "expected a whole number from 1 to 4,294,967,295");
        refused(&kind, &["", "-1", "+1", "1.5", "4294967296", "99999999999999999999", "ten"]);
        assert_eq!(integer::<u8>(0..=999).judge("300", "").ok(), None, "beyond its type");
        assert_eq!(
            integer::<u8>(1..=1).judge("2", "").expect_err("only 1"),
            "expected the number 1"
        );
    }

    #[test]
    fn sizes_have_binary_units() {
        let kind = bytes::<u64>(0..=1 << 40);
        for (text, size) in
            [("128", 128), ("64KiB", 65_536), ("1 MiB", 1 << 20), ("2g", 2 << 30), ("5B", 5)]
        {
            assert_eq!(kind.judge(text, ""), Ok(size), "{text}");
        }
        refused(&kind, &["", "KiB", "-1", "1.3KiB", "1KB", "99999999999999999999", "2TiB", "1k1"]);
        let message = bytes::<u64>(1..=3 << 20).judge("0", "").expect_err("too small");
        assert_eq!(message, "expected a size from 1 to 3MiB, such as 128, 64KiB or 1MiB");
    }

    #[test]
    fn durations_have_units_and_bounds() {
        let kind = duration(Duration::from_millis(1)..=Duration::from_secs(3600));
        for (text, ms) in [("500ms", 500), ("2s", 2000), ("1m30s", 90_000), ("1m 30s", 90_000)] {
            assert_eq!(kind.judge(text, ""), Ok(Duration::from_millis(ms)), "{text}");
        }
        refused(&kind, &["", "0s", "2h", "-1s", "soon", "2s ago", "9999999999999h"]);
        let message = kind.judge("5", "").expect_err("no unit");
        let expected = "expected a duration from 1ms to 1h, such as 500ms, 10s or 1m30s";
        assert_eq!(message, format!("a number without its unit; {expected}"));
    }

    #[test]
    fn shares_are_percents_or_fractions() {
        let kind = share(0.001..=1.0);
        for (text, value) in [("3%", 0.03), ("1.5 %", 0.015), ("0.03", 0.03)] {
            assert_eq!(kind.judge(text, ""), Ok(value), "{text}");
        }
        refused(&kind, &["", "%", "3", "-1%", "0", "NaN", "inf", "three"]);
        assert_eq!([share_text(0.07), share_text(0.015)], ["7%", "1.5%"]);
    }

    #[test]
    fn names_and_lines_are_held_to_their_form() {
        assert_eq!(name().judge("a-1_b.c", ""), Ok("a-1_b.c".to_owned()));
        refused(&name(), &["", "-a", "a/b", "a b", &"x".repeat(61)]);
        assert!(line().judge("one line", "").is_ok());
        refused(&line(), &["", "  ", "two\nlines", &"x".repeat(5000)]);
    }

    #[test]
    fn a_choice_says_what_is_expected_and_what_is_near() {
        let kind = one_of("poller", [("poll", "", 1), ("epoll", "", 2)]);
        assert_eq!(kind.judge("epoll", ""), Ok(2));
        let message = kind.judge("eppoll", "").expect_err("unknown");
        assert_eq!(message, "no such poller; expected poll, epoll; did you mean \"epoll\"?");
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,20}") {
            let _ = (bytes::<u64>(0..=9).judge(&text, ""), integer::<u64>(0..=9).judge(&text, ""));
            let _ = (share(0.0..=1.0).judge(&text, ""), name().judge(&text, ""));
            let _ = duration(Duration::ZERO..=Duration::from_secs(1)).judge(&text, "");
        }

        #[test]
        fn sizes_and_durations_read_back(size in 0_u64..1 << 45, ms in 0_u64..1 << 40) {
            let kind = bytes::<u64>(0..=u64::MAX);
            prop_assert_eq!(kind.judge(&size_text(size), ""), Ok(size));
            let length = Duration::from_millis(ms);
            let kind = duration(Duration::ZERO..=Duration::MAX);
            prop_assert_eq!(kind.judge(&duration_text(length), ""), Ok(length));
        }
    }
}
