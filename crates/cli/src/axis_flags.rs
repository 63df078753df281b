//! The axes of the experiments as flags, made from the lab's own table.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use pollux_lab::axis::{Axis, AxisKind};
use pollux_lab::experiments::{self, Experiment};

use crate::values::Offered;

/// The axes that were given, each with its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct AxisFlags(pub(crate) Vec<(String, Vec<String>)>);

impl Args for AxisFlags {
    fn augment_args(command: Command) -> Command {
        axes().fold(command, |command, (experiment, axis)| {
            command.arg(flag(experiment, axis)).args(flag_without(axis))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AxisFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = axes().filter_map(|(_, axis)| {
            let values = match axis.kind {
                AxisKind::Switch => matches.get_flag(axis.name).then(|| vec!["true".to_owned()])?,
                AxisKind::Either if matches.get_flag(&without(axis)) => vec!["false".to_owned()],
                _ => matches.get_many::<String>(axis.name)?.cloned().collect(),
            };
            Some((axis.name.to_owned(), values))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn axes() -> impl Iterator<Item = (&'static dyn Experiment, &'static Axis)> {
    experiments::ALL
        .into_iter()
        .flat_map(|experiment| experiment.axes().iter().map(move |axis| (experiment, axis)))
}

/// What `pollux lab axes` prints: the axes of one experiment, or of all.
pub(crate) fn text(only: Option<&dyn Experiment>) -> String {
    let mut text = String::new();
    for experiment in
        experiments::ALL.into_iter().filter(|each| only.is_none_or(|one| one == *each))
    {
        let blank = if text.is_empty() { "" } else { "\n" };
        text += &format!("{blank}{experiment}: {}\n", experiment.about());
        for axis in experiment.axes() {
            let original = axis.original.map(|option| format!("; {option} of the original"));
            text += &format!(
                "  --{:<16} {} ({}{}) [default: {}]\n",
                axis.flag(),
                axis.about,
                axis.accepts(),
                original.unwrap_or_default(),
                axis.default.join(","),
            );
        }
    }
    text
}

/// The flag that is short for `false`.
fn without(axis: &Axis) -> String {
    format!("no-{}", axis.flag())
}

/// That flag, of an axis that has it.
fn flag_without(axis: &'static Axis) -> Option<Arg> {
    let arg = Arg::new(without(axis)).long(without(axis)).action(ArgAction::SetTrue).hide(true);
    (axis.kind == AxisKind::Either).then(|| arg.conflicts_with(axis.name))
}

fn list(arg: Arg, value: &'static str) -> Arg {
    let arg = arg.action(ArgAction::Append).value_delimiter(',').value_name(value);
    arg.hide_possible_values(true)
}

fn flag(experiment: &dyn Experiment, axis: &'static Axis) -> Arg {
    let original = axis.original.map(|option| format!("; {option} of the original"));
    let default = axis.default.join(",");
    let help = format!(
        "{experiment}: {} ({}{}) [default: {default}]",
        axis.about,
        axis.accepts(),
        original.unwrap_or_default()
    );
    let arg = Arg::new(axis.name)
        .long(axis.flag())
        .help(help)
        .help_heading("Axes (a list makes a point of each value)")
        // Some thirty flags: `pollux lab axes` shows them, completions and the manual know them.
        .hide_short_help(true)
        .hide_long_help(true);
    match axis.kind {
        AxisKind::Switch => arg.action(ArgAction::SetTrue),
        AxisKind::Word(words) => {
            list(arg, "WORD").value_parser(Offered::names(words.iter().copied()))
        }
        AxisKind::Either => list(arg, "BOOL").value_parser(Offered::names(["true", "false"])),
        AxisKind::Count(..) | AxisKind::WordOrCount(..) => list(arg, "N"),
        AxisKind::Path => list(arg, "PATH"),
    }
}
