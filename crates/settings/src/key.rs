//! One key: what it is, where it may be said, what it needs, and its value.

use std::ops::RangeInclusive;

use toml::de::DeValue;

use crate::describe::{Places, Row, Takes};
use crate::document::{found, scalar};
use crate::keys::{Keys, between};
use crate::kind::Kind;
use crate::source::Said;

/// A key that is asked for: what it is, then what it accepts.
#[must_use = "a key is asked for by what it accepts"]
pub struct Key<'k, 'a> {
    keys: &'k mut Keys<'a>,
    row: Row,
    needs: Vec<(&'static str, &'static str)>,
}

impl<'k, 'a> Key<'k, 'a> {
    pub(crate) fn new(keys: &'k mut Keys<'a>, row: Row) -> Self {
        Self { keys, row, needs: Vec::new() }
    }

    /// The value when nothing is said, as it would be written behind the flag.
    pub fn default(mut self, text: &'static str) -> Self {
        self.row.default = Some(text);
        self
    }

    /// What happens when nothing is said and there is no default, or why the default is this one.
    pub fn otherwise(mut self, what: &'static str) -> Self {
        self.row.otherwise = what;
        self
    }

    /// A value as it is written in a file, for the reference page and for mistakes.
    pub fn example(mut self, value: &'static str) -> Self {
        self.row.example = value;
        self
    }

    /// A short flag as well.
    pub fn short(mut self, letter: char) -> Self {
        self.row.short = Some(letter);
        self
    }

    /// The flag's own name, without dashes, where it is not the key's with `-` for `_`.
    pub fn flag(mut self, name: &'static str) -> Self {
        self.row.flag = Some(name);
        self
    }

    /// An argument without a flag.
    pub fn positional(self) -> Self {
        self.placed(Places::Positional)
    }

    /// Only a flag, not a key of a file.
    pub fn only_flag(self) -> Self {
        self.placed(Places::Flag)
    }

    /// Only a key of a file, not a flag.
    pub fn only_file(self) -> Self {
        self.placed(Places::File)
    }

    /// Left out of help and reference page: for programs, not for people.
    pub fn hidden(mut self) -> Self {
        self.row.is_hidden = true;
        self
    }

    /// An earlier name, which still holds in files and as a flag.
    pub fn alias(mut self, name: &'static str) -> Self {
        self.row.aliases.push(name);
        self
    }

    /// A flag with several values, which commas divide where `is_divided` says so of them together.
    pub fn split_at_commas(mut self, is_divided: fn(&str) -> bool) -> Self {
        self.row.split = Some(is_divided);
        self
    }

    /// What the flag means without a value; one that has a value has it behind `=`.
    pub fn bare(mut self, text: &'static str) -> Self {
        self.row.bare = Some(text);
        self
    }

    /// Paragraphs for the long help text alone.
    pub fn more(mut self, paragraphs: &'static str) -> Self {
        self.row.more = paragraphs;
        self
    }

    /// Known to completions and manual, but left out of the help text, which would be too long.
    pub fn unlisted(mut self) -> Self {
        self.row.is_unlisted = true;
        self
    }

    /// A key of this section without which this one does nothing; `why` says what it is for. A key
    /// of a file whose other one gave way to a flag is left alone.
    pub fn needs(mut self, name: &'static str, why: &'static str) -> Self {
        self.needs.push((name, why));
        self
    }

