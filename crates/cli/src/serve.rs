//! `pollux serve`: flags and file to a configuration, and a server that runs until a signal.
//!
//! The flags are made from the server's own table of settings, so flags, keys of the file and
//! defaults cannot differ.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::TypedValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use pollux_engine::{Signal, Signals};
use pollux_server::Server;
use pollux_server::config::{Given, SETTINGS, Setting, Takes};

use crate::output::{self, Failure};
use crate::values;

/// The setting that is written without a flag.
const POSITIONAL: &str = "dir";
const CONFIG: &str = "config";

/// The flags of `pollux serve`.
#[derive(Clone, Debug)]
pub(crate) struct ServeFlags {
    config: Option<PathBuf>,
    given: Given,
}

impl Args for ServeFlags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Read settings from this TOML file; flags win over it");
        SETTINGS.iter().fold(command.arg(config), |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Given::default();
        for setting in SETTINGS {
            match setting.takes {
                Takes::Switch if matches.get_flag(setting.name) => {
                    given.flag(setting.name, vec!["true".to_owned()]);
                }
                Takes::Switch => {}
                Takes::Value | Takes::List => {
                    if let Some(texts) = matches.get_many::<String>(setting.name) {
                        given.flag(setting.name, texts.cloned().collect());
                    }
                }
            }
        }
        Ok(Self { config: matches.get_one::<PathBuf>(CONFIG).cloned(), given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs the server until a signal ends it.
pub(crate) fn run(flags: ServeFlags) -> Result<ExitCode, Failure> {
    let file = flags.config.as_deref().map(Given::from_file).transpose().map_err(Failure::usage)?;
    let given = flags.given.over(file.unwrap_or_default());
    let config = given.build().map_err(Failure::usage)?;
    crate::lab::raise_descriptor_limit().map_err(Failure::failed)?;
    let signals = [Signal::Terminate, Signal::Interrupt, Signal::HangUp];
    let mut signals = Signals::catch(&signals).map_err(Failure::failed)?;
    let failed = |error| Failure::failed(pollux_lab::error::in_words(&error));
    let server = Server::start(&config).map_err(failed)?;
    if !config.is_quiet {
        server.banner().iter().for_each(|line| output::remark(&format!("pollux serve: {line}")));
    }
    server.run(&mut signals).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn flag(setting: &'static Setting) -> Arg {
    let default = match (setting.takes, setting.default) {
        (Takes::Switch, _) | (_, "") => String::new(),
        (_, default) => format!(" [default: {default}]"),
    };
    let (about, values) = setting.about.split_once('\n').unwrap_or((setting.about, ""));
    let values: String = values.lines().map(|line| format!("\n- {line}")).collect();
    let help = format!("{about}{default}{values}");
    let arg = Arg::new(setting.name).help(help).help_heading(setting.heading);
    let arg = match setting.takes {
        Takes::Switch => arg.action(ArgAction::SetTrue),
        Takes::Value => arg.action(ArgAction::Set).value_name(setting.value),
        Takes::List => arg.action(ArgAction::Append).value_name(setting.value),
    };
    // The server reads the texts of flags and file; a name is refused here as by every command.
    let arg = match setting.name {
        "poller" => arg
            .value_parser(values::driver().map(|driver| driver.name().to_owned()))
            .hide_possible_values(true),
        _ => arg,
    };
    if setting.name == POSITIONAL { arg } else { arg.long(setting.name) }
}
