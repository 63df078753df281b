//! The table of a command as data: what flags, help, completions and the reference page are made of.
//!
//! It is what [`Table::read`] asks for, written down instead of read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use toml::de::DeTable;

use crate::given::Reading;
use crate::keys::{Keys, Table};
use crate::kind::Word;

/// Every key of a command, by section. The first section is the top of the file.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// In the order in which they are read.
    pub sections: Vec<Section>,
}

/// A part of a file that holds keys.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Names of the tables from the top, such as `backend.server`; empty for the top.
    pub path: String,
    /// Whether there may be several: `[[backend]]`, not `[backend]`.
    pub is_repeated: bool,
    /// Whether it stands in a list beside texts: `arms = ["a", { name = "b" }]`.
    pub is_item: bool,
    /// What it is for, in one line.
    pub about: &'static str,
    /// Its keys, in the order in which they are read.
    pub rows: Vec<Row>,
}

/// One key: `--header-timeout` on the command line is `header_timeout` in a file.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Name in a file.
    pub name: &'static str,
    /// Its names of earlier days, which still hold.
    pub aliases: Vec<&'static str>,
    /// Name of the flag without its dashes, where that is not the key's.
    pub(crate) flag: Option<&'static str>,
    /// The letter of a short flag.
    pub short: Option<char>,
    /// Where it may be said.
    pub place: Places,
    /// Heading in help texts.
    pub heading: Cow<'static, str>,
    /// What it does, in one line.
    pub about: Cow<'static, str>,
    /// More about it, for long help texts.
    pub more: &'static str,
    /// The value when nothing is said, as it would be written.
    pub default: Option<&'static str>,
    /// What happens when nothing is said and there is no default, or why this default.
    pub otherwise: &'static str,
    /// A value as it is written in a file.
    pub example: &'static str,
    /// How often it is given.
    pub takes: Takes,
    /// Which values of its flag are divided at commas, if any.
    pub split: Option<fn(&str) -> bool>,
    /// What a flag without a value means, where it may stand so.
    pub bare: Option<&'static str>,
    /// Stands for a value in help texts.
    pub placeholder: &'static str,
    /// What is accepted, in words.
    pub accepts: String,
    /// Words that are accepted, or that completions offer.
    pub words: Vec<Word>,
    /// Keys without which it does nothing, each with the reason.
    pub(crate) needs: Vec<(&'static str, &'static str)>,
    /// Keys that cannot be said beside it.
    pub(crate) excludes: &'static [&'static str],
    /// Whether it has to be said.
    pub(crate) is_required: bool,
    /// Whether help and reference page leave it out.
    pub is_hidden: bool,
    /// Whether only completions and the manual know its flag.
    pub is_unlisted: bool,
}

/// Where a key may be said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Places {
    /// As a flag and in a file.
    #[default]
    Both,
    /// As an argument without a flag, and in a file.
    Positional,
    /// In a file only.
    File,
    /// As a flag only.
    Flag,
}

/// How often and with what a key is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Takes {
    /// One value.
    #[default]
    Value,
    /// One value or several.
    List,
    /// On or off.
    Switch,
}

/// The description of a command's table.
#[must_use]
pub fn describe<T: Table>() -> Description {
    let description = Description { sections: vec![Section::default()] };
    let reading = Reading::new("", "", description, true);
    Keys::top::<T>(&reading, &BTreeMap::new(), &DeTable::new(), None);
    reading.description.into_inner()
}

impl Description {
    /// The section at `path`, which is empty for the top.
    #[must_use]
    pub fn section(&self, path: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.path == path)
    }

    /// The keys that have a flag: those of the top and of tables that stand once.
    pub fn flags(&self) -> impl Iterator<Item = &Row> {
        let of_flags = self.sections.iter().filter(|section| !self.is_repeated(&section.path));
        of_flags.flat_map(|section| &section.rows).filter(|row| row.place != Places::File)
    }

    /// Whether a section or one above it may stand several times.
    pub(crate) fn is_repeated(&self, path: &str) -> bool {
        let is_above = |section: &Section| {
            path == section.path || path.starts_with(&format!("{}.", section.path))
        };
        self.sections.iter().any(|section| section.is_repeated && is_above(section))
    }
}

impl Section {
    /// The header as it is written; none for the top.
    #[must_use]
    pub fn title(&self) -> String {
        match (self.path.as_str(), self.is_repeated) {
            (path, _) if self.is_item => format!("a table in {path}"),
            ("", _) => "the top of the file".to_owned(),
            (path, true) => format!("[[{path}]]"),
            (path, false) => format!("[{path}]"),
        }
    }

    /// The key called `name`, or that was called so.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name || row.aliases.contains(&name))
    }
}

impl Row {
    /// The flag as it is written, or what stands for an argument without one.
    #[must_use]
    pub fn written(&self) -> String {
        match self.place {
            Places::Positional => self.placeholder.to_owned(),
            _ => format!("--{}", self.flag_name()),
        }
    }

    /// Name of the flag without its dashes.
    #[must_use]
    pub fn flag_name(&self) -> String {
        self.flag.map_or_else(|| self.name.replace('_', "-"), str::to_owned)
    }
}