    /// Keys of this section that cannot be said beside this one. A flag takes the place of a file's.
    pub fn excludes(mut self, names: &'static [&'static str]) -> Self {
        self.row.excludes = names;
        self
    }

    /// Its value, or its default.
    ///
    /// # Panics
    /// When it has none, or one that is not accepted: already while the table is described.
    pub fn one<T: 'static>(mut self, kind: &Kind<T>) -> Option<T> {
        let default = self.row.default.expect("a key with one value has a default");
        let default = move |kind: &Kind<T>| {
            let read = kind.judge(default, "");
            read.unwrap_or_else(|why| panic!("the default {default} is not accepted: {why}"))
        };
        match self.value(kind) {
            Got::Described => {
                default(kind);
                None
            }
            Got::Nothing => Some(default(kind)),
            Got::Wrong => None,
            Got::Value(value) => Some(value),
        }
    }

    /// Its value, if it was said.
    pub fn optional<T: 'static>(mut self, kind: &Kind<T>) -> Option<Option<T>> {
        match self.value(kind) {
            Got::Described | Got::Wrong => None,
            Got::Nothing => Some(None),
            Got::Value(value) => Some(Some(value)),
        }
    }

    /// Its value, which has to be said.
    pub fn required<T: 'static>(mut self, kind: &Kind<T>) -> Option<T> {
        match self.value(kind) {
            Got::Described | Got::Wrong => None,
            Got::Nothing => {
                self.missing(kind);
                None
            }
            Got::Value(value) => Some(value),
        }
    }

    /// Its values, as many as `count` says; its default where none was said, else none, which is
    /// a mistake where there has to be one.
    ///
    /// # Panics
    /// When the default is not accepted: already while the table is described.
    pub fn list<T: 'static>(self, kind: &Kind<T>, count: RangeInclusive<usize>) -> Option<Vec<T>> {
        self.items(kind, count, None, |_, _| None)
    }

    /// The same, each at most once.
    ///
    /// # Panics
    /// As [`list`](Self::list).
    pub fn distinct<T: PartialEq + 'static>(
        self,
        kind: &Kind<T>,
        count: RangeInclusive<usize>,
    ) -> Option<Vec<T>> {
        self.items(kind, count, None, |before, next| {
            before.contains(next).then(|| "stands here twice; expected once".to_owned())
        })
    }

    /// A list of texts, and in a file of tables beside them, which `read` reads; `about` says what
    /// they are. `fault` says why a value may not stand behind those before it.
    ///
    /// # Panics
    /// As [`list`](Self::list).
    pub fn texts_or_tables<T: 'static>(
        self,
        kind: &Kind<T>,
        count: RangeInclusive<usize>,
        about: &'static str,
        mut read: impl FnMut(&mut Keys<'_>) -> Option<T>,
        fault: impl FnMut(&[T], &T) -> Option<String>,
    ) -> Option<Vec<T>> {
        let name = self.row.name;
        if self.keys.is_describing() {
            self.keys.describe_item(name, about, &mut read);
        }
        self.items(kind, count, Some(&mut read), fault)
    }

    fn items<T: 'static>(
        mut self,
        kind: &Kind<T>,
        count: RangeInclusive<usize>,
        mut table: Option<ReadItem<'_, T>>,
        mut fault: impl FnMut(&[T], &T) -> Option<String>,
    ) -> Option<Vec<T>> {
        self.row.takes = Takes::List;
        let default = self.row.default.map(|texts| {
            let read = texts.split(',').map(|text| kind.judge(text, ""));
            read.collect::<Result<Vec<_>, _>>()
                .unwrap_or_else(|why| panic!("the default {texts} is not accepted: {why}"))
        });
        let said = self.said_of(kind)?;
        let source = self.keys.source();
        let row = &self.row;
        let mut values = Vec::new();
        let before = source.reading.mistakes.borrow().len();
        match &said {
            Said::Nothing => match default {
                Some(default) => return Some(default),
                None if count.contains(&0) => return Some(Vec::new()),
                None => {
                    self.missing(kind);
                    return None;
                }
            },
            Said::Flag(texts) => {
                for text in texts.iter().flat_map(|text| divided(row, text)) {
                    let read = kind.judge(text, row.example);
                    match read.and_then(|value| fit(&mut fault, &values, value)) {
                        Ok(value) => values.push(value),
                        Err(what) => source.wrong_text(row, text, what),
                    }
                }
            }
            Said::File(value) => {
                let items = value.get_ref().as_array();
                for item in items.map_or_else(|| vec![*value], |items| items.iter().collect()) {
                    let read = match &mut table {
                        Some(read) if item.get_ref().is_table() => {
                            let Some(value) = self.keys.item(row.name, item, *read) else {
                                continue;
                            };
                            Ok(value)
                        }
                        _ => from_file(kind, item.get_ref(), row.example),
                    };
                    match read.and_then(|value| fit(&mut fault, &values, value)) {
                        Ok(value) => values.push(value),
                        Err(what) => source.wrong_value(row, item, &what),
                    }
                }
            }
        }
        let is_right = source.reading.mistakes.borrow().len() == before;
        if is_right && !count.contains(&values.len()) {
            let found =
                if values.is_empty() { "an empty list".into() } else { values.len().to_string() };
            source.note(row, &said, &format!("{found}; expected {}", between(&count)));
            return None;
        }
        is_right.then_some(values)
    }

    /// Whether it was switched on; off where nothing was said.
    pub fn switch(mut self) -> Option<bool> {
        self.row.takes = Takes::Switch;
        self.row.default = Some("false");
        self.row.accepts = "true or false".to_owned();
        let said = self.ask()?;
        match said {
            Said::Nothing => Some(false),
            Said::Flag(texts) => Some(texts.iter().all(|text| text == "true")),
            Said::File(value) => match value.get_ref() {
                DeValue::Boolean(is_on) => Some(*is_on),
                other => {
                    let what = format!("{}; expected true or false", found(other));
                    self.keys.source().wrong_value(&self.row, value, &what);
                    None
                }
            },
        }
    }

    fn placed(mut self, place: Places) -> Self {
        self.row.place = place;
        self
    }

    fn value<T: 'static>(&mut self, kind: &Kind<T>) -> Got<T> {
        let Some(said) = self.said_of(kind) else { return Got::Described };
        let source = self.keys.source();
        let read = match said {
            Said::Nothing => return Got::Nothing,
            Said::Flag(texts) => {
                let text = texts.last().map_or("", String::as_str);
                let read = kind.judge(text, self.row.example);
                read.map_err(|what| source.wrong_text(&self.row, text, what))
            }
            Said::File(value) => {
                let read = from_file(kind, value.get_ref(), self.row.example);
                read.map_err(|what| source.wrong_value(&self.row, value, &what))
            }
        };
        read.map_or(Got::Wrong, Got::Value)
    }

    /// What was said of the key, whose row takes on what the kind knows.
    fn said_of<T: 'static>(&mut self, kind: &Kind<T>) -> Option<Said<'a>> {
        self.row.accepts.clone_from(&kind.accepts);
        self.row.placeholder = kind.placeholder;
        self.row.words.clone_from(&kind.words);
        self.ask()
    }

    /// What was said of the key, once it was held against the others.
    fn ask(&mut self) -> Option<Said<'a>> {
        let said = self.keys.ask(&self.row)?;
        let is_flag = matches!(said, Said::Flag(_));
        if !said.is_on() {
            return Some(said);
        }
        let source = self.keys.source();
        let written = |name: &str| match source.section.row(name) {
            Some(row) if is_flag => row.written(),
            _ => name.to_owned(),
        };
        for name in self.row.excludes.iter().filter(|name| self.keys.has(name)) {
            let message = format!("can't stand beside {}; expected one of them", written(name));
            source.note(&self.row, &said, &message);
        }
        for (name, why) in self.needs.iter().filter(|(name, _)| !self.keys.has(name)) {
            let row = source.section.row(name);
            let gave_way = !is_flag && row.is_some_and(|row| source.entry(row).is_some());
            if !gave_way {
                let message = format!("{why}; expected {} as well", written(name));
                source.note(&self.row, &said, &message);
            }
        }
        Some(said)
    }

    fn missing<T: 'static>(&self, kind: &Kind<T>) {
        let source = self.keys.source();
        let lacks = match source.section.path.as_str() {
            "" => format!("{} is missing", self.row.written()),
            _ => format!("{} lacks the key \"{}\"", source.section.title(), self.row.name),
        };
        source.refuse(kind.refusal(&lacks, self.row.example));
    }
}

/// How a table of a list is read.
pub(crate) type ReadItem<'r, T> = &'r mut dyn FnMut(&mut Keys<'_>) -> Option<T>;

/// What asking for one value gave.
enum Got<T> {
    Described,
    Nothing,
    Wrong,
    Value(T),
}

/// The parts of a flag's value, where commas divide it.
fn divided<'t>(row: &Row, text: &'t str) -> Vec<&'t str> {
    match row.split {
        Some(is_divided) if is_divided(text) => text.split(',').map(str::trim).collect(),
        _ => vec![text],
    }
}

/// `value`, unless it may not stand behind the others.
fn fit<T>(
    fault: &mut impl FnMut(&[T], &T) -> Option<String>,
    before: &[T],
    value: T,
) -> Result<T, String> {
    fault(before, &value).map_or(Ok(value), Err)
}

fn from_file<T: 'static>(kind: &Kind<T>, value: &DeValue<'_>, example: &str) -> Result<T, String> {
    match scalar(value).filter(|_| kind.takes(value)) {
        Some(text) => kind.judge(&text, example),
        None => Err(kind.refusal(&found(value), example)),
    }
}
