//! Walks the spanned tree of a TOML text and keeps the mistakes with their places.
//!
//! The parser of job files asks a [`Walk`] for one key after the other; unknown keys, wrong
//! types and unreadable values are noted here, so the parser reads like the format.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::keys::{self, KEYS, Key, Section};
use super::kind::refusal;
use super::mistake::{JobError, Mistake, Place, did_you_mean};
use super::rules::ItemMistakes;

/// Most characters of a wrong value that a message repeats.
const SHOWN_CHARS_MAX: usize = 60;
/// Most mistakes of one text that are told; more come from a file that is no job file.
const MISTAKES_MAX: usize = 100;

/// A text under way, with the mistakes found so far.
pub(super) struct Walk<'a> {
    file: &'a str,
    text: &'a str,
    mistakes: Vec<(usize, String)>,
}

/// A table of the tree and the section that it is.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) section: Section,
    entries: &'a DeTable<'a>,
    /// Where it begins, in bytes.
    pub(super) at: usize,
}

/// What a file says for one key.
#[derive(Clone, Debug)]
pub(super) enum Said<T> {
    /// Nothing.
    Nothing,
    /// Something wrong, already noted: what follows from it is not judged.
    Wrong,
    /// A value, and where it stands in bytes.
    Value(T, usize),
}

impl<T> Said<T> {
    /// What is said here, else what was said there.
    pub(super) fn or(self, other: Self) -> Self {
        if matches!(self, Self::Nothing) { other } else { self }
    }

    /// The value, where there is one.
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Value(value, _) => Some(value),
            Self::Nothing | Self::Wrong => None,
        }
    }
}

impl<'a> Table<'a> {
    /// The top of a document.
    pub(super) fn top(document: &'a Spanned<DeTable<'a>>) -> Self {
        Self { section: Section::File, entries: document.get_ref(), at: 0 }
    }

    /// The table that `value` is, if it is one.
    pub(super) fn of(section: Section, value: &'a Spanned<DeValue<'a>>) -> Option<Self> {
        let entries = value.get_ref().as_table()?;
        Some(Self { section, entries, at: value.span().start })
    }

