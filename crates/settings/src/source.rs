//! What was said of the keys of one section, by flags and by a file, and the mistakes there.
//!
//! [`Keys`](crate::Keys) has one while it reads; [`Key`](crate::Key) asks it for what was said.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::describe::{Places, Row, Section};
use crate::document::{found, scalar};
use crate::given::Reading;
use crate::kind::Kind;
use crate::mistake::{Place, did_you_mean, shown};

/// Where the values of a section are.
pub(crate) struct Source<'a> {
    pub(crate) reading: &'a Reading<'a>,
    pub(crate) section: &'a Section,
    pub(crate) flags: Option<&'a BTreeMap<String, Vec<String>>>,
    pub(crate) entries: &'a DeTable<'a>,
    /// Where the section begins, in bytes; none where there is no file.
    pub(crate) at: Option<usize>,
    /// The keys that were asked for.
    pub(crate) asked: Vec<&'static str>,
    /// Those of which something wrong was said.
    pub(crate) wrong: Vec<&'static str>,
}

/// What was said of a key.
pub(crate) enum Said<'a> {
    Nothing,
    Flag(&'a [String]),
    File(&'a Spanned<DeValue<'a>>),
}

/// One value of a key.
#[derive(Clone, Copy)]
pub(crate) enum Item<'a> {
    Text(&'a str),
    Value(&'a Spanned<DeValue<'a>>),
}

impl<'a> Said<'a> {
    /// Whether something was said but that a switch is off.
    pub(crate) fn is_on(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Flag(_) => true,
            Self::File(value) => !matches!(value.get_ref(), DeValue::Boolean(false)),
        }
    }

    /// The value of a key that has one: of several flags the last.
    pub(crate) fn value(&self) -> Option<Item<'a>> {
        match self {
            Self::Nothing => None,
            Self::Flag(texts) => Some(Item::Text(texts.last().map_or("", String::as_str))),
            Self::File(value) => Some(Item::Value(value)),
        }
    }

    /// The values of a key that has several; those of a flag may be divided at commas.
    pub(crate) fn items(&self, is_divided: Option<fn(&str) -> bool>) -> Vec<Item<'a>> {
        let divided = |text: &'a String| -> Vec<Item<'a>> {
            match is_divided {
                Some(is_divided) if is_divided(text) => {
                    text.split(',').map(|part| Item::Text(part.trim())).collect()
                }
                _ => vec![Item::Text(text)],
            }
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Flag(texts) => texts.iter().flat_map(divided).collect(),
            Self::File(value) => match value.get_ref() {
                DeValue::Array(items) => items.iter().map(Item::Value).collect(),
                _ => vec![Item::Value(value)],
            },
        }
    }
}

impl Item<'_> {
    /// What it is as a value of `kind`, or what is wrong with it.
    pub(crate) fn read<T: 'static>(self, kind: &Kind<T>, example: &str) -> Result<T, String> {
        match self {
            Self::Text(text) => kind.judge(text, example),
            Self::Value(value) => {
                let text = scalar(value.get_ref()).filter(|_| kind.takes(value.get_ref()));
                let text = text.ok_or_else(|| kind.refusal(&found(value.get_ref()), example))?;
                kind.judge(&text, example)
            }
        }
    }
}

impl<'a> Source<'a> {
    /// One of several tables, whose keys have no flags.
    pub(crate) fn of(
        reading: &'a Reading<'a>,
        section: &'a Section,
        entries: &'a DeTable<'a>,
        at: usize,
    ) -> Self {
        let (asked, wrong) = (Vec::new(), Vec::new());
        Self { reading, section, flags: None, entries, at: Some(at), asked, wrong }
    }

    /// What was said of key `name` of this section. A flag takes the place of what a file says of
    /// the key, and of the keys that it excludes.
    pub(crate) fn said(&self, name: &str) -> Said<'a> {
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

    pub(crate) fn has_inner(&self, name: &str) -> bool {
        self.reading.description.section(&join(&self.section.path, name)).is_some()
    }

    pub(crate) fn inner(&self, name: &str) -> &'a Section {
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

    /// Notes that the section lacks something, for which a default stands in.
    pub(crate) fn lacks(&self, what: String) {
        self.reading.has_stand_in.set(true);
        self.refuse(what);
    }

    /// What was said of the key is wrong; its default stands in.
    pub(crate) fn is_wrong(&mut self, row: &Row) {
        self.reading.has_stand_in.set(true);
        self.wrong.push(row.name);
    }

    /// Notes what is wrong with a value, and repeats it as it was written.
    pub(crate) fn wrong_item(&self, row: &Row, item: Item<'_>, what: &str) {
        match item {
            Item::Text(text) => {
                let flag = format!("{} {}", row.written(), shown(text));
                self.reading.note_at(Place::Flag(flag), what.to_owned());
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

    /// What to say about a name that was not asked for.
    pub(crate) fn stranger(&self, name: &str) -> String {
        let sections = &self.reading.description.sections;
        let title = self.section.title();
        let is_home =
            |section: &&Section| section.row(name).is_some_and(|row| row.place != Places::Flag);
        let homes: Vec<_> = sections.iter().filter(is_home).map(Section::title).collect();
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

pub(crate) fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}
