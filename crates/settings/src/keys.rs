//! The table of a command as a function that asks for one key after the other.
//!
//! [`Keys`] answers: with values when something was said, with defaults when the table is described.
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
use crate::source::{Item, Said, Source, join};

/// What a command is told, as a type that it owns. [`table!`](crate::table) makes one of a struct.
pub trait Table: Sized {
    /// Asks for every key and makes a value of what was said: what it does not ask for is unknown in
    /// files and has no flag.
    ///
    /// Where a key is wrong its default stands in, and nobody sees what is made of it; what is judged
    /// of several keys together may ask [`Keys::is_wrong`] and [`Keys::is_right`] first.
    fn read(keys: &mut Keys<'_>) -> Self;
}

/// The keys of one section of a file, and of the flags where they are its own.
pub struct Keys<'a> {
    heading: Cow<'static, str>,
    way: Way<'a>,
}

/// What asking for a key does.
enum Way<'a> {
    /// Its row is added to the section of this number; nothing is said of it.
    Describe(&'a mut Description, usize),
    /// It is looked for.
    Read(Source<'a>),
}

/// For tables.
impl<'a> Keys<'a> {
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
        let about = match about.into() {
            // As it stands behind `///`.
            Cow::Borrowed(about) => Cow::Borrowed(about.trim_start()),
            about => about,
        };
        let row = Row { name, about, heading: self.heading.clone(), ..Row::default() };
        Key { keys: self, row }
    }

    /// A key that is gone. Whoever says it is told what took its place: `by` is a key, or words.
    pub fn replaced(&mut self, name: &'static str, by: &'static str) {
        let row = Row { name, is_hidden: true, ..Row::default() };
        let said = self.ask(&row);
        if !matches!(said, Said::Nothing) {
            self.note_beside(&row, &said, &format!("was replaced by {by}"));
        }
    }

    /// The table `[name]` of a file; without it `read` finds nothing said but flags, as its keys are
    /// flags as well.
    pub fn table<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        read: impl FnOnce(&mut Keys<'_>) -> T,
    ) -> T {
        let source = match self.inner(name, about, false) {
            Inner::Described(mut keys) => return read(&mut keys),
            Inner::Section(source) => source,
        };
        let (reading, section, flags) = (source.reading, source.inner(name), source.flags);
        let nothing = DeTable::new();
        let (entries, at) = match source.entries.get_key_value(name) {
            None => (&nothing, None),
            Some((key, value)) => match value.get_ref() {
                DeValue::Table(entries) => (entries, Some(value.span().start)),
                _ => {
                    reading.stands_in(key.span().start, wrong_form(name, section));
                    (&nothing, None)
                }
            },
        };
        Keys::reading(Source { flags, at, ..Source::of(reading, section, entries, 0) }, read)
    }

    /// The tables `[[name]]` of a file, in order. Their keys have no flags.
    pub fn tables<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        count: RangeInclusive<usize>,
        mut read: impl FnMut(&mut Keys<'_>) -> T,
    ) -> Vec<T> {
        let source = match self.inner(name, about, true) {
            Inner::Described(mut keys) => {
                read(&mut keys);
                return Vec::new();
            }
            Inner::Section(source) => source,
        };
        let (reading, section) = (source.reading, source.inner(name));
        let said = source.entries.get_key_value(name);
        let (is_list, items) = match said.map(|(_, value)| value.get_ref()) {
            None => (true, &[][..]),
            Some(DeValue::Array(items)) => (true, &items[..]),
            Some(_) => (false, &[][..]),
        };
        if let Some((key, _)) = said
            && !(is_list && items.iter().all(|item| item.get_ref().is_table()))
        {
            reading.stands_in(key.span().start, wrong_form(name, section));
            return Vec::new();
        }
        if !count.contains(&items.len()) {
            let (found, title) = (items.len(), section.title());
            let what = format!("{found} {title} sections; expected {}", between(&count));
            match source.at {
                Some(at) => reading.stands_in(at, what),
                None => source.lacks(what),
            }
            return Vec::new();
        }
        let entries =
            items.iter().filter_map(|item| Some((item.get_ref().as_table()?, item.span().start)));
        let source = entries.map(|(entries, at)| Source::of(reading, section, entries, at));
        source.map(|source| Keys::reading(source, &mut read)).collect()
    }

    /// Key `name` has no place in this section as the rest of it is; `why` is told where it stands.
    pub fn foreign(&mut self, name: &'static str, why: impl FnOnce() -> String) {
        let Way::Read(source) = &mut self.way else { return };
        source.asked.push(name);
        if let Some((key, _)) = source.entries.get_key_value(name) {
            source.reading.note(key.span().start, why());
        }
    }
}

