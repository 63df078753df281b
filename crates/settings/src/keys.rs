//! The table of a command as a function that asks for one key after the other.
//!
//! [`Keys`] answers with values, or with defaults where nothing was said. While the table is described
//! nothing is said, and each key that is asked for is written down. Which of both is hidden from the
//! table, so flags, file, help and reference page cannot differ.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::describe::{GivenBy, Row, Section};
use crate::given::{Item, Reading, Said};
use crate::mistake::{Location, did_you_mean, shown};

/// The settings of a command, as a type that it owns. [`table!`](crate::describe) makes one of a struct.
pub trait Table: Sized {
    /// Whether `${NAME}` in a text of a file stands for a variable of the environment: not where texts may be command lines,
    /// which have variables of their own. It is asked of the table that a file is read as.
    const HAS_VARIABLES: bool = false;

    /// Asks for every key and makes a value of what was said: what it does not ask for is unknown in
    /// files and has no flag.
    ///
    /// Where a key is wrong its default stands in, and the result is not used; what is judged
    /// of several keys together may ask [`Keys::is_wrong`] and [`Keys::is_right`] first.
    fn read(keys: &mut Keys<'_>) -> Self;
}

/// The keys of one section of a file, and of the flags where they are its own.
pub struct Keys<'a> {
    pub(crate) heading: Cow<'static, str>,
    reading: &'a Reading<'a>,
    /// Its number in the description.
    section: usize,
    flags: Option<&'a BTreeMap<String, Vec<String>>>,
    entries: &'a DeTable<'a>,
    /// Where the section begins, in bytes; none where there is no file.
    at: Option<usize>,
    /// The keys that were asked for.
    asked: Vec<&'static str>,
    /// Those of which something wrong was said.
    wrong: Vec<&'static str>,
    /// Whether the table is described that is not the command's own.
    is_other: bool,
    /// Why a key of the table that was not chosen has no place here.
    why_not: Option<&'static str>,
}

/// Which of two tables of one grammar is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// That of the command, whose keys have flags.
    Own,
    /// The other one, whose further keys stand in files alone.
    Other,
}

impl<'a> Keys<'a> {
    /// The heading of the following keys in help texts.
    pub fn heading(&mut self, heading: impl Into<Cow<'static, str>>) {
        self.heading = heading.into();
    }

