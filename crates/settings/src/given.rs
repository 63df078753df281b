//! The settings that were given by flags and by a file, before they are read as a [`Table`].
//!
//! clap divides the words of a command line and knows which flags there are; a TOML text has values as they
//! were written. What a value means is read by the table, the same from both, so that all mistakes are
//! reported at once and in one way. No meaning of a key is known here.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::describe::{Description, GivenBy, Row, Section, Takes, describe};
use crate::document::parse;
use crate::include::{Part, add_included};
use crate::keys::{Keys, Table, is_on};
use crate::kind::{Kind, Word, parsed};
use crate::mistake::{Location, SettingError, SettingErrors};
use crate::variables::put_in;

/// Largest file; far more than all settings need.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The flag that names the file.
const CONFIG: &str = "config";

/// What was said: flags with their texts, and the text of a file. A flag wins over the file.
#[derive(Clone, Debug, Default)]
pub struct Given {
    flags: BTreeMap<String, Vec<String>>,
    /// Its name, and its text with those of the files that it includes behind.
    file: Option<(String, String)>,
    /// Where those begin.
    parts: Vec<Part>,
}

impl Given {
    /// What the text of a file says that is called `file` in messages.
    #[must_use]
    pub fn from_toml(text: &str, file: &str) -> Self {
        let file = Some((file.to_owned(), text.to_owned()));
        Self { flags: BTreeMap::new(), file, parts: Vec::new() }
    }

    /// What a file says, with the files that it includes. Its path stands behind `flag` in the message when it cannot be read.
    ///
    /// # Errors
    /// When it cannot be read, is not text, or has more than a mebibyte; what is wrong with files that it includes.
    pub fn from_file(path: &Path, flag: &str) -> Result<Self, SettingErrors> {
        let name = path.display().to_string();
        let failed = |why: String| {
            SettingErrors::one(Location::Flag(flag.to_owned()), format!("{name}{why}"))
        };
        let mut text = String::new();
        // Bounded here and not by the size that the file states: a device or a pipe states none.
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| failed(format!(": {error}")))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(format!(" is larger than {FILE_BYTES_MAX} bytes")));
        }
        let parts = add_included(path, &mut text)?;
        Ok(Self { parts, ..Self::from_toml(&text, &name) })
    }

    /// Name and text of the file, where there is one; behind it stand those that it includes.
    #[must_use]
    pub fn file(&self) -> Option<(&str, &str)> {
        self.file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Adds what the flag of key `name` said; a switch says `true`.
    pub fn flag(&mut self, name: &str, texts: Vec<String>) {
        self.flags.insert(name.to_owned(), texts);
    }

    /// Changes what the flag of key `name` said, text by text.
    pub fn change(&mut self, name: &str, change: impl Fn(&str) -> String) {
        if let Some(texts) = self.flags.get_mut(name) {
            texts.iter_mut().for_each(|text| *text = change(text));
        }
    }

    /// These flags over the file of `other`.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self { flags: self.flags, file: other.file, parts: other.parts }
    }

    /// What was said as `T`, with defaults for the rest.
    ///
    /// # Errors
    /// Every mistake, each with its place and with what is expected. Of a file that is not TOML
    /// only the faults of its form are reported, and of one with variables that have no value those.
    pub fn read<T: Table>(&self) -> Result<T, SettingErrors> {
        let (file, text) = self.file.as_ref().map_or(("", ""), |(file, text)| (file, text));
        let reading = Reading::new(file, text, &self.parts, describe::<T>(), false);
        let mut parsed = parse(text);
        if let (true, Ok(top)) = (T::HAS_VARIABLES, &mut parsed) {
            put_in(top.get_mut(), &mut |at, fault| reading.note(at, fault));
            let mistakes = reading.mistakes.take();
            if let Some(mistakes) = SettingErrors::of(mistakes, file) {
                return Err(mistakes);
            }
        }
        let empty = DeTable::new();
        let top = match &parsed {
            Ok(top) => top.get_ref(),
            Err(faults) => {
                faults.iter().for_each(|(at, fault)| reading.note(*at, fault.clone()));
                &empty
            }
        };
        let begin = (self.file.is_some() && parsed.is_ok()).then_some(0);
        let value = Keys::top(&reading, &self.flags, top, begin);
        let mut mistakes = reading.mistakes.into_inner();
        if parsed.is_err() {
            // What a broken file did not say is not a mistake of its own.
            mistakes.retain(|mistake| mistake.location != Location::Whole);
        }
        SettingErrors::of(mistakes, file).map_or(Ok(value), Err)
    }
}

