//! The flags of `fld`, which makes headers and modules of field tables.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

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