    /// A key that is gone. Its use is a mistake that names what took its place: `by` is a key, or words.
    pub fn replaced(&mut self, name: &'static str, by: &'static str) {
        let row = Row { name, is_hidden: true, ..Row::default() };
        let said = self.ask(&row);
        if !matches!(said, Said::Nothing) {
            self.note_said(&row, &said, &format!("was replaced by {by}"));
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
        let section = self.inner(name, about, false);
        let nothing = DeTable::new();
        let (entries, at) = match self.entries.get_key_value(name) {
            None => (&nothing, None),
            Some((key, value)) => match value.get_ref() {
                DeValue::Table(entries) => (entries, Some(value.span().start)),
                _ => {
                    self.reading.stands_in(key.span().start, self.wrong_form(name, section));
                    (&nothing, None)
                }
            },
        };
        let keys = Keys { flags: self.flags, at, ..Keys::of(self.reading, section, entries, 0) };
        keys.read(read)
    }

    /// The tables `[[name]]` of a file, in order. Their keys have no flags.
    pub fn tables<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        count: RangeInclusive<usize>,
        mut read: impl FnMut(&mut Keys<'_>) -> T,
    ) -> Vec<T> {
        let section = self.inner(name, about, true);
        if self.reading.is_describing {
            Keys::of(self.reading, section, &DeTable::new(), 0).read(read);
            return Vec::new();
        }
        let mut tables = Vec::new();
        if let Some((key, value)) = self.entries.get_key_value(name) {
            let table = |item: &'a Spanned<DeValue<'a>>| {
                Some((item.get_ref().as_table()?, item.span().start))
            };
            let items = value.get_ref().as_array();
            let items = items.and_then(|items| items.iter().map(table).collect::<Option<Vec<_>>>());
            let Some(items) = items else {
                self.reading.stands_in(key.span().start, self.wrong_form(name, section));
                return Vec::new();
            };
            tables = items;
        }
        if !count.contains(&tables.len()) {
            let found = tables.len();
            let title = self.titled(section);
            let what = format!("{found} {title} sections; expected {}", between(&count));
            match self.at {
                Some(at) => self.reading.stands_in(at, what),
                None => self.lacks(what),
            }
            return Vec::new();
        }
        let keys = |(entries, at)| Keys::of(self.reading, section, entries, at);
        tables.into_iter().map(|table| keys(table).read(&mut read)).collect()
    }

    /// One of two tables of one grammar, each with why its keys have no place where the other one is read. Keys
    /// that both have are one key; what flags there are is said by `own`.
    pub fn either<T>(
        &mut self,
        chosen: Chosen,
        own: (&'static str, impl FnOnce(&mut Keys<'_>) -> T),
        other: (&'static str, impl FnOnce(&mut Keys<'_>) -> T),
    ) -> T {
        if self.reading.is_describing {
            let value = (own.1)(self);
            self.is_other = true;
            (other.1)(self);
            self.is_other = false;
            return value;
        }
        match chosen {
            Chosen::Own => {
                self.why_not = Some(other.0);
                (own.1)(self)
            }
            Chosen::Other => {
                self.why_not = Some(own.0);
                (other.1)(self)
            }
        }
    }

    /// Whether a flag or the file names this key or section, before it is asked for. A switch that is off is not
    /// named.
    #[must_use]
    pub fn names(&self, name: &str) -> bool {
        self.flag(name).is_some() || self.entries.get(name).is_some_and(is_on)
    }

    /// Whether a flag names this key.
    #[must_use]
    pub fn names_by_flag(&self, name: &str) -> bool {
        self.flag(name).is_some()
    }

    /// Key `name` has no place in this section as the rest of it is; `why` is reported where it stands.
    pub fn foreign(&mut self, name: &'static str, why: impl FnOnce() -> String) {
        self.asked.push(name);
        if let Some((key, _)) = self.entries.get_key_value(name) {
            self.reading.note(key.span().start, why());
        }
    }
}

/// For what must hold between keys.
impl Keys<'_> {
    /// Whether key `name` of this section was said. A switch that is off was not.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.said(name).is_on()
    }

    /// Whether what was said of key `name` of this section is wrong by itself.
    #[must_use]
    pub fn is_wrong(&self, name: &str) -> bool {
        self.wrong.contains(&name)
    }

    /// Whether each value so far, in all sections, is what was said, and none stands in for a wrong or
    /// missing one; never while the table is described.
    #[must_use]
    pub fn is_right(&self) -> bool {
        !self.reading.is_describing && !self.reading.has_stand_in.get()
    }

    /// How many mistakes there are by now, in all sections.
    #[must_use]
    pub fn mistakes(&self) -> usize {
        self.reading.mistakes.borrow().len()
    }

    /// The first key of those asked for by now that was said.
    #[must_use]
    pub fn first_given(&self) -> Option<&'static str> {
        self.asked.iter().copied().find(|name| self.has(name))
    }

    /// The first of these keys, all asked for by now, that was said.
    #[must_use]
    pub fn first_given_of(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// Whether the table is described, and nothing is said.
    #[must_use]
    pub fn is_describing(&self) -> bool {
        self.reading.is_describing
    }

    /// Notes that what was said of key `name` is wrong beside the rest: the message says why and
    /// what is expected. It stands where the key does; where that was not said, with the section. Of a
    /// key that is wrong by itself nothing more is reported.
    pub fn note(&mut self, name: &str, message: impl AsRef<str>) {
        if self.is_wrong(name) {
            return;
        }
        let row = self.looked_up(|section| section.row(name).cloned());
        match row {
            Some(row) => self.note_said(&row, &self.said(name), message.as_ref()),
            None => self.refuse(message.as_ref()),
        }
    }

    /// Notes that this section as a whole is wrong.
    pub fn refuse(&mut self, message: impl Into<String>) {
        self.reading.note_at(self.whole(), message.into());
    }

    /// Where key `name` of this section was said, if it was; a flag without its value.
    #[must_use]
    pub fn location(&self, name: &str) -> Option<Location> {
        match self.said(name) {
            Said::Nothing => None,
            Said::Flag(_) => Some(Location::Flag(self.written(name, true))),
            Said::File(value) => Some(self.reading.location(value.span().start)),
        }
    }

    /// Where each value of the list that key `name` of this section is was said; where the key was, of one value
    /// or of what flags said.
    #[must_use]
    pub fn item_locations(&self, name: &str) -> Vec<Location> {
        if let Said::File(value) = self.said(name)
            && let Some(items) = value.get_ref().as_array()
        {
            return items.iter().map(|item| self.reading.location(item.span().start)).collect();
        }
        self.location(name).into_iter().collect()
    }

    /// Where this section begins, for what is wrong with it as a whole.
    #[must_use]
    pub fn here(&self) -> Location {
        self.at.map_or(Location::Whole, |at| self.reading.location(at))
    }

    /// Name of the file, as the user called it; empty where there is none.
    #[must_use]
    pub fn file(&self) -> &str {
        self.reading.file
    }

    /// Notes a mistake at a location that [`location`](Self::location) or [`here`](Self::here) gave.
    pub fn note_at(&mut self, location: Location, message: impl Into<String>) {
        self.reading.note_at(location, message.into());
    }
}

