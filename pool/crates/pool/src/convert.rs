//! `pollux pool convert`: the ndrxconfig.xml of a UBBCONFIG, with warnings on standard error.

use std::path::Path;
use std::process::ExitCode;

use pollux_settings::command::output::{self, Failure};
use pollux_xatmi::ubbconfig::{convert, quoted, read_file};

use crate::flags::ConvertFlags;

/// Reads the file and writes the other.
pub(crate) fn run(flags: &ConvertFlags) -> Result<ExitCode, Failure> {
    let name = flags.file.display().to_string();
    let text = read_file(&flags.file);
    let text = text.map_err(|error| {
        Failure::failed(format!("{name}: {error}; expected the path of a UBBCONFIG"))
    })?;
    let converted = convert(&name, &text, flags.machine.as_deref(), &read_file);
    let converted = converted.map_err(|error| {
        for warning in &error.warnings {
            output::remark(&format!("warning: {warning}"));
        }
        Failure::usage(error)
    })?;
    for warning in &converted.warnings {
        output::remark(&format!("warning: {warning}"));
    }
    for note in converted.notes.iter().filter(|_| !flags.is_without_notes) {
        output::remark(&format!("note: {note}"));
    }
    let servers = converted.servers;
    let warnings = converted.warnings.len();
    match &flags.output {
        None => output::result(&converted.xml)?,
        Some(path) => write(path, &converted.xml)?,
    }
    if let Some(path) = &flags.environment {
        let mut text = String::new();
        if let Some(output) = &flags.output {
            let whole = std::path::absolute(output).unwrap_or_else(|_| output.clone());
            text = format!("export NDRX_CONFIG={}\n", quoted(&whole.to_string_lossy()));
        }
        write(path, &(text + &converted.environment))?;
    }
    output::remark(&format!("{name}: {servers} <server>, {warnings} warnings"));
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::failed(format!("{}: cannot be written: {error}", path.display())))
}