/// What the command line says of the table `T`: its flags, and `--config FILE` for a file with the
/// same keys, where it is to have one.
#[derive(Clone, Debug)]
pub struct Flags<T, const HAS_FILE: bool = true> {
    /// What the flags say.
    pub given: Given,
    config: Option<PathBuf>,
    table: PhantomData<fn() -> T>,
}

/// The flags of the table `T` without one that names a file, for a command that is given its file in
/// another way, or none.
pub type FlagsOnly<T> = Flags<T, false>;

impl<T: Table, const HAS_FILE: bool> Flags<T, HAS_FILE> {
    /// What was said, by flags and file together.
    ///
    /// # Errors
    /// When the file cannot be read, or every mistake of both.
    pub fn read(&self) -> Result<T, SettingErrors> {
        self.read_over(&self.file()?)
    }

    /// The file that `--config` names.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// What the file says that `--config` names, unread; nothing without one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn file(&self) -> Result<Given, SettingErrors> {
        let file = self.config.as_deref().map(|path| Given::from_file(path, "--config"));
        Ok(file.transpose()?.unwrap_or_default())
    }

    /// What was said by flags over this file.
    ///
    /// # Errors
    /// Every mistake of both.
    pub fn read_over(&self, file: &Given) -> Result<T, SettingErrors> {
        self.given.clone().over(file.clone()).read()
    }

    /// What was said by flags, and by this text of a file with this name in place of the file itself:
    /// for a program that was started with the flags of another one, and has the file from it.
    ///
    /// # Errors
    /// Every mistake of both.
    pub fn read_with(&self, file: Option<(&str, &str)>) -> Result<T, SettingErrors> {
        let file = file.map_or_else(Given::default, |(name, text)| Given::from_toml(text, name));
        self.read_over(&file)
    }
}

