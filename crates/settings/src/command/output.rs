//! The only place that writes to the terminal: results to standard output, the rest to
//! standard error, the answer to a wrong command line too. A reader that went away (`| head`) ends the program quietly.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use crate::command::foreign;
use crate::{did_you_mean, shown as shown_value};

/// A command that could not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// What went wrong and what would be right.
    pub message: String,
    /// What the process ends with.
    pub code: ExitCode,
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err as they are")]
impl Failure {
    /// What was asked for could not be done: exit code 1.
    pub fn failed(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: ExitCode::from(1) }
    }

    /// Wrong flags or a wrong file of settings: exit code 2.
    pub fn usage(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: ExitCode::from(2) }
    }
}

/// The exit code of a command that a signal ended: what a shell shows for a program that does not
/// catch it.
pub fn ended_by(signal: i32) -> ExitCode {
    const BASE: i32 = 128;
    ExitCode::from(u8::try_from(BASE + signal).unwrap_or(u8::MAX))
}

/// An error with all that caused it, in one line. Some libraries name the cause in the error itself: it stands there once.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |words, cause| {
        if words.contains(&cause) { words } else { format!("{words}: {cause}") }
    })
}

/// Prints a result, with a line's end where it has none.
///
/// # Errors
/// Standard output cannot be written; a reader that went away is none.
pub fn result(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    match write!(stdout, "{text}{newline}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a remark beside the result.
pub fn remark(text: &str) {
    // A closed standard error is the user's choice.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints what went wrong.
pub fn error(text: &str) {
    let is_colourful = std::io::stderr().is_terminal() && takes_colours();
    let (red, plain) = if is_colourful { ("\x1b[31;1m", "\x1b[0m") } else { ("", "") };
    remark(&format!("{red}error:{plain} {text}"));
}

/// Columns of the terminal behind standard output. A pipe or a file has no width: nothing that goes
/// there is cut or broken.
pub fn width_chars() -> usize {
    const NARROWEST: usize = 60;
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map_or(usize::MAX, |size| usize::from(size.ws_col).max(NARROWEST))
}

/// A name and what is said of it, over as many lines of the terminal as that takes.
pub fn entry(name: &str, width: usize, about: &str) -> String {
    let mut text = format!("  {name:<width$}");
    let indent = width + 2;
    let mut column = text.chars().count();
    for (index, word) in about.split_whitespace().enumerate() {
        let len = word.chars().count();
        if index > 0 && column + 1 + len > width_chars() {
            text.push_str(&format!("\n{:indent$}", ""));
            column = indent;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += len;
    }
    text + "\n"
}

/// A text for people, in the letters that their locale has: signs of our own give way to ASCII where
/// it is not UTF-8. Results for programs are never changed.
pub fn shown(text: &str) -> String {
    if is_utf8() { text.to_owned() } else { in_ascii(text) }
}

/// The first of these that is set decides (locale(7)). Where none is, ASCII was not asked for.
fn is_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// What takes more letters than it had takes them from the gap behind it, so that columns stay below each other.
fn in_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Letters too many by now, in this line.
    let mut over = 0;
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        if sign == ' ' && over > 0 && signs.peek() == Some(&' ') {
            over -= 1;
            continue;
        }
        over = match sign {
            '\n' => 0,
            '±' | '≥' | '≤' | '→' | '←' => over + 1,
            '…' => over + 2,
            _ => over,
        };
        match sign {
            '±' => out.push_str("+-"),
            '·' | '–' | '—' => out.push('-'),
            '×' => out.push('x'),
            'µ' => out.push('u'),
            '▲' => out.push('^'),
            '▼' => out.push('v'),
            '≥' => out.push_str(">="),
            '≤' => out.push_str("<="),
            '…' => out.push_str("..."),
            '→' => out.push_str("->"),
            '←' => out.push_str("<-"),
            '\u{2581}'..='\u{258f}' => out.push('#'),
            _ => out.push(sign),
        }
    }
    out
}

/// Whether this process group has the keyboard of `terminal`; not where the group lies outside of the PID namespace, for
/// which nobody can know it.
pub fn is_in_front(terminal: &impl AsFd) -> bool {
    let front = rustix::termios::tcgetpgrp(terminal).ok();
    let front = front.map(|group| group.as_raw_nonzero().get().unsigned_abs());
    front.is_some() && front == pollux_sys::process::group().map(std::num::NonZeroU32::get)
}

/// Whether colours make sense on standard output (<https://no-color.org>).
pub fn is_colourful() -> bool {
    std::io::stdout().is_terminal() && takes_colours()
}

/// Whether colours are wanted at all, as far as the environment says.
pub fn takes_colours() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    is_wanted && !is_dumb
}

/// Lets values begin with a minus sign where they are numbers, so that `-c -5` is a wrong number
/// and not a wrong flag.
pub fn with_negative_numbers(command: Command) -> Command {
    let takes = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// Answers a wrong command line in one line: which flag, which value, what was expected. A request for help is not a mistake: it is printed as any other result.
/// clap finds the mistakes and words those of its own; values that a parser refused are worded alike for all
/// commands, flags of other programs are answered with those here, and hints that would mislead are left out. `command` is
/// the command line that refused.
///
/// # Errors
/// The mistake in one line, or help that cannot be written. What clap words itself ends the process
/// with exit code 2.
pub fn answer(error: clap::Error, command: &mut Command) -> Result<ExitCode, Failure> {
    if !error.use_stderr() {
        let text = error.render();
        let text = if is_colourful() { text.ansi().to_string() } else { text.to_string() };
        return result(&text).map(|()| ExitCode::SUCCESS);
    }
    let line = in_one_line(&error).or_else(|| of_another_program(&error));
    match line.or_else(|| of_its_twin(&error, command)) {
        Some(line) => Err(Failure::usage(line)),
        None => with_right_hints(error, command).format(command).exit(),
    }
}

/// Commands that start one kind of server each, with the other one and what that is for.
const TWINS: [(&str, &str, &str); 2] = [
    ("serve", "proxy", "which passes requests on to backends"),
    ("proxy", "serve", "which answers requests by itself"),
];

/// The line about a flag that is for the other kind of server; none for other mistakes.
fn of_its_twin(error: &clap::Error, command: &Command) -> Option<String> {
    let (path, flag) = refused(error)?;
    let name = path.split(' ').nth(1)?;
    let (_, other, what) = TWINS.iter().find(|(own, ..)| *own == name)?;
    let is_of_twin = |arg: &Arg| match flag.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| flag == format!("-{short}")),
    };
    let mut of_twin = command.find_subcommand(other)?.get_arguments();
    let is_known = of_twin.any(|arg| !arg.is_hide_set() && is_of_twin(arg));
    is_known.then(|| {
        format!("{flag}: pollux {name} has no such flag; it is one of pollux {other}, {what}")
    })
}

