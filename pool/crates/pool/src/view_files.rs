//! `pollux pool viewc`: headers of C and compiled files of views.
//!
//! Every file is read and checked before the first is written, so a mistake leaves no half of them behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pollux_settings::command::output::{self, Failure};
use pollux_xatmi::field_table::FieldTable;
use pollux_xatmi::view::{ViewFile, c_header};

use crate::flags::ViewFlags;

/// Reads all files, then writes two for each.
pub(crate) fn run(flags: &ViewFlags) -> Result<ExitCode, Failure> {
    let files: Vec<ViewFile> = flags
        .files
        .iter()
        .map(|path| ViewFile::open(path))
        .collect::<Result<_, _>>()
        .map_err(Failure::failed)?;
    if !flags.is_without_fields {
        files.iter().try_for_each(check_fields)?;
    }
    let folder = flags.folder.as_deref().unwrap_or(Path::new(""));
    let mut written: Vec<(PathBuf, String)> = Vec::new();
    for file in &files {
        let stem = file.path.file_stem().unwrap_or_default().to_string_lossy();
        let header = format!("{stem}.h");
        let text = c_header(file, &header);
        // Makefiles look for the header beside them, whatever folder they name for the compiled file.
        let compiled = folder.join(format!("{stem}.V"));
        for (path, text) in [(PathBuf::from(header), text), (compiled, file.compiled())] {
            if written.iter().any(|(other, _)| *other == path) {
                let path = path.display();
                return Err(Failure::usage(format!("two files would both be written to {path}")));
            }
            written.push((path, text));
        }
    }
    for (path, text) in &written {
        let failed =
            |error| Failure::failed(format!("{}: cannot be written: {error}", path.display()));
        fs::write(path, text).map_err(failed)?;
    }
    for file in &files {
        let views = file.views.iter().map(|view| format!("{} ({} bytes)", view.name, view.size));
        output::remark(&format!(
            "{}: {}",
            file.path.display(),
            views.collect::<Vec<_>>().join(", ")
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the field tables have all fields that members stand for.
fn check_fields(file: &ViewFile) -> Result<(), Failure> {
    let mut table = None;
    for view in &file.views {
        for member in &view.members {
            let Some(field) = &member.field else { continue };
            if table.is_none() {
                let read = FieldTable::from_env();
                table = Some(read.map_err(|error| {
                    Failure::failed(format!("{error}; -n leaves fields unchecked"))
                })?);
            }
            if table.as_ref().is_some_and(|table| table.id(field).is_none()) {
                let path = file.path.display();
                let view = &view.name;
                let member = &member.name;
                return Err(Failure::failed(format!(
                    "{path}: {view}.{member}: no field table has {field}; -n leaves fields unchecked"
                )));
            }
        }
    }
    Ok(())
}
