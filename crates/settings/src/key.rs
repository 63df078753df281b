//! One key: what it is, where it may be said, what it needs, and its value.
//!
//! A value that is wrong is noted, and the default stands in for it: the table continues, and is thrown
//! away in the end.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use crate::describe::{GivenBy, Row, Takes};
use crate::given::{Item, Said};
use crate::keys::{Keys, ReadItem, between};
use crate::kind::{Kind, Word, boolean};
use crate::mistake::Location;

/// What stands in the line about a key for the names that it accepts.
const NAMES: &str = "{names}";

impl<'a> Keys<'a> {
    /// A key called `name`, with `_` between its words. `about` says what it does, in one line,
    /// with the flags that it names; `{names}` in it stands for the names that it accepts. What is returned asks for its
    /// value.
    pub fn key<'k>(
        &'k mut self,
        name: &'static str,
        about: impl Into<Cow<'static, str>>,
    ) -> Key<'k, 'a> {
        let about = match about.into() {
            // As it stands behind `///`.
            Cow::Borrowed(about) => Cow::Borrowed(about.trim_start()),
            about => about,
        };
        let row = Row { name, about, heading: self.heading.clone(), ..Row::default() };
        Key { keys: self, row }
    }
}

/// A key that is asked for: what it is, then what it accepts.
#[must_use = "a key is asked for by what it accepts"]
pub struct Key<'k, 'a> {
    pub(crate) keys: &'k mut Keys<'a>,
    pub(crate) row: Row,
}

/// What it is.
impl<'k, 'a> Key<'k, 'a> {
    fn with(mut self, change: impl FnOnce(&mut Row)) -> Self {
        change(&mut self.row);
        self
    }

    /// The value when nothing is said, as it would be written behind the flag.
    pub fn default(self, text: &'static str) -> Self {
        self.with(|row| row.default = Some(text))
    }

    /// What happens when nothing is said and there is no default, or why the default is this one.
    pub fn otherwise(self, what: &'static str) -> Self {
        self.with(|row| row.otherwise = what)
    }

    /// A value as it is written in a file, for the reference page and for mistakes.
    pub fn example(self, value: &'static str) -> Self {
        self.with(|row| row.example = value)
    }

    /// A short flag as well.
    pub fn short(self, letter: char) -> Self {
        self.with(|row| row.short = Some(letter))
    }

    /// The flag's own name, without dashes, where it is not the key's with `-` for `_`.
    pub fn flag(self, name: &'static str) -> Self {
        self.with(|row| row.flag = Some(name))
    }

    /// An argument without a flag.
    pub fn positional(self) -> Self {
        self.with(|row| row.given_by = GivenBy::Positional)
    }

    /// Only a flag, not a key of a file.
    pub fn only_flag(self) -> Self {
        self.with(|row| row.given_by = GivenBy::Flag)
    }

    /// Only a key of a file, not a flag.
    pub fn only_file(self) -> Self {
        self.with(|row| row.given_by = GivenBy::File)
    }

    /// Left out of help and reference page: for programs, not for people.
    pub fn hidden(self) -> Self {
        self.with(|row| row.is_hidden = true)
    }

    /// Known to completions and manual, but left out of the help text, which would be too long.
    pub fn unlisted(self) -> Self {
        self.with(|row| row.is_unlisted = true)
    }

    /// An earlier name, which still holds in files and as a flag.
    pub fn alias(self, name: &'static str) -> Self {
        self.with(|row| row.aliases.push(name))
    }

    /// A flag with several values, which commas divide where `is_divided` says so of them together.
    pub fn split_at_commas(self, is_divided: fn(&str) -> bool) -> Self {
        self.with(|row| row.split = Some(is_divided))
    }

    /// What the flag means without a value; one that has a value has it behind `=`.
    pub fn bare(self, text: &'static str) -> Self {
        self.with(|row| row.bare = Some(text))
    }

    /// Paragraphs for the long help text alone.
    pub fn more(self, paragraphs: &'static str) -> Self {
        self.with(|row| row.more = paragraphs)
    }

    /// A key of this section without which this one does nothing; `why` says what it is for. A key
    /// of a file whose other one gave way to a flag is left alone.
    pub fn needs(self, name: &'static str, why: &'static str) -> Self {
        self.with(|row| row.needs.push((name, why)))
    }

    /// Keys of this section that cannot be said beside this one. A flag takes the place of a file's.
    pub fn excludes(self, names: &'static [&'static str]) -> Self {
        self.with(|row| row.excludes = names)
    }

    /// Where it was said, if it was; a flag without its value.
    #[must_use]
    pub fn location(&self) -> Option<Location> {
        self.keys.location(self.row.name)
    }
}