/// For what must hold between keys.
impl Keys<'_> {
    /// Whether key `name` of this section was said. A switch that is off was not.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        matches!(&self.way, Way::Read(source) if source.said(name).is_on())
    }

    /// Whether what was said of key `name` of this section is wrong by itself.
    #[must_use]
    pub fn is_wrong(&self, name: &str) -> bool {
        matches!(&self.way, Way::Read(source) if source.wrong.contains(&name))
    }

    /// Whether each value so far, in all sections, is what was said, and none stands in for a wrong or
    /// missing one; never while the table is described.
    #[must_use]
    pub fn is_right(&self) -> bool {
        matches!(&self.way, Way::Read(source) if !source.reading.has_stand_in.get())
    }

    /// How many mistakes there are by now, in all sections.
    #[must_use]
    pub fn mistakes(&self) -> usize {
        match &self.way {
            Way::Describe(..) => 0,
            Way::Read(source) => source.reading.mistakes.borrow().len(),
        }
    }

    /// The first key of those asked for by now that was said.
    #[must_use]
    pub fn first_said(&self) -> Option<&'static str> {
        let Way::Read(source) = &self.way else { return None };
        source.asked.iter().copied().find(|name| self.has(name))
    }

    /// Notes that what was said of key `name` is wrong beside the rest: the message says why and
    /// what is expected. It stands where the key does; where that was not said, with the section. Of a
    /// key that is wrong by itself nothing more is told.
    pub fn note(&mut self, name: &str, message: impl AsRef<str>) {
        let Way::Read(source) = &self.way else { return };
        match (source.said(name), source.section.row(name)) {
            _ if source.wrong.contains(&name) => {}
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
}

/// For [`Key`].
impl<'a> Keys<'a> {
    /// What was said of the key of `row`; nothing while the table is described.
    pub(crate) fn ask(&mut self, row: &Row) -> Said<'a> {
        match &mut self.way {
            Way::Describe(description, at) => {
                let rows = &mut description.sections[*at].rows;
                let is_new = rows.iter().all(|known| known.name != row.name);
                assert!(is_new, "the key {} is in its section twice", row.name);
                rows.push(row.clone());
                Said::Nothing
            }
            Way::Read(source) => {
                source.asked.push(row.name);
                source.said(row.name)
            }
        }
    }

    /// This section; none while the table is described.
    pub(crate) fn section(&self) -> Option<&'a Section> {
        match &self.way {
            Way::Describe(..) => None,
            Way::Read(source) => Some(source.section),
        }
    }

    /// The key called `name` in this section.
    pub(crate) fn row(&self, name: &str) -> Option<&'a Row> {
        self.section()?.row(name)
    }

    /// Whether the file says key `name`, whatever a flag says.
    pub(crate) fn stands_in_file(&self, name: &str) -> bool {
        let Way::Read(source) = &self.way else { return false };
        source.section.row(name).is_some_and(|row| source.entry(row).is_some())
    }

    /// Notes that the section lacks something.
    pub(crate) fn lacks(&mut self, what: String) {
        if let Way::Read(source) = &self.way {
            source.lacks(what);
        }
    }

    /// Notes what is wrong with a value.
    pub(crate) fn wrong(&mut self, row: &Row, item: Item<'_>, what: &str) {
        if let Way::Read(source) = &mut self.way {
            source.is_wrong(row);
            source.wrong_item(row, item, what);
        }
    }

    /// Notes what is wrong with a key as a whole.
    pub(crate) fn note_said(&mut self, row: &Row, said: &Said<'_>, what: &str) {
        if let Way::Read(source) = &mut self.way {
            source.is_wrong(row);
            source.note(row, said, what);
        }
    }

    /// Notes what is wrong with a key beside others.
    pub(crate) fn note_beside(&self, row: &Row, said: &Said<'_>, what: &str) {
        if let Way::Read(source) = &self.way {
            source.note(row, said, what);
        }
    }

    /// Describes the tables of the list `name`, once for all sections that have such a list.
    pub(crate) fn describe_item<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        read: ReadItem<'_, T>,
    ) {
        let Way::Describe(description, _) = &mut self.way else { return };
        if description.section(name).is_none() {
            let path = name.to_owned();
            let section =
                Section { path, is_repeated: true, is_item: true, about, ..Section::default() };
            description.sections.push(section);
            let at = description.sections.len() - 1;
            read(&mut Keys::describing(description, at));
        }
    }

    /// Reads a table of the list `name`.
    pub(crate) fn item<T>(
        &self,
        name: &str,
        item: &Spanned<DeValue<'_>>,
        read: ReadItem<'_, T>,
    ) -> Option<T> {
        let Way::Read(Source { reading, .. }) = &self.way else { return None };
        let section = reading.description.section(name).expect("it was described");
        let entries = item.get_ref().as_table().expect("a table");
        Keys::reading(Source::of(reading, section, entries, item.span().start), read)
    }
}

/// For [`Given`](crate::Given) and sections.
impl<'a> Keys<'a> {
    pub(crate) fn describing(description: &'a mut Description, section: usize) -> Self {
        Self { heading: Cow::Borrowed(""), way: Way::Describe(description, section) }
    }

    /// The top of a file, and flags.
    pub(crate) fn top<T: Table>(
        reading: &'a Reading<'a>,
        flags: &'a BTreeMap<String, Vec<String>>,
        entries: &'a DeTable<'a>,
        has_file: bool,
    ) -> T {
        let section = &reading.description.sections[0];
        let source = Source::of(reading, section, entries, 0);
        let source = Source { flags: Some(flags), at: has_file.then_some(0), ..source };
        Keys::reading(source, T::read)
    }

    /// Reads a whole section, and notes every entry that was not asked for.
    fn reading<T>(source: Source<'a>, read: impl FnOnce(&mut Keys<'_>) -> T) -> T {
        let mut keys = Self { heading: Cow::Borrowed(""), way: Way::Read(source) };
        let value = read(&mut keys);
        let Way::Read(source) = keys.way else { return value };
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
        value
    }

    fn inner(
        &mut self,
        name: &'static str,
        about: &'static str,
        is_repeated: bool,
    ) -> Inner<'_, 'a> {
        match &mut self.way {
            Way::Describe(description, at) => {
                let path = join(&description.sections[*at].path, name);
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
