//! Field tables: the names of fields, as `.fd` files give them.
//!
//! Programs look names and ids up; `pollux fld` writes C headers and Rust modules. Only
//! [`FieldTable::from_env`], [`FieldTable::open`] and [`FieldFile::open`] read files.
//!
//! ```text
//! $/* copied to the header */
//! *base 1000
//! # name     number  type     flag  comment
//! T_ACCNUM   1       string   -     number of the account
//! ```
//!
//! The id of a field is its type above the number, which is base and number of its line together.

mod emit;
mod error;
mod parse;
mod table;

pub use emit::{c_header, rust_module};
pub use error::{Problem, TableError};
pub use parse::{Definition, FieldFile};
pub use table::{FOLDERS_VARIABLE, FieldTable, TABLES_VARIABLE, files_of_env};