/// For [`Key`](crate::Key).
impl<'a> Keys<'a> {
    /// What was said of the key of `row`; nothing while the table is described.
    pub(crate) fn ask(&mut self, row: &Row) -> Said<'a> {
        self.asked.push(row.name);
        if self.reading.is_describing {
            let rows = &mut self.reading.description.borrow_mut().sections[self.section].rows;
            let is_new = rows.iter().all(|known| known.name != row.name);
            if !self.is_other {
                assert!(is_new, "the key {} is in its section twice", row.name);
                rows.push(row.clone());
            } else if is_new && row.given_by != GivenBy::Flag {
                // One that both have is described already; another one has no flag here.
                rows.push(Row { given_by: GivenBy::File, ..row.clone() });
            }
        }
        self.said(row.name)
    }

    /// What was said of key `name`. A flag takes the place of what a file says of the key, and of the
    /// keys that it excludes.
    fn said(&self, name: &str) -> Said<'a> {
        if let Some(texts) = self.flag(name) {
            return Said::Flag(texts);
        }
        // Most keys are not there, and a file may have thousands of tables.
        let Some(entry) = self.entry(name) else { return Said::Nothing };
        let gives_way = self.looked_up(|section| {
            let row = section.row(name)?;
            let is_rival = |other: &&Row| {
                other.excludes.contains(&row.name) || row.excludes.contains(&other.name)
            };
            let mut rivals = section.rows.iter().filter(is_rival);
            Some(
                row.given_by == GivenBy::Flag
                    || rivals.any(|rival| self.flag(rival.name).is_some()),
            )
        });
        if gives_way == Some(false) { Said::File(entry) } else { Said::Nothing }
    }

    fn flag(&self, name: &str) -> Option<&'a [String]> {
        self.flags?.get(name).map(Vec::as_slice)
    }

    /// What the file says of key `name`, whatever a flag says.
    pub(crate) fn entry(&self, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.looked_up(|section| {
            let row = section.row(name)?;
            let mut names = std::iter::once(row.name).chain(row.aliases.iter().copied());
            names.find_map(|name| self.entries.get(name))
        })
    }

    /// Key `name` as it is written: as a flag, or in a file.
    pub(crate) fn written(&self, name: &str, is_flag: bool) -> String {
        let flag = self.looked_up(|section| section.row(name).map(Row::written));
        flag.filter(|_| is_flag).unwrap_or_else(|| name.to_owned())
    }

    /// Something of this section.
    pub(crate) fn looked_up<T>(&self, look: impl FnOnce(&Section) -> T) -> T {
        look(&self.reading.description.borrow().sections[self.section])
    }

    /// Notes what is wrong with a value, and repeats it as it was written. Its default stands in.
    pub(crate) fn wrong(&mut self, row: &Row, item: Item<'_>, what: &str) {
        self.stands_in(row);
        match item {
            Item::Text(text) => {
                let flag = format!("{} {}", row.written(), shown(text));
                self.reading.note_at(Location::Flag(flag), what.to_owned());
            }
            Item::Value(value) => {
                let written = self.reading.text.get(value.span()).unwrap_or_default();
                let written = written.lines().next().unwrap_or_default();
                let written: String = written.chars().take(60).collect();
                let message = format!("{} = {written}: {what}", row.name);
                self.reading.note(value.span().start, message);
            }
        }
    }

    /// What was said of the key is wrong.
    pub(crate) fn stands_in(&mut self, row: &Row) {
        self.reading.has_stand_in.set(true);
        self.wrong.push(row.name);
    }

    /// Notes what is wrong with a key that was said, beside others or as a whole.
    pub(crate) fn note_said(&self, row: &Row, said: &Said<'_>, message: &str) {
        let (location, message) = match said {
            Said::Nothing => (self.whole(), message.to_owned()),
            Said::Flag(_) => (Location::Flag(row.written()), message.to_owned()),
            Said::File(value) => {
                (self.reading.location(value.span().start), format!("{}: {message}", row.name))
            }
        };
        self.reading.note_at(location, message);
    }

    /// Where it stands that the section as a whole is wrong: at its beginning, unless that is the file's.
    fn whole(&self) -> Location {
        if self.looked_up(|section| section.path.is_empty()) {
            Location::Whole
        } else {
            self.here()
        }
    }

    /// Notes that the section lacks something.
    pub(crate) fn lacks(&mut self, what: String) {
        self.reading.has_stand_in.set(true);
        self.refuse(what);
    }

    /// Describes the tables of the list `name`, once for all sections that have such a list.
    pub(crate) fn describe_item<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        read: ReadItem<'_, T>,
    ) {
        let is_known = self.reading.description.borrow().section(name).is_some();
        if self.reading.is_describing && !is_known {
            let path = name.to_owned();
            let section =
                Section { path, is_repeated: true, is_item: true, about, ..Section::default() };
            let section = self.reading.describe(section);
            Keys::of(self.reading, section, &DeTable::new(), 0).read(read);
        }
    }

    /// Reads a table of the list `name`.
    pub(crate) fn item<T>(
        &self,
        name: &str,
        item: &Spanned<DeValue<'_>>,
        read: ReadItem<'_, T>,
    ) -> Option<T> {
        let entries = item.get_ref().as_table().expect("a table");
        let section = self.reading.number_of(name);
        Keys::of(self.reading, section, entries, item.span().start).read(read)
    }
}

