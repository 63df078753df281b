//! The table of a command as a function that asks for one key after the other.
//!
//! [`Keys`] answers: with values when something was said, with nothing when the table is described.
//! Which of both is hidden from the table, so flags, file, help and reference page cannot differ.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::describe::{Description, Places, Row, Section};
use crate::given::Reading;
use crate::key::{Key, ReadItem};
use crate::mistake::Place;
use crate::source::{Said, Source, join};

/// What a command is told, as a type that it owns.
pub trait Table: Sized {
    /// Asks for every key, then makes a value of what was said. Asks for all of them before it
    /// returns: what it does not ask for is unknown in files and has no flag.
    ///
    /// None only when a key was none, or when a mistake was noted.
    fn read(keys: &mut Keys<'_>) -> Option<Self>;
}

/// The keys of one section of a file, and of the flags where they are its own.
pub struct Keys<'a> {
    heading: Cow<'static, str>,
    way: Way<'a>,
}

/// What asking for a key does.
enum Way<'a> {
    /// Its row is added to the section of this number; no value is there.
    Describe(&'a mut Description, usize),
    /// It is looked for.
    Read(Source<'a>),
}

impl<'a> Keys<'a> {
    pub(crate) fn describing(description: &'a mut Description, section: usize) -> Self {
        Self { heading: Cow::Borrowed(""), way: Way::Describe(description, section) }
    }

    pub(crate) fn top(
        reading: &'a Reading<'a>,
        flags: &'a BTreeMap<String, Vec<String>>,
        entries: &'a DeTable<'a>,
        has_file: bool,
    ) -> Self {
        let section = &reading.description.sections[0];
        let (flags, at, asked) = (Some(flags), has_file.then_some(0), Vec::new());
        let source = Source { reading, section, flags, entries, at, asked };
        Self::reading(source)
    }

    fn reading(source: Source<'a>) -> Self {
        Self { heading: Cow::Borrowed(""), way: Way::Read(source) }
    }

    /// The heading of the following keys in help texts.
    pub fn heading(&mut self, heading: impl Into<Cow<'static, str>>) {
        self.heading = heading.into();
    }

    /// A key called `name`, with `_` between its words. `about` says what it does, in one line,
    /// with the flags that it names. What is returned asks for its value.
    pub fn key<'k>(
        &'k mut self,
        name: &'static str,
        about: impl Into<Cow<'static, str>>,
    ) -> Key<'k, 'a> {
        let row = Row { heading: self.heading.clone(), ..Row::new(name, about) };
        Key::new(self, row)
    }

    /// A key that is gone. Whoever says it is told what took its place: `by` is a key, or words.
    pub fn replaced(&mut self, name: &'static str, by: &'static str) {
        let row = Row { is_hidden: true, ..Row::new(name, "") };
        match self.ask(&row) {
            None | Some(Said::Nothing) => {}
            Some(said) => {
                let message = format!("was replaced by {by}");
                self.source().note(&row, &said, &message);
            }
        }
    }

    /// The table `[name]` of a file; without it `read` finds nothing said but flags, as its keys are
    /// flags as well.
    pub fn table<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        mut read: impl FnMut(&mut Keys<'_>) -> Option<T>,
    ) -> Option<T> {
        let source = match self.inner(name, about, false) {
            Inner::Described(mut keys) => return read(&mut keys),
            Inner::Section(source) => source,
        };
        let reading = source.reading;
        let (section, flags) = (source.inner(name), source.flags);
        let nothing = DeTable::new();
        let (entries, at) = match source.entries.get_key_value(name) {
            None => (&nothing, None),
            Some((key, value)) => match value.get_ref() {
                DeValue::Table(entries) => (entries, Some(value.span().start)),
                _ => {
                    reading.note(key.span().start, wrong_form(name, section));
                    return None;
                }
            },
        };
        let source = Source { reading, section, flags, entries, at, asked: Vec::new() };
        Keys::section(source, read)
    }

    /// Reads a whole section of a file.
    fn section<T>(
        source: Source<'a>,
        mut read: impl FnMut(&mut Keys<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut keys = Keys::reading(source);
        let value = read(&mut keys);
        keys.end();
        value
    }

    /// The tables `[[name]]` of a file, in order. Their keys have no flags.
    pub fn tables<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        count: RangeInclusive<usize>,
        mut read: impl FnMut(&mut Keys<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let source = match self.inner(name, about, true) {
            Inner::Described(mut keys) => {
                let value = read(&mut keys);
                debug_assert!(value.is_none(), "nothing is said while a table is described");
                return None;
            }
            Inner::Section(source) => source,
        };
        let (reading, section) = (source.reading, source.inner(name));
        let mut tables = Vec::new();
        if let Some((key, value)) = source.entries.get_key_value(name) {
            let items = value.get_ref().as_array();
            let items = items.and_then(|items| {
                let table = |item: &'a Spanned<DeValue<'a>>| {
                    Some((item.get_ref().as_table()?, item.span().start))
                };
                items.iter().map(table).collect::<Option<Vec<_>>>()
            });
            let Some(items) = items else {
                reading.note(key.span().start, wrong_form(name, section));
                return None;
            };
            tables = items;
        }
        if !count.contains(&tables.len()) {
            let (found, title) = (tables.len(), section.title());
            let what = format!("{found} {title} sections; expected {}", between(&count));
            match source.at {
                Some(at) => reading.note(at, what),
                None => source.refuse(what),
            }
            return None;
        }
        let values: Vec<_> = tables
            .into_iter()
            .map(|(entries, at)| {
                Self::section(Source::of(reading, section, entries, at), &mut read)
            })
            .collect();
        values.into_iter().collect()
    }

    /// Whether key `name` of this section was said. A switch that is off was not.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        match &self.way {
            Way::Describe(..) => false,
            Way::Read(source) => source.said(name).is_on(),
        }
    }

    /// Notes that what was said of key `name` is wrong beside the rest: the message says why and
    /// what is expected. It stands where the key does; where that was not said, with the section.
    pub fn note(&mut self, name: &str, message: impl AsRef<str>) {
        let Way::Read(source) = &self.way else { return };
        match (source.said(name), source.section.row(name)) {
            (Said::Nothing, _) | (_, None) => source.refuse(message.as_ref().to_owned()),
            (said, Some(row)) => source.note(row, &said, message.as_ref()),
        }
    }

    /// Notes that this section as a whole is wrong.
    pub fn refuse(&mut self, message: impl Into<String>) {
        if let Way::Read(source) = &self.way {
            source.refuse(message.into());
        }
    }

    /// Where key `name` of this section was said, if it was; a flag without its value.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<Place> {
        let Way::Read(source) = &self.way else { return None };
        match source.said(name) {
            Said::Nothing => None,
            Said::Flag(_) => Some(Place::Flag(source.section.row(name)?.written())),
            Said::File(value) => Some(source.reading.place(value.span().start)),
        }
    }

    /// Where this section begins, for what is wrong with it as a whole.
    #[must_use]
    pub fn here(&self) -> Place {
        match &self.way {
            Way::Read(Source { reading, at: Some(at), .. }) => reading.place(*at),
            _ => Place::Whole,
        }
    }

    /// Name of the file, as the user called it; empty where there is none.
    #[must_use]
    pub fn file(&self) -> &str {
        match &self.way {
            Way::Describe(..) => "",
            Way::Read(source) => source.reading.file,
        }
    }

    /// Notes a mistake at a place that [`place`](Self::place) or [`here`](Self::here) gave.
    pub fn note_at(&mut self, place: Place, message: impl Into<String>) {
        if let Way::Read(source) = &self.way {
            source.reading.note_at(place, message.into());
        }
    }

    /// Key `name` has no place in this section as the rest of it is; `why` is told where it stands.
    pub fn foreign(&mut self, name: &'static str, why: impl FnOnce() -> String) {
        let Way::Read(source) = &mut self.way else { return };
        source.asked.push(name);
        if let Some((key, _)) = source.entries.get_key_value(name) {
            source.reading.note(key.span().start, why());
        }
    }

    /// Notes every entry of the section that was not asked for.
    pub(crate) fn end(self) {
        let Way::Read(source) = self.way else { return };
        for (name, _) in source.entries {
            let (name, at) = (name.get_ref().as_ref(), name.span().start);
            // A section may have the name of a key that is only a flag.
            let is_asked = match source.section.row(name) {
                Some(row) if row.place != Places::Flag => source.asked.contains(&row.name),
                Some(_) => source.has_inner(name),
                None => source.asked.contains(&name),
            };
            if !is_asked {
                source.reading.note(at, source.stranger(name));
            }
        }
    }

    /// Asks for the key of `row`; none while the table is described.
    pub(crate) fn ask(&mut self, row: &Row) -> Option<Said<'a>> {
        match &mut self.way {
            Way::Describe(description, at) => {
                let rows = &mut description.sections[*at].rows;
                let is_new = rows.iter().all(|known| known.name != row.name);
                assert!(is_new, "the key {} is in its section twice", row.name);
                rows.push(row.clone());
                None
            }
            Way::Read(source) => {
                source.asked.push(row.name);
                Some(source.said(row.name))
            }
        }
    }

    pub(crate) const fn is_describing(&self) -> bool {
        matches!(self.way, Way::Describe(..))
    }

    pub(crate) fn source(&self) -> &Source<'a> {
        match &self.way {
            Way::Read(source) => source,
            Way::Describe(..) => unreachable!("nothing is said while a table is described"),
        }
    }

    fn inner(
        &mut self,
        name: &'static str,
        about: &'static str,
        is_repeated: bool,
    ) -> Inner<'_, 'a> {
        match &mut self.way {
            Way::Describe(description, at) => {
                let above = description.sections[*at].path.as_str();
                let path = join(above, name);
                assert!(description.section(&path).is_none(), "{path} is a section twice");
                let section = Section { path, is_repeated, about, ..Section::default() };
                description.sections.push(section);
                let at = description.sections.len() - 1;
                Inner::Described(Keys::describing(description, at))
            }
            Way::Read(source) => {
                source.asked.push(name);
                Inner::Section(source)
            }
        }
    }
}