impl<'a> Key<'_, 'a> {
    /// Its value, or its default.
    ///
    /// # Panics
    /// When it has none, or one that is not accepted: already while the table is described.
    pub fn one<T: 'static>(self, kind: &Kind<T>) -> T {
        let default = self.row.default.expect("a key with one value has a default");
        let default = kind.of_table(default);
        self.optional(kind).unwrap_or(default)
    }

    /// Its value, if it was said.
    pub fn optional<T: 'static>(mut self, kind: &Kind<T>) -> Option<T> {
        let said = self.said(kind);
        if matches!(said, Said::Nothing) && self.row.is_required {
            self.missing(kind);
        }
        let item = said.value()?;
        let read = item.read(kind, self.row.example);
        read.map_err(|what| self.keys.wrong(&self.row, item, &what)).ok()
    }

    /// Its value, which has to be said; none where that is a mistake.
    pub fn required<T: 'static>(self, kind: &Kind<T>) -> Option<T> {
        self.with(|row| row.is_required = true).optional(kind)
    }

    /// Whether it was switched on; off where nothing was said.
    pub fn switch(self) -> bool {
        self.with(|row| (row.takes, row.default) = (Takes::Switch, Some("false"))).one(&boolean())
    }

    /// Its values, as many as `count` says; its default where none was said, else none, which is
    /// a mistake where there has to be one.
    ///
    /// # Panics
    /// When the default is not accepted: already while the table is described.
    pub fn list<T: 'static>(self, kind: &Kind<T>, count: RangeInclusive<usize>) -> Vec<T> {
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
    ) -> Vec<T> {
        self.items(kind, count, None, |before, next| {
            before.contains(next).then(|| "is given twice; expected once".to_owned())
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
    ) -> Vec<T> {
        self.keys.describe_item(self.row.name, about, &mut read);
        self.items(kind, count, Some(&mut read), fault)
    }

    fn items<T: 'static>(
        mut self,
        kind: &Kind<T>,
        count: RangeInclusive<usize>,
        mut table: Option<ReadItem<'_, T>>,
        mut fault: impl FnMut(&[T], &T) -> Option<String>,
    ) -> Vec<T> {
        self.row.takes = Takes::List;
        let default = self.row.default.map_or("", |texts| texts).split(',');
        let default = default.filter(|text| !text.is_empty()).map(|text| kind.of_table(text));
        let default: Vec<T> = default.collect();
        let said = self.said(kind);
        if matches!(said, Said::Nothing) {
            if default.is_empty() && !count.contains(&0) {
                self.missing(kind);
            }
            return default;
        }
        let before = self.keys.mistakes();
        let mut values = Vec::new();
        for item in said.items(self.row.split) {
            let read = match (&mut table, item) {
                (Some(read), Item::Value(value)) if value.get_ref().is_table() => {
                    let Some(value) = self.keys.item(self.row.name, value, *read) else { continue };
                    Ok(value)
                }
                _ => item.read(kind, self.row.example),
            };
            let fits = |value| fault(&values, &value).map_or(Ok(value), Err);
            match read.and_then(fits) {
                Ok(value) => values.push(value),
                Err(what) => self.keys.wrong(&self.row, item, &what),
            }
        }
        if self.keys.mistakes() == before && !count.contains(&values.len()) {
            let found = match values.len() {
                0 => "an empty list".to_owned(),
                found => found.to_string(),
            };
            let what = format!("{found}; expected {}", between(&count));
            self.keys.stands_in(&self.row);
            self.keys.note_said(&self.row, &said, &what);
        }
        values
    }

    /// What was said of the key, whose row takes on what the kind knows, once it was held against the
    /// others.
    fn said<T: 'static>(&mut self, kind: &Kind<T>) -> Said<'a> {
        self.row.accepts.clone_from(&kind.accepts);
        self.row.placeholder = kind.placeholder;
        if self.row.takes != Takes::Switch {
            self.row.words.clone_from(&kind.words);
        }
        if let Some((before, behind)) = self.row.about.split_once(NAMES) {
            self.row.about = format!("{before}{}{behind}", names_of(&kind.words)).into();
        }
        let said = self.keys.ask(&self.row);
        if !said.is_on() {
            return said;
        }
        let is_flag = matches!(said, Said::Flag(_));
        for name in self.row.excludes.iter().filter(|name| self.keys.has(name)) {
            let other = self.keys.written(name, is_flag);
            let message = format!("can't be combined with {other}; expected one of them");
            self.keys.note_said(&self.row, &said, &message);
        }
        for (name, why) in self.row.needs.iter().filter(|(name, _)| !self.keys.has(name)) {
            if is_flag || self.keys.entry(name).is_none() {
                let other = self.keys.written(name, is_flag);
                let message = format!("{why}; expected {other} as well");
                self.keys.note_said(&self.row, &said, &message);
            }
        }
        said
    }

    fn missing<T: 'static>(&mut self, kind: &Kind<T>) {
        let lacks = self.keys.looked_up(|section| match section.path.as_str() {
            "" => format!("{} is missing", self.row.written()),
            _ => format!("{} lacks the key \"{}\"", section.title(), self.row.name),
        });
        self.keys.lacks(kind.refusal(&lacks, self.row.example));
    }
}

/// Names as a sentence has them: `a, b or c`.
fn names_of(words: &[Word]) -> String {
    let names: Vec<_> = words.iter().map(|word| word.name).collect();
    match &names[..] {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [front @ .., last] => format!("{} or {last}", front.join(", ")),
    }
}
