//! The axes of the experiments as flags, made from the lab's own table.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use pollux_lab::experiment::{Axis, AxisKind, Experiment};

/// The axes that were given, each with its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct AxisFlags(pub(crate) Vec<(String, Vec<String>)>);

impl Args for AxisFlags {
    fn augment_args(command: Command) -> Command {
        axes().fold(command, |command, (experiment, axis)| command.arg(flag(experiment, axis)))
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

fn axes() -> impl Iterator<Item = (Experiment, &'static Axis)> {
    Experiment::ALL
        .into_iter()
        .flat_map(|experiment| experiment.axes().iter().map(move |axis| (experiment, axis)))
}

fn flag(experiment: Experiment, axis: &'static Axis) -> Arg {
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
        .help_heading("Axes (a list makes a point of each value)");
    match axis.kind {
        AxisKind::Switch => arg.action(ArgAction::SetTrue),
        AxisKind::Word(_) => arg.action(ArgAction::Append).value_delimiter(',').value_name("WORD"),
        AxisKind::Either => arg.action(ArgAction::Append).value_delimiter(',').value_name("BOOL"),
        AxisKind::Count(..) => arg.action(ArgAction::Append).value_delimiter(',').value_name("N"),
    }
}
