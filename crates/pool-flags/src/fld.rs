//! The flags of `fld`, which makes headers and modules of field tables.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pollux_command::help::Section;

/// What stands below the flags, and in the manual page.
pub const NOTES: &[Section] = &[
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

/// `pollux fld`, and `pollux pool fld`
#[derive(Debug, Args)]
pub struct FldFlags {
    /// Field tables; without any, those that FLDTBLDIR and FIELDTBLS name
    #[arg(value_name = "TABLE")]
    pub tables: Vec<PathBuf>,
    /// Folder for what is written; it is made if need be [default: that of each table]
    #[arg(short = 'd', long = "dir", value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// What is written
    #[arg(short = 'm', long, value_enum, default_value_t = Language::C)]
    pub lang: Language,
}

/// What is written for a table.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Language {
    /// A header with a define for each field: TABLE.h
    C,
    /// A module with a constant for each field: TABLE.rs, with _ for what a module name cannot have
    Rust,
}
