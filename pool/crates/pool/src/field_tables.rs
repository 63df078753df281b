//! `pollux fld`: C headers or Rust modules of field tables.
//!
//! Every table is read and checked before the first file is written, so a mistake leaves no half of them behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pollux_settings::command::output::{self, Failure};
use pollux_xatmi::field_table::{
    FieldFile, FieldTable, ManualLanguage, TableError, Twice, c_header, files_of_env, rust_module,
};

use crate::flags::{FldFlags, Language, MkfldhdrFlags};

/// Reads all tables, then writes a file for each.
pub(crate) fn run(flags: &FldFlags) -> Result<ExitCode, Failure> {
    let files = read(&flags.tables, Twice::Refused)?;
    write_all(&files, flags.folder.as_deref(), |table| outcome(flags, table))
}

/// The same as `mkfldhdr` of the manuals; it makes no folder.
pub(crate) fn run_manual(flags: &MkfldhdrFlags) -> Result<ExitCode, Failure> {
    let api = std::env::var("NDRX_APIFLAGS").unwrap_or_default();
    let is_free = api.split([',', ';', ' ']).any(|flag| flag == "ubf_dupfidok");
    let files = read(&flags.tables, if is_free { Twice::LaterCounts } else { Twice::Refused })?;
    let language = ManualLanguage::from_number(flags.language).unwrap_or(ManualLanguage::C);
    write_all(&files, None, |table| {
        let path = flags.folder.join(language.file_name(&table.path));
        (path, language.text(table, &flags.package))
    })
}

/// The tables that are named, else those of the environment.
fn read(tables: &[PathBuf], twice: Twice) -> Result<Vec<FieldFile>, Failure> {
    let paths = match tables {
        [] => files_of_env(|name| std::env::var_os(name)).map_err(failure)?,
        paths => paths.to_vec(),
    };
    let open = |path: &PathBuf| FieldFile::open_with(path, twice);
    let files: Vec<FieldFile> =
        paths.iter().map(open).collect::<Result<_, _>>().map_err(failure)?;
    if twice == Twice::Refused {
        let mut together = FieldTable::new();
        files.iter().try_for_each(|file| together.insert(file)).map_err(failure)?;
    }
    Ok(files)
}

/// Writes a file for each table, once it is sure that no two are the same file; makes `folder` before.
fn write_all(
    files: &[FieldFile],
    folder: Option<&Path>,
    outcome: impl Fn(&FieldFile) -> (PathBuf, String),
) -> Result<ExitCode, Failure> {
    let mut outcomes: Vec<Outcome<'_>> = Vec::new();
    for table in files {
        let (path, text) = outcome(table);
        if let Some(other) = outcomes.iter().find(|other| other.path == path) {
            let one = other.table.path.display();
            let two = table.path.display();
            let path = path.display();
            return Err(Failure::usage(format!("{one} and {two} would both be written to {path}")));
        }
        outcomes.push(Outcome { table, path, text });
    }
    if let Some(folder) = folder {
        fs::create_dir_all(folder).map_err(|error| unwritten(folder, &error))?;
    }
    outcomes.iter().try_for_each(Outcome::write)?;
    Ok(ExitCode::SUCCESS)
}

/// What is written for a table.
struct Outcome<'a> {
    table: &'a FieldFile,
    path: PathBuf,
    text: String,
}

impl Outcome<'_> {
    fn write(&self) -> Result<(), Failure> {
        fs::write(&self.path, &self.text).map_err(|error| unwritten(&self.path, &error))?;
        let fields = self.table.definitions().count();
        let path = self.path.display();
        output::remark(&format!("{path}: {fields} fields of {}", self.table.path.display()));
        Ok(())
    }
}

/// Where a table goes to, and as what.
fn outcome(flags: &FldFlags, file: &FieldFile) -> (PathBuf, String) {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let (name, text) = match flags.lang {
        Language::C => (format!("{name}.h"), c_header(file)),
        Language::Rust => {
            (format!("{}.rs", name.chars().map(word).collect::<String>()), rust_module(file))
        }
    };
    let folder = flags.folder.as_deref().or(file.path.parent()).unwrap_or(Path::new(""));
    (folder.join(name), text)
}

fn failure(error: TableError) -> Failure {
    if error.problem.is_of_environment() {
        Failure::usage(format!("{error}; or name tables: pollux fld bank.fd"))
    } else {
        Failure::failed(error)
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: cannot be written: {error}", path.display()))
}
