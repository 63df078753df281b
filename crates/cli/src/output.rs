//! The only place that writes to the terminal: results to standard output, the rest to
//! standard error. A reader that went away (`| head`) ends the program quietly.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// A command that could not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What went wrong and what would be right.
    pub(crate) message: String,
    /// See the help.
    pub(crate) code: ExitCode,
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err as they are")]
impl Failure {
    /// A failure of the lab itself.
    pub(crate) fn failed(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: ExitCode::from(1) }
    }

    /// Wrong flags or a wrong job file.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: ExitCode::from(2) }
    }
}

/// Prints a result.
pub(crate) fn result(text: &str) -> Result<(), Failure> {
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
pub(crate) fn remark(text: &str) {
    // A closed standard error is the user's choice.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints what went wrong.
pub(crate) fn error(text: &str) {
    let is_colourful = std::io::stderr().is_terminal() && takes_colours();
    let (red, plain) = if is_colourful { ("\x1b[31;1m", "\x1b[0m") } else { ("", "") };
    remark(&format!("{red}error:{plain} {text}"));
}

/// Columns of the terminal behind standard output; wide enough for tables elsewhere.
pub(crate) fn width_chars() -> usize {
    const ELSEWHERE: usize = 120;
    const NARROWEST: usize = 60;
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map_or(ELSEWHERE, |size| usize::from(size.ws_col).max(NARROWEST))
}

/// Whether colours make sense on standard output (<https://no-color.org>).
pub(crate) fn is_colourful() -> bool {
    std::io::stdout().is_terminal() && takes_colours()
}

fn takes_colours() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    is_wanted && !is_dumb
}