/// For [`Given`](crate::Given) and sections.
impl<'a> Keys<'a> {
    /// The top of a file, and flags.
    pub(crate) fn top<T: Table>(
        reading: &'a Reading<'a>,
        flags: &'a BTreeMap<String, Vec<String>>,
        entries: &'a DeTable<'a>,
        at: Option<usize>,
    ) -> T {
        Keys { flags: Some(flags), at, ..Keys::of(reading, 0, entries, 0) }.read(T::read)
    }

    /// A section that begins at this byte; no flags are its own.
    fn of(reading: &'a Reading<'a>, section: usize, entries: &'a DeTable<'a>, at: usize) -> Self {
        let heading = Cow::Borrowed("");
        let asked = Vec::new();
        let wrong = Vec::new();
        let is_other = false;
        let why_not = None;
        let at = Some(at);
        Self {
            heading,
            reading,
            section,
            flags: None,
            entries,
            at,
            asked,
            wrong,
            is_other,
            why_not,
        }
    }

    /// Reads the whole section, and notes every entry that was not asked for.
    fn read<T>(mut self, read: impl FnOnce(&mut Keys<'_>) -> T) -> T {
        let value = read(&mut self);
        for (name, _) in self.entries {
            let at = name.span().start;
            let name = name.get_ref().as_ref();
            let row =
                self.looked_up(|section| section.row(name).map(|row| (row.given_by, row.name)));
            // A section may have the name of a key that is only a flag.
            let is_asked = match row {
                Some((GivenBy::Flag, _)) => self.has_inner(name),
                Some((_, name)) => self.asked.contains(&name),
                None => self.asked.contains(&name),
            };
            if !is_asked {
                let message = match (row, self.why_not) {
                    (Some((_, name)), Some(why)) => format!("{name}: {why}"),
                    _ if self.is_section_of_other(name) => {
                        format!("[[{name}]] {}", self.why_not.expect("there is another table"))
                    }
                    _ => self.unknown(name),
                };
                self.reading.note(at, message);
            }
        }
        let said = self.flags.into_iter().flat_map(BTreeMap::keys);
        for (name, why) in said.filter_map(|name| Some((name, self.why_not?))) {
            if !self.asked.contains(&name.as_str()) {
                let flag = Location::Flag(self.written(name, true));
                self.reading.note_at(flag, why.to_owned());
            }
        }
        value
    }

    /// Whether the table that was not chosen has this section.
    fn is_section_of_other(&self, name: &str) -> bool {
        self.why_not.is_some() && self.has_inner(name)
    }

    /// The number of the section `name` below this one.
    fn inner(&mut self, name: &'static str, about: &'static str, is_repeated: bool) -> usize {
        self.asked.push(name);
        let path = self.path_of(name);
        if !self.reading.is_describing {
            return self.reading.number_of(&path);
        }
        self.reading.describe(Section { path, is_repeated, about, ..Section::default() })
    }

    fn has_inner(&self, name: &str) -> bool {
        self.reading.description.borrow().section(&self.path_of(name)).is_some()
    }

    fn path_of(&self, name: &str) -> String {
        self.looked_up(|above| match above.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        })
    }

