//! Shell completions and manual pages, both made from the command line itself.

use std::path::Path;
use std::process::ExitCode;

use crate::args::command;
use crate::help::manual;
use crate::output::{self, Failure};

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "pollux", &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one manual page for each command into `folder`.
pub(crate) fn man(folder: &Path) -> Result<ExitCode, Failure> {
    let failed =
        |error| Failure::failed(format!("{}: cannot be written: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut command = command();
    command.build();
    for (name, page) in manual::pages(&command) {
        std::fs::write(folder.join(format!("{name}.1")), page).map_err(failed)?;
    }
    output::remark(&format!("manual pages written to {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
