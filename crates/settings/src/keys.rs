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
use crate::mistake::{Place, did_you_mean, shown};

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

/// Where the values of a section are.
pub(crate) struct Source<'a> {
    pub(crate) reading: &'a Reading<'a>,
    pub(crate) section: &'a Section,
    flags: Option<&'a BTreeMap<String, Vec<String>>>,
    entries: &'a DeTable<'a>,
    /// Where the section begins, in bytes; none where there is no file.
    at: Option<usize>,
    /// The keys that were asked for.
    asked: Vec<&'static str>,
}

/// What was said of a key.
pub(crate) enum Said<'a> {
    Nothing,
    Flag(&'a [String]),
    File(&'a Spanned<DeValue<'a>>),
}

impl Said<'_> {
    /// Whether something was said but that a switch is off.
    pub(crate) fn is_on(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Flag(_) => true,
            Self::File(value) => !matches!(value.get_ref(), DeValue::Boolean(false)),
        }
    }
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

impl<'a> Source<'a> {
    /// One of several tables, whose keys have no flags.
    fn of(
        reading: &'a Reading<'a>,
        section: &'a Section,
        entries: &'a DeTable<'a>,
        at: usize,
    ) -> Self {
        Self { reading, section, flags: None, entries, at: Some(at), asked: Vec::new() }
    }

    /// What was said of key `name` of this section. A flag takes the place of what a file says of
    /// the key, and of the keys that it excludes.
    fn said(&self, name: &str) -> Said<'a> {
        if let Some(texts) = self.flag(name) {
            return Said::Flag(texts);
        }
        let Some(row) = self.section.row(name) else { return Said::Nothing };
        let is_rival =
            |other: &&Row| other.excludes.contains(&row.name) || row.excludes.contains(&other.name);
        let mut rivals = self.section.rows.iter().filter(is_rival);
        if row.place == Places::Flag || rivals.any(|rival| self.flag(rival.name).is_some()) {
            return Said::Nothing;
        }
        self.entry(row).map_or(Said::Nothing, Said::File)
    }

    fn flag(&self, name: &str) -> Option<&'a [String]> {
        self.flags?.get(name).map(Vec::as_slice)
    }

    pub(crate) fn entry(&self, row: &Row) -> Option<&'a Spanned<DeValue<'a>>> {
        let mut names = [row.name].into_iter().chain(row.aliases.iter().copied());
        names.find_map(|name| self.entries.get(name))
    }

    fn has_inner(&self, name: &str) -> bool {
        self.reading.description.section(&join(&self.section.path, name)).is_some()
    }

    fn inner(&self, name: &str) -> &'a Section {
        let path = join(&self.section.path, name);
        self.reading.description.section(&path).expect("it was described")
    }

    /// Notes what is wrong with a key that was said.
    pub(crate) fn note(&self, row: &Row, said: &Said<'_>, message: &str) {
        match said {
            Said::Nothing => self.refuse(message.to_owned()),
            Said::Flag(_) => {
                self.reading.note_at(Place::Flag(row.written()), message.to_owned());
            }
            Said::File(value) => {
                self.reading.note(value.span().start, format!("{}: {message}", row.name));
            }
        }
    }

    /// Notes what is wrong with the section.
    pub(crate) fn refuse(&self, message: String) {
        match self.at {
            Some(at) if !self.section.path.is_empty() => self.reading.note(at, message),
            _ => self.reading.note_at(Place::Whole, message),
        }
    }

    /// Notes what is wrong with a value of a file and repeats it as it was written.
    pub(crate) fn wrong_value(&self, row: &Row, value: &Spanned<DeValue<'_>>, what: &str) {
        let written = self.reading.text.get(value.span()).unwrap_or_default();
        let written: String = written.lines().next().unwrap_or_default().chars().take(60).collect();
        self.reading.note(value.span().start, format!("{} = {written}: {what}", row.name));
    }

    /// Notes what is wrong with a value of a flag.
    pub(crate) fn wrong_text(&self, row: &Row, text: &str, what: String) {
        let flag = format!("{} {}", row.written(), shown(text));
        self.reading.note_at(Place::Flag(flag), what);
    }

    /// What to say about a name that was not asked for.
    fn stranger(&self, name: &str) -> String {
        let sections = &self.reading.description.sections;
        let title = self.section.title();
        let homes: Vec<_> = sections
            .iter()
            .filter(|section| section.row(name).is_some_and(|row| row.place != Places::Flag))
            .map(Section::title)
            .collect();
        if !homes.is_empty() {
            let homes = homes.join(" or ");
            return format!("the key \"{name}\" is not for {title}; it belongs to {homes}");
        }
        let below = sections.iter().filter(|section| !section.is_item);
        let below = below.filter_map(|section| match section.path.rsplit_once('.') {
            Some((above, name)) => (above == self.section.path).then_some(name),
            None => self.section.path.is_empty().then_some(section.path.as_str()),
        });
        let is_known = |row: &&Row| !row.is_hidden && row.place != Places::Flag;
        let known = self.section.rows.iter().filter(is_known);
        let near = did_you_mean(name, known.map(|row| row.name).chain(below));
        let name = shown(name);
        match sections.len() {
            1 => format!("unknown key \"{name}\"{near}"),
            _ if self.section.path.is_empty() => format!("unknown key \"{name}\" at {title}{near}"),
            _ => format!("unknown key \"{name}\" in {title}{near}"),
        }
    }
}

fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
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
