//! The only place that writes to the terminal: results to standard output, the rest to
//! standard error. A reader that went away (`| head`) ends the program quietly.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

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

/// An error with all that caused it, in one line.
#[must_use]
pub fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let words: Vec<String> = causes.map(ToString::to_string).collect();
    std::iter::once(error.to_string()).chain(words).collect::<Vec<_>>().join(": ")
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

fn in_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
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