    fn titled(&self, section: usize) -> String {
        self.reading.description.borrow().sections[section].title()
    }

    fn wrong_form(&self, name: &str, section: usize) -> String {
        format!("\"{name}\" is written {}", self.titled(section))
    }

    /// What to say about a name that was not asked for.
    fn unknown(&self, name: &str) -> String {
        let description = self.reading.description.borrow();
        let sections = &description.sections;
        let here = &description.sections[self.section];
        let title = here.title();
        let is_home =
            |section: &&Section| section.row(name).is_some_and(|row| row.given_by != GivenBy::Flag);
        let homes: Vec<_> = sections.iter().filter(is_home).map(Section::title).collect();
        if !homes.is_empty() {
            let homes = homes.join(" or ");
            return format!("the key \"{name}\" is not for {title}; it belongs to {homes}");
        }
        let below = sections.iter().filter(|section| !section.is_item);
        let below = below.filter_map(|section| match section.path.rsplit_once('.') {
            Some((above, name)) => (above == here.path).then_some(name),
            None => here.path.is_empty().then_some(section.path.as_str()),
        });
        let is_known = |row: &&Row| !row.is_hidden && row.given_by != GivenBy::Flag;
        let known = here.rows.iter().filter(is_known);
        let near = did_you_mean(name, known.map(|row| row.name).chain(below));
        let name = shown(name);
        match sections.len() {
            1 => format!("unknown key \"{name}\"{near}"),
            _ if here.path.is_empty() => format!("unknown key \"{name}\" at {title}{near}"),
            _ => format!("unknown key \"{name}\" in {title}{near}"),
        }
    }
}

/// Whether an entry says something but that a switch is off.
pub(crate) fn is_on(value: &Spanned<DeValue<'_>>) -> bool {
    !matches!(value.get_ref(), DeValue::Boolean(false))
}

/// How a table of a list is read.
pub(crate) type ReadItem<'r, T> = &'r mut dyn FnMut(&mut Keys<'_>) -> Option<T>;

pub(crate) fn between(count: &RangeInclusive<usize>) -> String {
    match (count.start(), count.end()) {
        (low, &usize::MAX) => format!("at least {low}"),
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low} to {high}"),
    }
}
