//! A command line as data: what a program prints of its own commands, so that another one that hands words over to it
//! can complete them.
//!
//! Only what completion scripts are made of: names, values that are offered, one line of help. It reads no command
//! line; the program that it is of does.

use clap::builder::{PossibleValue, PossibleValuesParser, StyledStr};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// A command with its flags and the commands below it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outline {
    name: String,
    about: Option<String>,
    flags: Vec<Flag>,
    commands: Vec<Self>,
}

/// A flag, or a word without one.
#[derive(Debug, Serialize, Deserialize)]
struct Flag {
    name: String,
    short: Option<char>,
    /// Further ones that help shows.
    shorts: Vec<char>,
    long: Option<String>,
    help: Option<String>,
    is_hidden: bool,
    /// Whether it may stand there more than once.
    is_repeated: bool,
    /// Fewest and most values of one occurrence; none for a switch.
    values: Option<(usize, usize)>,
    value_names: Vec<String>,
    /// The values that there are, each with what it means, where they can be listed.
    offered: Vec<(String, Option<String>)>,
    /// What kind of thing else is completed, such as a path, in clap's words.
    hint: String,
}

impl Outline {
    /// That of `command`, which is not built yet, without commands that it hides.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        Self {
            name: command.get_name().to_owned(),
            about: command.get_about().map(ToString::to_string),
            flags: command.get_arguments().map(Flag::of).collect(),
            commands: command
                .get_subcommands()
                .filter(|inner| !inner.is_hide_set())
                .map(Self::of)
                .collect(),
        }
    }

    /// A command line that is completed alike.
    #[must_use]
    pub fn command(self) -> Command {
        let mut command = Command::new(self.name);
        if let Some(about) = self.about {
            command = command.about(about);
        }
        command
            .args(self.flags.into_iter().map(Flag::arg))
            .subcommands(self.commands.into_iter().map(Self::command))
    }
}

impl Flag {
    fn of(arg: &Arg) -> Self {
        let offered = arg.get_possible_values().into_iter();
        let offered = offered.filter(|value| !value.is_hide_set());
        let help = |help: &StyledStr| help.to_string();
        Self {
            name: arg.get_id().to_string(),
            short: arg.get_short(),
            shorts: arg.get_visible_short_aliases().unwrap_or_default(),
            long: arg.get_long().map(str::to_owned),
            help: arg.get_help().map(help),
            is_hidden: arg.is_hide_set(),
            is_repeated: matches!(arg.get_action(), ArgAction::Append),
            values: values_of(arg),
            value_names: arg
                .get_value_names()
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect(),
            offered: offered
                .map(|value| (value.get_name().to_owned(), value.get_help().map(help)))
                .collect(),
            hint: format!("{:?}", arg.get_value_hint()),
        }
    }

    fn arg(self) -> Arg {
        let mut arg = Arg::new(self.name).short(self.short).visible_short_aliases(self.shorts);
        arg = arg.hide(self.is_hidden);
        if let Some(long) = self.long {
            arg = arg.long(long);
        }
        if let Some(help) = self.help {
            arg = arg.help(help);
        }
        let Some((least, most)) = self.values else { return arg.action(ArgAction::SetTrue) };
        arg = arg.num_args(least..=most).value_names(self.value_names);
        if self.is_repeated {
            arg = arg.action(ArgAction::Append);
        }
        if !self.offered.is_empty() {
            let value = |(name, help): (String, Option<String>)| {
                let value = PossibleValue::new(name);
                if let Some(help) = help { value.help(help) } else { value }
            };
            arg = arg.value_parser(PossibleValuesParser::new(self.offered.into_iter().map(value)));
        }
        match self.hint.parse::<ValueHint>() {
            Ok(hint) => arg.value_hint(hint),
            // Of a later version: the word is completed without.
            Err(_) => arg,
        }
    }
}

/// How many values an occurrence has; none where it is a switch.
fn values_of(arg: &Arg) -> Option<(usize, usize)> {
    let range = arg.get_num_args().unwrap_or_default();
    arg.get_action().takes_values().then(|| (range.min_values(), range.max_values()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command line with everything that an outline keeps.
    fn command() -> Command {
        let mode = Arg::new("mode").long("mode").short('m').value_parser(["fast", "slow"]);
        let file = Arg::new("file").long("file").value_name("FILE").help("What is read");
        let file = file.value_parser(clap::value_parser!(std::path::PathBuf));
        let switch = Arg::new("json").long("json").action(ArgAction::SetTrue).help("As JSON");
        let hidden = Arg::new("inner").long("inner").hide(true).action(ArgAction::SetTrue);
        let start = Command::new("start").about("Start it").args([mode, file, switch, hidden]);
        let names = Arg::new("names").value_name("NAME").action(ArgAction::Append);
        let stop = Command::new("stop").about("Stop it").arg(names);
        Command::new("tool").about("A tool").subcommands([start, stop])
    }

    #[test]
    fn a_command_is_completed_alike_after_a_journey_as_text() {
        use clap_complete::Shell::{Bash, Fish, Zsh};
        let script = |shell, mut command: Command| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "tool", &mut script);
            String::from_utf8(script).expect("text")
        };
        for shell in [Bash, Zsh, Fish] {
            let text = serde_json::to_string(&Outline::of(&command())).expect("JSON");
            let read: Outline = serde_json::from_str(&text).expect("an outline");
            let own = script(shell, command());
            let read = script(shell, read.command());
            assert!(own.contains("start") && own.contains("fast"), "{own}");
            assert_eq!(read, own, "{shell}");
        }
    }
}