    /// Whether there is an entry called `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Whether `name` holds a list.
    pub(super) fn has_list(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|value| value.get_ref().is_array())
    }

    /// Names of all entries, with their places.
    fn names(&self) -> impl Iterator<Item = (&'a str, usize)> + use<'a> {
        self.entries.keys().map(|name| (name.get_ref().as_ref(), name.span().start))
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, mistakes: Vec::new() }
    }

    /// Notes a mistake at byte `at`.
    pub(super) fn note(&mut self, at: usize, message: String) {
        self.mistakes.push((at, message));
    }

    /// The value, if nothing was noted, else all mistakes in the order of the text.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, JobError> {
        let Self { file, text, mut mistakes } = self;
        if mistakes.is_empty() {
            return Ok(value.expect("without a mistake there is a value"));
        }
        // A setting of [global] can be wrong for several jobs in the same way.
        mistakes.sort();
        mistakes.dedup();
        let more = mistakes.len().saturating_sub(MISTAKES_MAX);
        mistakes.truncate(MISTAKES_MAX);
        if more > 0 {
            mistakes.push((text.len(), format!("and {more} mistakes more")));
        }
        let located = |(at, message)| Mistake { place: Place::in_file(file, text, at), message };
        Err(JobError { mistakes: mistakes.into_iter().map(located).collect() })
    }

    /// The section under `name`, or the several of them; a wrong shape is noted.
    pub(super) fn sections(
        &mut self,
        table: Table<'a>,
        name: &str,
        section: Section,
    ) -> Vec<Table<'a>> {
        let Some((key, value)) = table.entries.get_key_value(name) else { return Vec::new() };
        let is_list = section != Section::Global;
        let as_table = |value| Table::of(section, value);
        let tables = match value.get_ref() {
            DeValue::Array(items) if is_list => items.iter().map(as_table).collect(),
            DeValue::Table(_) if !is_list => as_table(value).map(|table| vec![table]),
            _ => None,
        };
        tables.unwrap_or_else(|| {
            let right = section.title();
            self.note(key.span().start, format!("\"{name}\" is written {right} in a job file"));
            Vec::new()
        })
    }

    /// Notes every entry of `table` that is neither a key, nor a header, nor in `axes`.
    pub(super) fn check_names(&mut self, table: Table<'a>, axes: &[&'static str]) {
        for (name, at) in table.names() {
            let is_known = keys::find(table.section, name).is_some()
                || table.section.headers().contains(&name)
                || axes.contains(&name);
            if !is_known {
                self.note(at, stranger(table.section, name, axes));
            }
        }
    }

    /// Reads one value with `read`.
    pub(super) fn said<T>(
        &mut self,
        table: Table<'a>,
        name: &'static str,
        read: impl Fn(&Key, &str) -> Result<T, String>,
    ) -> Said<T> {
        let key = keys::key(table.section, name);
        let Some(value) = table.entries.get(name) else { return Said::Nothing };
        let at = value.span().start;
        let result = match scalar(value.get_ref()) {
            Some(text) if key.kind.takes(value.get_ref()) => read(key, &text),
            _ => Err(refusal(key, &wrong_type(value.get_ref()))),
        };
        match result {
            Ok(value) => Said::Value(value, at),
            Err(what) => self.wrong(name, value, &what),
        }
    }

    /// Reads one value that must be there.
    pub(super) fn required<T>(
        &mut self,
        table: Table<'a>,
        name: &'static str,
        read: impl Fn(&Key, &str) -> Result<T, String>,
    ) -> Option<T> {
        let said = self.said(table, name, read);
        if matches!(said, Said::Nothing) {
            let key = keys::key(table.section, name);
            let title = table.section.title();
            self.note(table.at, refusal(key, &format!("{title} lacks the key \"{name}\"")));
        }
        said.value()
    }

    /// Where the list under `name` begins, and its items; a single value is a list of one.
    pub(super) fn items(
        &self,
        table: Table<'a>,
        name: &str,
    ) -> Option<(usize, Vec<&'a Spanned<DeValue<'a>>>)> {
        let value = table.entries.get(name)?;
        let items = value.get_ref().as_array().map_or_else(|| vec![value], items_of);
        Some((value.span().start, items))
    }

    /// Reads a list of values, or a single one, with `read`. `is_right` tells the type of one.
    pub(super) fn list<T>(
        &mut self,
        table: Table<'a>,
        name: &str,
        is_right: impl Fn(&DeValue<'_>) -> Result<(), String>,
        read: impl Fn(&[&str]) -> Result<T, ItemMistakes>,
    ) -> Said<T> {
        let Some(value) = table.entries.get(name) else { return Said::Nothing };
        let Some((_, items)) = self.items(table, name) else { return Said::Nothing };
        let mistakes_before = self.mistakes.len();
        let mut texts = Vec::new();
        for item in &items {
            match is_right(item.get_ref()) {
                Ok(()) => texts.push(scalar(item.get_ref()).unwrap_or_default()),
                Err(what) => {
                    self.wrong::<T>(name, item, &what);
                }
            }
        }
        if self.mistakes.len() > mistakes_before {
            return Said::Wrong;
        }
        match read(&texts.iter().map(String::as_str).collect::<Vec<_>>()) {
            Ok(read) => Said::Value(read, value.span().start),
            Err(mistakes) => {
                for (at, what) in mistakes {
                    self.wrong::<T>(name, items.get(at).copied().unwrap_or(value), &what);
                }
                Said::Wrong
            }
        }
    }

    /// Notes that the value of `name`, which is there, is wrong as a whole.
    pub(super) fn refuse(&mut self, table: Table<'a>, name: &str, what: &str) {
        if let Some(value) = table.entries.get(name) {
            self.wrong::<()>(name, value, what);
        }
    }

    /// Notes what is wrong with a value and repeats it as it was written.
    pub(super) fn wrong<T>(
        &mut self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        what: &str,
    ) -> Said<T> {
        let written = self.text.get(value.span()).unwrap_or_default();
        let written: String =
            written.lines().next().unwrap_or_default().chars().take(SHOWN_CHARS_MAX).collect();
        self.note(value.span().start, format!("{name} = {written}: {what}"));
        Said::Wrong
    }
}

/// The text of a single value; none for tables, lists and dates.
pub(super) fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(
            // Other bases are written out, so that one reader serves files and flags.
            i128::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.to_string(), |number| number.to_string()),
        ),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(is_on) => Some(is_on.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Says which type was found.
pub(super) fn wrong_type(value: &DeValue<'_>) -> String {
    let found = match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    format!("this is {found}")
}

fn items_of<'a>(items: &'a DeArray<'a>) -> Vec<&'a Spanned<DeValue<'a>>> {
    items.iter().collect()
}

/// What to say about a name that does not belong into `section`.
fn stranger(section: Section, name: &str, axes: &[&'static str]) -> String {
    let title = section.title();
    if let Some((_, now)) = keys::REPLACED.iter().find(|(old, _)| *old == name) {
        return format!("the key \"{name}\" is of schema 1; expected {now}");
    }
    let homes: Vec<_> =
        KEYS.iter().filter(|key| key.name == name).flat_map(|k| k.sections).collect();
    if !homes.is_empty() {
        let homes = homes.into_iter().map(|home| home.title()).collect::<Vec<_>>().join(" or ");
        return format!("the key \"{name}\" is not for {title}; it belongs to {homes}");
    }
    let owners = keys::axis_owners(name);
    if !owners.is_empty() {
        let owners: Vec<_> = owners.iter().map(|(experiment, _)| experiment.name()).collect();
        let owners = owners.join(", ");
        let home = if section == Section::Job { "the experiment" } else { "a [[job]] with" };
        return format!(
            "the axis \"{name}\" is not for this {title}; it belongs to {home} {owners}"
        );
    }
    let known = KEYS.iter().filter(|key| key.sections.contains(&section)).map(|key| key.name);
    let known = known.chain(section.headers().iter().copied()).chain(axes.iter().copied());
    let place = if section == Section::File { "at" } else { "in" };
    let suggestion = did_you_mean(name, known);
    format!("unknown key \"{}\" {place} {title}{suggestion}", shorten(name))
}

fn shorten(name: &str) -> String {
    name.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect()
}