/// Tables that stand in a list beside texts: what they are, and their keys.
impl Keys<'_> {
    /// Describes the tables of the list `name`, once for all sections that have such a list.
    pub(crate) fn describe_item<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        read: ReadItem<'_, T>,
    ) {
        let Way::Describe(description, _) = &mut self.way else { return };
        if description.section(name).is_some() {
            return;
        }
        let path = name.to_owned();
        let section =
            Section { path, is_repeated: true, is_item: true, about, ..Section::default() };
        description.sections.push(section);
        let at = description.sections.len() - 1;
        let value = read(&mut Keys::describing(description, at));
        debug_assert!(value.is_none(), "nothing is said while a table is described");
    }

    /// Reads a table of the list `name`.
    pub(crate) fn item<T>(
        &self,
        name: &str,
        item: &Spanned<DeValue<'_>>,
        read: ReadItem<'_, T>,
    ) -> Option<T> {
        let reading = self.source().reading;
        let section = reading.description.section(name).expect("it was described");
        let entries = item.get_ref().as_table().expect("a table");
        Keys::section(Source::of(reading, section, entries, item.span().start), read)
    }
}

/// A section below another one.
enum Inner<'k, 'a> {
    Described(Keys<'k>),
    Section(&'k Source<'a>),
}

fn wrong_form(name: &str, section: &Section) -> String {
    format!("\"{name}\" is written {}", section.title())
}

pub(crate) fn between(count: &RangeInclusive<usize>) -> String {
    match (count.start(), count.end()) {
        (low, &usize::MAX) => format!("at least {low}"),
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low} to {high}"),
    }
}
