//! Shell completions and manual pages, both made from the command line itself.

use std::path::Path;
use std::process::ExitCode;

use clap::Command;

use crate::help::{self, Sections};
use crate::output::{self, Failure};

/// Prints the completion script of a shell for the program called `name`.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(
    shell: clap_complete::Shell,
    mut command: Command,
    name: &str,
) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one manual page for each command into `folder`, which is made if need be.
///
/// # Errors
/// The folder or a page cannot be written.
pub fn man(folder: &Path, mut command: Command, sections: Sections) -> Result<ExitCode, Failure> {
    let failed =
        |error| Failure::failed(format!("{}: cannot be written: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    command.build();
    for (name, page) in help::manual_pages(&command, sections) {
        std::fs::write(folder.join(format!("{name}.1")), page).map_err(failed)?;
    }
    output::remark(&format!("manual pages written to {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