impl<T: Table, const HAS_FILE: bool> Args for Flags<T, HAS_FILE> {
    fn augment_args(command: Command) -> Command {
        let before_default = if HAS_FILE { "" } else { "the file's, else " };
        let command = command.args(describe::<T>().flags().map(|row| arg(row, before_default)));
        if !HAS_FILE {
            return command;
        }
        let config = Arg::new(CONFIG).long(CONFIG).value_name("FILE");
        let config = config.value_parser(clap::value_parser!(PathBuf));
        let config = config.help("Read settings from this TOML file; flags win over it");
        command.arg(config)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Table, const HAS_FILE: bool> FromArgMatches for Flags<T, HAS_FILE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let config = HAS_FILE.then(|| matches.get_one::<PathBuf>(CONFIG).cloned()).flatten();
        let mut given = Given::default();
        for row in describe::<T>().flags() {
            let texts: Vec<String> = match row.takes {
                Takes::Switch => {
                    matches.get_flag(row.name).then(|| "true".to_owned()).into_iter().collect()
                }
                _ => matches.get_many::<String>(row.name).unwrap_or_default().cloned().collect(),
            };
            if !texts.is_empty() {
                given.flag(row.name, texts);
            }
        }
        Ok(Self { given, config, table: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn arg(row: &Row, before_default: &str) -> Arg {
    let help = help(row, before_default);
    let long = match row.more {
        "" => help.clone(),
        more => format!("{help}\n\n{more}"),
    };
    let arg = Arg::new(row.name).help(help).long_help(long).hide(row.is_hidden);
    let arg = arg.hide_short_help(row.is_unlisted).hide_long_help(row.is_unlisted);
    let arg = if row.heading.is_empty() { arg } else { arg.help_heading(row.heading.to_string()) };
    let value = |arg: Arg| {
        // The table reads the text, as it reads that of a file.
        let mut any = parsed("", "", |text| Ok::<_, String>(text.to_owned()));
        any.words.clone_from(&row.words);
        arg.value_name(row.placeholder).value_parser(any).hide_possible_values(true)
    };
    let arg = match row.takes {
        Takes::Switch => arg.action(ArgAction::SetTrue),
        Takes::Value => value(arg.action(ArgAction::Set)),
        Takes::List => value(arg.action(ArgAction::Append)),
    };
    let arg = match row.bare {
        None => arg,
        Some(bare) => arg.num_args(0..=1).default_missing_value(bare).require_equals(true),
    };
    if row.given_by == GivenBy::Positional {
        return arg;
    }
    let aliases = row.aliases.iter().map(|name| name.replace('_', "-"));
    arg.long(row.flag_name()).short(row.short).aliases(aliases)
}

/// What the flag does, its default, and a line for each word that needs one.
fn help(row: &Row, before_default: &str) -> String {
    let default = match (row.takes, row.default, row.otherwise) {
        (Takes::Switch, ..) | (_, None, "") => String::new(),
        (_, Some(default), _) => format!(" [default: {before_default}{default}]"),
        (_, None, otherwise) => format!(" [default: {before_default}{otherwise}]"),
    };
    let words = row.words.iter().filter(|word| !word.about.is_empty());
    let words: String = words.map(|Word { name, about }| format!("\n- {name}: {about}")).collect();
    format!("{}{default}{words}", row.about)
}

/// A kind reads what stands alone on a command line as well.
impl<T: Clone + Send + Sync + 'static> TypedValueParser for Kind<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let kind = self.clone();
        (move |text: &str| kind.read(text)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |word: &Word| match word.about {
            "" => PossibleValue::new(word.name),
            about => PossibleValue::new(word.name).help(about),
        };
        (!self.words.is_empty()).then(|| Box::new(self.words.iter().map(value)) as Box<_>)
    }
}

/// What all tables of one file share while they are read.
pub(crate) struct Reading<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
    /// Of files that are included.
    parts: &'a [Part],
    /// Where its lines end, once that is asked for.
    line_ends: OnceCell<Vec<usize>>,
    pub(crate) description: RefCell<Description>,
    /// Whether it is written down what is asked for; nothing is said then.
    pub(crate) is_describing: bool,
    pub(crate) mistakes: RefCell<Vec<SettingError>>,
    /// Whether a default stands in for a value that is wrong or missing.
    pub(crate) has_stand_in: Cell<bool>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(
        file: &'a str,
        text: &'a str,
        parts: &'a [Part],
        description: Description,
        is_describing: bool,
    ) -> Self {
        let mistakes = RefCell::default();
        let has_stand_in = Cell::default();
        let description = RefCell::new(description);
        let line_ends = OnceCell::new();
        Self { file, text, parts, line_ends, description, is_describing, mistakes, has_stand_in }
    }

    /// Adds a section to the description, and gives its number.
    pub(crate) fn describe(&self, section: Section) -> usize {
        let mut description = self.description.borrow_mut();
        let path = &section.path;
        assert!(description.section(path).is_none(), "{path} is a section twice");
        description.sections.push(section);
        description.sections.len() - 1
    }

    /// The number of the section at `path`.
    pub(crate) fn number_of(&self, path: &str) -> usize {
        let description = self.description.borrow();
        let number = description.sections.iter().position(|section| section.path == path);
        number.expect("it was described")
    }

    /// Notes a mistake at byte `at` of the file.
    pub(crate) fn note(&self, at: usize, message: String) {
        self.note_at(self.location(at), message);
    }

    /// The same, of what a default stands in for.
    pub(crate) fn stands_in(&self, at: usize, message: String) {
        self.has_stand_in.set(true);
        self.note(at, message);
    }

    /// Byte `at` of the text, in the file that it is of.
    pub(crate) fn location(&self, at: usize) -> Location {
        let (file, from) = match self.parts.iter().rfind(|part| part.from <= at) {
            None => (self.file, 0),
            Some(Part { from, file }) => (file.as_str(), *from),
        };
        // A file may have many thousand places that are asked for: its lines are counted once.
        let line_ends = self
            .line_ends
            .get_or_init(|| self.text.match_indices('\n').map(|(at, _)| at).collect());
        let ends_before = |at: usize| line_ends.partition_point(|end| *end < at);
        let start = line_ends[..ends_before(at)].last().map_or(0, |end| end + 1).max(from);
        let column = self.text.get(start..at).unwrap_or_default().chars().count() + 1;
        let line = ends_before(at) - ends_before(from) + 1;
        Location::File { file: file.to_owned(), line, column }
    }

    pub(crate) fn note_at(&self, location: Location, message: String) {
        self.mistakes.borrow_mut().push(SettingError { location, message });
    }
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
            Self::File(value) => is_on(value),
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

/// The text of a single value, as a flag would have it; none for tables, lists and dates.
fn scalar(value: &DeValue<'_>) -> Option<String> {
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
pub(crate) fn found(value: &DeValue<'_>) -> String {
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
