//! `pollux fld`: field tables to C headers or Rust modules.
//!
//! Every table is read and checked before the first file is written, so a mistake leaves no half
//! of them behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use pollux_xatmi::field_table::{
    FieldFile, FieldTable, Problem, TableError, c_header, files_of_env, rust_module,
};

use crate::help::Section;
use crate::output::{self, Failure};

/// What stands below the flags, and in the manual page.
pub(crate) const NOTES: &[Section] = &[
    Section::Examples(
        "\
# writes bank.fd.h beside it
pollux fld bank.fd
# writes include/bank.fd.h and include/cards.fd.h
pollux fld bank.fd cards.fd -d include
# writes src/bank_fd.rs
pollux fld --lang rust bank.fd -d src
FLDTBLDIR=fields:../common FIELDTBLS=bank.fd,cards.fd pollux fld -d include",
    ),
    Section::Lines(
        "Field tables (a line for each field; numbers count from the last *base)",
        "\
*base 1000
# name     number  type    flag  comment
T_ACCNUM   1       string  -     number of the account",
    ),
    Section::Text(
        "Types",
        "short long char float double string carray ptr ubf (fml32) view. A line that starts with \
         $ is copied to the header.",
    ),
    Section::Environment(&[
        ("FLDTBLDIR", "folders of field tables, with : between them"),
        ("FIELDTBLS", "field tables to read when none is named, with , between them"),
    ]),
    Section::ExitCodes(&[
        ("0", "done"),
        (
            "1",
            "a table is wrong or cannot be read, or a file cannot be written; nothing or not all \
             was written",
        ),
        ("2", "wrong flags, no tables in flags and environment, or two that would become one file"),
    ]),
];

#[derive(Debug, Args)]
pub(crate) struct FldFlags {
    /// Field tables; without any, those that FLDTBLDIR and FIELDTBLS name
    #[arg(value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// Folder for what is written; it is made if need be [default: that of each table]
    #[arg(short = 'd', long = "dir", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// What is written
    #[arg(short = 'm', long, value_enum, default_value_t = Language::C)]
    lang: Language,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    /// A header with a define for each field: TABLE.h
    C,
    /// A module with a constant for each field: TABLE.rs, with _ for what a module name cannot have
    Rust,
}

/// Reads all tables, then writes a file for each.
pub(crate) fn run(flags: &FldFlags) -> Result<ExitCode, Failure> {
    let paths = match &flags.tables[..] {
        [] => files_of_env(|name| std::env::var_os(name)).map_err(failure)?,
        paths => paths.to_vec(),
    };
    let files: Vec<FieldFile> = paths
        .iter()
        .map(|path| FieldFile::open(path))
        .collect::<Result<_, _>>()
        .map_err(failure)?;
    let mut together = FieldTable::new();
    files.iter().try_for_each(|file| together.insert(file)).map_err(failure)?;
    let mut outcomes: Vec<Outcome<'_>> = Vec::new();
    for table in &files {
        let (path, text) = flags.outcome(table);
        if let Some(other) = outcomes.iter().find(|other| other.path == path) {
            let (one, two) = (other.table.path.display(), table.path.display());
            let path = path.display();
            return Err(Failure::usage(format!("{one} and {two} would both be written to {path}")));
        }
        outcomes.push(Outcome { table, path, text });
    }
    if let Some(folder) = &flags.folder {
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
        let (fields, path) = (self.table.definitions().count(), self.path.display());
        output::remark(&format!("{path}: {fields} fields of {}", self.table.path.display()));
        Ok(())
    }
}

impl FldFlags {
    /// Where a table goes to, and as what.
    fn outcome(&self, file: &FieldFile) -> (PathBuf, String) {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let (name, text) = match self.lang {
            Language::C => (format!("{name}.h"), c_header(file)),
            Language::Rust => {
                (format!("{}.rs", name.chars().map(word).collect::<String>()), rust_module(file))
            }
        };
        let folder = self.folder.as_deref().or(file.path.parent()).unwrap_or(Path::new(""));
        (folder.join(name), text)
    }
}

fn failure(error: TableError) -> Failure {
    match error.problem {
        Problem::NotSet { .. } => {
            Failure::usage(format!("{error}; or name tables: pollux fld bank.fd"))
        }
        _ => Failure::failed(error),
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: cannot be written: {error}", path.display()))
}