/// The line about a flag that another program has; none for other mistakes.
fn of_another_program(error: &clap::Error) -> Option<String> {
    let (path, flag) = refused(error)?;
    foreign::answer(&path, &flag)
}

/// A flag that is not known, behind the command that it was given to: `pollux lab run …`.
fn refused(error: &clap::Error) -> Option<(String, String)> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let usage = usage.to_string();
    // "Usage: pollux lab run --arm <ARM> <JOB>"
    let path = usage.lines().next()?.trim_start_matches("Usage: ").to_owned();
    Some((path, flag.split(['=', ' ']).next().unwrap_or(flag).to_owned()))
}

/// The line about a value that was refused; none for other mistakes.
fn in_one_line(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg)?;
    let value = text(ContextKind::InvalidValue)?;
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
    Some(format!("{} {}: {why}", flag_name(flag), shown_value(value)))
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

/// Takes away the hints to commands that no help shows, to flags that are not near, and to put a flag behind `--`,
/// which is right for nothing here.
fn with_right_hints(mut error: clap::Error, command: &Command) -> clap::Error {
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
    let flag = flag.split(['=', ' ']).next().unwrap_or(flag);
    let is_near = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(similar)) => foreign::is_near(flag, similar),
        _ => true,
    };
    if !is_near {
        error.remove(ContextKind::SuggestedArg);
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
    fn columns_stay_below_each_other_without_signs_of_our_own() {
        let table = "a  13.0 ± 1 %   x\nb  12 µs        y\nc  ≥ 5 → 7      z\n± 3\n";
        let plain = "a  13.0 +- 1 %  x\nb  12 us        y\nc  >= 5 -> 7    z\n+- 3\n";
        assert_eq!(in_ascii(table), plain);
    }

    #[test]
    fn a_cause_that_the_error_names_already_stands_there_once() {
        use std::io::{Error, ErrorKind};

        #[derive(Debug)]
        struct Outer(&'static str, Error);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.1)
            }
        }
        let cause = || Error::new(ErrorKind::ConnectionRefused, "refused");
        assert_eq!(error_chain(&Outer("no broker", cause())), "no broker: refused");
        assert_eq!(error_chain(&Outer("IO error: refused", cause())), "IO error: refused");
    }

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
