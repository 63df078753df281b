//! `pollux serve password`: a line for a file of users, of a password that is typed without being shown.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::thread::JoinHandle;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::output::{self, Failure};

/// Makes a line for a file of users.
pub(crate) fn password(name: &str) -> Result<ExitCode, Failure> {
    let password = read().map_err(Failure::failed)?;
    let line = pollux_server::password_line(name, &password).map_err(Failure::usage)?;
    output::result(&format!("{line}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The first line of standard input; at a terminal it is asked for, and not shown.
fn read() -> io::Result<String> {
    let prompt = tcgetattr(io::stdin()).ok().map(Prompt::begin).transpose()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    if let Some(prompt) = prompt {
        prompt.end()?;
    }
    read?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

/// A terminal that does not show what is typed: it does again before a signal ends or stops the program.
struct Prompt {
    before: Termios,
    signals: Handle,
    watches: JoinHandle<()>,
}

impl Prompt {
    fn begin(before: Termios) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGTSTP])?;
        let handle = signals.handle();
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // Before the signals are acted on: what comes earlier waits for its turn.
        hide(&hidden)?;
        let shown = before.clone();
        let watches = std::thread::spawn(move || {
            for signal in signals.forever() {
                // A terminal that is gone has nothing to show.
                let _gone = show(&shown);
                let _unknown = emulate_default_handler(signal);
                // It was stopped, and continues.
                let _gone = hide(&hidden);
            }
        });
        Ok(Self { before, signals: handle, watches })
    }

    fn end(self) -> io::Result<()> {
        self.signals.close();
        self.watches.join().expect("it does not panic");
        show(&self.before)
    }
}

fn hide(hidden: &Termios) -> io::Result<()> {
    tcsetattr(io::stdin(), OptionalActions::Now, hidden)?;
    write!(io::stderr(), "password: ")
}

fn show(shown: &Termios) -> io::Result<()> {
    tcsetattr(io::stdin(), OptionalActions::Now, shown)?;
    writeln!(io::stderr())
}
