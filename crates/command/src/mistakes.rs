//! What a wrong command line is answered with: one line that says which flag, which value, and what
//! was expected, as the lab says it of job files.
//!
//! clap finds the mistakes and words those of its own; here values that a parser refused are worded
//! alike for all commands, and hints that would mislead are replaced or left out.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use pollux_settings::{did_you_mean, shown};

use crate::output::{self, Failure};

/// A flag of another program or of an earlier version that people try.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere {
    /// The command that it is tried with, as a usage line has it: `pollux serve`.
    pub command: &'static str,
    /// The flag.
    pub flag: &'static str,
    /// What it means here.
    pub hint: &'static str,
}

/// Lets values begin with a minus sign where they are numbers, so that `-c -5` is a wrong number
/// and not a wrong flag.
pub fn with_negative_numbers(command: Command) -> Command {
    let takes = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// Prints the message. A request for help is not a mistake: it is printed as any other result.
/// `command` is the command line that refused, `elsewhere` the flags that are known to be tried.
///
/// # Errors
/// The mistake in one line, or help that cannot be written. What clap words itself ends the process
/// with exit code 2.
pub fn answer(
    error: clap::Error,
    command: &mut Command,
    elsewhere: &[Elsewhere],
) -> Result<ExitCode, Failure> {
    if !error.use_stderr() {
        let text = error.render();
        let text = if output::is_colourful() { text.ansi().to_string() } else { text.to_string() };
        return output::result(&text).map(|()| ExitCode::SUCCESS);
    }
    match in_one_line(&error) {
        Some(line) => Err(Failure::usage(line)),
        None => with_right_hints(error, command, elsewhere).format(command).exit(),
    }
}

/// The line about a value that was refused; none for other mistakes.
fn in_one_line(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (flag, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let why = match error.kind() {
        ErrorKind::ValueValidation => std::error::Error::source(error)?.to_string(),
        ErrorKind::InvalidValue if !value.is_empty() => {
            let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) else {
                return None;
            };
            let suggestion = did_you_mean(value, valid.iter().map(String::as_str));
            format!("expected {}{suggestion}", valid.join(", "))
        }
        _ => return None,
    };
    Some(format!("{} {}: {why}", flag_name(flag), shown(value)))
}

/// `--connections` of clap's `--connections <N>`, `JOB` of `<JOB>`, `DIR` of `[DIR]`.
fn flag_name(arg: &str) -> &str {
    let name = arg.trim_end_matches("...");
    if name.starts_with('-') {
        return name.split([' ', '[', '=']).next().unwrap_or(name);
    }
    let bare = name.strip_prefix('<').and_then(|name| name.strip_suffix('>'));
    bare.or_else(|| name.strip_prefix('[').and_then(|name| name.strip_suffix(']'))).unwrap_or(name)
}

/// Takes away the hints to commands that no help shows and to put a flag behind `--`, which is right for
/// nothing here, and says what a flag of another program is called.
fn with_right_hints(
    mut error: clap::Error,
    command: &Command,
    elsewhere: &[Elsewhere],
) -> clap::Error {
    if let Some(ContextValue::Strings(near)) = error.remove(ContextKind::SuggestedSubcommand) {
        let near: Vec<_> = near.into_iter().filter(|name| is_shown(command, name)).collect();
        if near.is_empty() {
            error.remove(ContextKind::Suggested);
        } else {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
        }
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    error.remove(ContextKind::Suggested);
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let flag = flag.split(['=', ' ']).next().unwrap_or(flag).to_owned();
    let command = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let is_meant = |known: &&Elsewhere| known.flag == flag && command.contains(known.command);
    if let Some(known) = elsewhere.iter().find(is_meant) {
        error.remove(ContextKind::SuggestedArg);
        let hint = ContextValue::StyledStrs(vec![known.hint.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

/// Whether help shows a command of this name somewhere.
fn is_shown(command: &Command, name: &str) -> bool {
    let mut inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    inner.any(|inner| {
        inner.get_name() == name
            || inner.get_visible_aliases().any(|alias| alias == name)
            || is_shown(inner, name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_called_as_they_are_typed() {
        for (arg, name) in [
            ("--connections <N>", "--connections"),
            ("--profile[=<HZ>]", "--profile"),
            ("<JOB>", "JOB"),
            ("[EXPERIMENT]", "EXPERIMENT"),
            ("<[WEIGHT@]URL>...", "[WEIGHT@]URL"),
        ] {
            assert_eq!(flag_name(arg), name);
        }
    }
}
