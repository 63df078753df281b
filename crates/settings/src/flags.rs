//! The flags of a command for clap, made from its table.
//!
//! clap divides the words of a command line and knows which flags there are; what their values mean
//! is read by the table, as that of a file is. So all mistakes are reported at once, and in one way.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::describe::{GivenBy, Row, Takes, describe};
use crate::given::Given;
use crate::keys::Table;
use crate::kind::{Kind, Word, parsed};
use crate::mistake::Mistakes;

const CONFIG: &str = "config";

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
pub type FlagsAlone<T> = Flags<T, false>;

impl<T: Table, const HAS_FILE: bool> Flags<T, HAS_FILE> {
    /// What was said, by flags and file together.
    ///
    /// # Errors
    /// When the file cannot be read, or every mistake of both.
    pub fn read(&self) -> Result<T, Mistakes> {
        self.given.clone().over(self.file()?).read()
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
    pub fn file(&self) -> Result<Given, Mistakes> {
        let file = self.config.as_deref().map(|path| Given::from_file(path, "--config"));
        Ok(file.transpose()?.unwrap_or_default())
    }

    /// What was said by flags, and by this text of a file with this name in place of the file itself:
    /// for a program that was started with the flags of another one, and has the file from it.
    ///
    /// # Errors
    /// Every mistake of both.
    pub fn read_with(&self, file: Option<(&str, &str)>) -> Result<T, Mistakes> {
        let file = file.map_or_else(Given::default, |(name, text)| Given::from_toml(text, name));
        self.given.clone().over(file).read()
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
    let arg = match row.heading.is_empty() {
        true => arg,
        false => arg.help_heading(row.heading.to_string()),
    };
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
