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

mod file;
mod manual;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use thiserror::Error;

pub use file::{Definition, FieldFile, Twice, c_header, rust_module};
pub use manual::ManualLanguage;

use crate::ubf::FieldId;
use file::{NAME_BYTES_MAX, id_taken};

/// The environment variables that name field tables: those of UBF and FML, and those of FML32. Buffers are the same
/// here, so a program may have either or both.
const VARIABLES: [Variables; 2] = [
    Variables { folders: "FLDTBLDIR", tables: "FIELDTBLS" },
    Variables { folders: "FLDTBLDIR32", tables: "FIELDTBLS32" },
];

/// Tables that come with the products that programs were written for. Provisioned environments name them; no program has them
/// beside its own. Where they are in no folder the others count all the same.
const OF_PRODUCTS: [&str; 6] = ["Exfields", "Excompat", "Usysflds", "Usysfl32", "tpadm", "evt_mib"];

/// The first of them, as it is where no folder has it.
const OWN_FIELDS: (&str, &str) = ("Exfields", include_str!("Exfields"));

/// The names of two environment variables.
struct Variables {
    /// Of the folders, a list with colons.
    folders: &'static str,
    /// Of the tables, a list with commas.
    tables: &'static str,
}

/// Names and ids of all fields that a program knows, from one or more files.
#[derive(Clone, Debug, Default)]
pub struct FieldTable {
    fields: Vec<Known>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<FieldId, usize>,
}

#[derive(Clone, Debug)]
struct Known {
    definition: Definition,
    path: PathBuf,
}

impl FieldTable {
    /// A table without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tables that `FLDTBLDIR` and `FIELDTBLS` name, and those of `FLDTBLDIR32` and `FIELDTBLS32`. Of a name that stands
    /// twice, and of an id, the later line counts.
    ///
    /// # Errors
    /// [`TableError`] when neither pair of variables is set, a file is not found or wrong.
    pub fn from_env() -> Result<Self, TableError> {
        Self::named_by(|name| std::env::var_os(name))
    }

    /// The same of any environment; what Enduro/X has of its own is there too, where `Exfields` is named. Where both pairs are set, names and ids of FML32 come first: in Tuxedo the two
    /// know nothing of each other, so what is in the way is passed over in the other one.
    fn named_by(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, TableError> {
        let mut table = Self::of_files_named_by(&variable)?;
        if VARIABLES.iter().any(|pair| pair.names_own_fields(&variable)) {
            let own = FieldFile::parse(Path::new(OWN_FIELDS.0), OWN_FIELDS.1)?;
            table.insert_behind(&own);
        }
        Ok(table)
    }

    fn of_files_named_by(variable: &impl Fn(&str) -> Option<OsString>) -> Result<Self, TableError> {
        let [fml, fml32] = VARIABLES.map(|pair| pair.files(variable));
        match (fml, fml32) {
            (Ok(fml), Ok(fml32)) => {
                let mut table = Self::of_programs(&fml32)?;
                for path in fml.iter().filter(|path| !fml32.contains(path)) {
                    table.insert_behind(&FieldFile::open_with(path, Twice::LaterCounts)?);
                }
                Ok(table)
            }
            (Ok(files), Err(error)) | (Err(error), Ok(files)) => {
                if error.problem.is_of_environment() {
                    Self::of_programs(&files)
                } else {
                    Err(error)
                }
            }
            (Err(fml), Err(fml32)) => Err(first_of(fml, fml32)),
        }
    }

    /// The tables in these files.
    ///
    /// # Errors
    /// [`TableError`] when a file cannot be read or is wrong, or takes an id of another name.
    pub fn open(paths: &[PathBuf]) -> Result<Self, TableError> {
        let mut table = Self::new();
        for path in paths {
            table.insert(&FieldFile::open(path)?)?;
        }
        Ok(table)
    }

    /// The tables in these files, as programs look names and ids up: what stands twice is not refused.
    fn of_programs(paths: &[PathBuf]) -> Result<Self, TableError> {
        let mut table = Self::new();
        for path in paths {
            let file = FieldFile::open_with(path, Twice::LaterCounts)?;
            for definition in file.definitions() {
                let at = table.fields.len();
                table.by_name.insert(definition.name.clone(), at);
                table.by_id.insert(definition.id, at);
                let known = Known { definition: definition.clone(), path: file.path.clone() };
                table.fields.push(known);
            }
        }
        Ok(table)
    }

    /// Takes the fields of a file in; a name that an earlier file has means the field of this one.
    ///
    /// # Errors
    /// [`TableError`] when another name has an id; the fields before it were taken in then.
    pub fn insert(&mut self, file: &FieldFile) -> Result<(), TableError> {
        for definition in file.definitions() {
            let before = self.by_name.get(&definition.name).copied();
            if let Some(&other) = self.by_id.get(&definition.id)
                && before != Some(other)
            {
                let other = &self.fields[other];
                return Err(id_taken(&file.path, definition, &other.path, &other.definition));
            }
            let known = Known { definition: definition.clone(), path: file.path.clone() };
            let at = match before {
                Some(at) => {
                    let replaced = std::mem::replace(&mut self.fields[at], known);
                    self.by_id.remove(&replaced.definition.id);
                    at
                }
                None => {
                    self.fields.push(known);
                    self.fields.len() - 1
                }
            };
            self.by_name.insert(definition.name.clone(), at);
            self.by_id.insert(definition.id, at);
        }
        Ok(())
    }

    /// Takes in what no field has yet of the names and of the ids of a file.
    fn insert_behind(&mut self, file: &FieldFile) {
        for definition in file.definitions() {
            let at = self.fields.len();
            let is_new_name = !self.by_name.contains_key(&definition.name);
            let is_new_id = !self.by_id.contains_key(&definition.id);
            if is_new_name {
                self.by_name.insert(definition.name.clone(), at);
            }
            if is_new_id {
                self.by_id.insert(definition.id, at);
            }
            if is_new_name || is_new_id {
                let known = Known { definition: definition.clone(), path: file.path.clone() };
                self.fields.push(known);
            }
        }
    }

    /// The id of the field with this name.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<FieldId> {
        self.by_name.get(name).map(|&at| self.fields[at].definition.id)
    }

    /// The name of a field.
    #[must_use]
    pub fn name(&self, id: FieldId) -> Option<&str> {
        self.by_id.get(&id).map(|&at| self.fields[at].definition.name.as_str())
    }

    /// All fields, in the order they were taken in.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.fields.iter().map(|known| &known.definition)
    }
}

/// The files that `FLDTBLDIR` and `FIELDTBLS` name, else those of `FLDTBLDIR32` and `FIELDTBLS32`; `variable` reads
/// the environment.
///
/// A table is taken from the first folder that has it. One that comes with a product (`Exfields`, `Usysflds`) may be in none.
///
/// # Errors
/// [`TableError`] when a variable is missing or empty, or a table is in no folder.
pub fn files_of_env(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<PathBuf>, TableError> {
    let [fml, fml32] = VARIABLES.map(|pair| pair.files(&variable));
    match (fml, fml32) {
        (Err(fml), Ok(files)) if fml.problem.is_of_environment() => Ok(files),
        (Err(fml), Err(fml32)) => Err(first_of(fml, fml32)),
        (fml, _) => fml,
    }
}

/// Of the errors of both pairs, the one of the pair that is in use.
fn first_of(fml: TableError, fml32: TableError) -> TableError {
    let is_unset = |error: &TableError| matches!(error.problem, Problem::NoneSet { .. });
    if is_unset(&fml) && !is_unset(&fml32) { fml32 } else { fml }
}

impl Variables {
    /// Whether `Exfields` is among the tables.
    fn names_own_fields(&self, variable: impl Fn(&str) -> Option<OsString>) -> bool {
        let tables = variable(self.tables).unwrap_or_default();
        tables.to_string_lossy().split(',').any(|table| table.trim() == OWN_FIELDS.0)
    }

    /// The files that they name.
    fn files(
        &self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Vec<PathBuf>, TableError> {
        let list = |name, separator| -> Vec<String> {
            let words = variable(name).unwrap_or_default();
            let words = words.to_string_lossy();
            let words = words.split(separator).map(str::trim).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let folders = list(self.folders, ':');
        let tables = list(self.tables, ',');
        let problem = match (folders.is_empty(), tables.is_empty()) {
            (false, false) => {
                let found = tables.iter().map(|table| (table, find(table, self.folders, &folders)));
                let is_missed = |(table, path): &(&String, Result<_, _>)| {
                    path.is_ok() || !OF_PRODUCTS.contains(&table.as_str())
                };
                return found.filter(is_missed).map(|(_, path)| path).collect();
            }
            (true, true) => Problem::NoneSet { folders: self.folders, tables: self.tables },
            (true, false) => {
                let meaning = "the folders of field tables, with colons between";
                Problem::NotSet { name: self.folders, meaning }
            }
            (false, true) => {
                let meaning = "the names of field tables, with commas between";
                Problem::NotSet { name: self.tables, meaning }
            }
        };
        Err(TableError::anywhere(problem))
    }
}

fn find(table: &str, variable: &'static str, folders: &[String]) -> Result<PathBuf, TableError> {
    let mut paths = folders.iter().map(|folder| Path::new(folder).join(table));
    let missing = || Problem::NotFound { variable, folders: folders.join(":") };
    paths.find(|path| path.is_file()).ok_or_else(|| TableError::of(Path::new(table), missing()))
}

impl Problem {
    /// Whether a pair of variables does not name tables.
    #[must_use]
    pub fn is_of_environment(&self) -> bool {
        matches!(self, Self::NotSet { .. } | Self::NoneSet { .. })
    }
}

/// A field table that cannot be used. It prints as `file:line: what is wrong`; C programs see its
/// [`number`](Self::number).
#[derive(Debug, Error)]
pub struct TableError {
    /// The file, when one was at fault.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: Option<usize>,
    pub problem: Problem,
}

/// A mistake in a field table.
#[derive(Debug, Error)]
pub enum Problem {
    /// An environment variable is missing.
    #[error("{name} is not set: it holds {meaning}")]
    NotSet {
        name: &'static str,
        /// The value that it should have.
        meaning: &'static str,
    },
    /// Both environment variables are missing.
    #[error(
        "{folders} is not set, nor is {tables}: they hold the folders of field tables, with colons between, and \
         their names, with commas"
    )]
    NoneSet { folders: &'static str, tables: &'static str },
    /// A table is in none of the folders.
    #[error("no folder of {variable} ({folders}) has this field table")]
    NotFound {
        variable: &'static str,
        /// The folders, as the variable names them.
        folders: String,
    },
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The file is too long.
    #[error("it has more than {most} bytes, which is too much for a field table")]
    TooLong {
        /// The most bytes that it may have.
        most: u64,
    },
    /// A line that starts with `*` is not `*base N`.
    #[error("'{line}' is not a base: expected *base and a number of 0 to {}", FieldId::NUMBER_MAX)]
    BadBase { line: String },
    /// A line has less than name, number and type.
    #[error("'{line}' is not a field: expected NAME NUMBER TYPE, as in T_ACCNUM 1 string")]
    TooFewWords { line: String },
    /// The name is not an identifier of C.
    #[error(
        "'{name}' is not a name of a field: expected letters, digits and _, at most {NAME_BYTES_MAX}, without a digit in front"
    )]
    BadName { name: String },
    /// The second word of a line is not a number.
    #[error("'{text}' is not a number of a field")]
    BadNumber {
        /// The word of the line.
        text: String,
    },
    /// The sum of base and number is outside the range.
    #[error("number {number} (base {base} + {relative}) is outside 1 to {}", FieldId::NUMBER_MAX)]
    OutOfRange {
        number: i64,
        /// The base in force.
        base: i64,
        /// The number of the line.
        relative: i64,
    },
    /// The third word of a line is not a type.
    #[error(
        "'{name}' is not a type: expected short, long, char, float, double, string, carray, ptr, ubf (or fml32) or view"
    )]
    BadType {
        /// The word of the line.
        name: String,
    },
    /// Two fields have one name.
    #[error("the name {name} is taken by a field in {before}")]
    NameTaken {
        name: String,
        /// Where the other stands, as `file:line`.
        before: String,
    },
    /// Two fields have one id.
    #[error("number {number} of type {field_type} is taken by {name} in {before}")]
    IdTaken {
        number: i32,
        field_type: crate::ubf::FieldType,
        /// The other's name.
        name: String,
        /// Where the other stands, as `file:line`.
        before: String,
    },
}

impl TableError {
    fn at(file: &Path, line: usize, problem: Problem) -> Self {
        Self { file: Some(file.to_owned()), line: Some(line), problem }
    }

    fn of(file: &Path, problem: Problem) -> Self {
        Self { file: Some(file.to_owned()), line: None, problem }
    }

    fn anywhere(problem: Problem) -> Self {
        Self { file: None, line: None, problem }
    }

    /// The number that C programs see as `Berror`: 12 when a table could not be obtained, 13 when it is
    /// wrong.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self.problem {
            Problem::NotSet { .. }
            | Problem::NoneSet { .. }
            | Problem::NotFound { .. }
            | Problem::Unreadable(_)
            | Problem::TooLong { .. } => 12,
            _ => 13,
        }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: {}", file.display(), self.problem),
            (Some(file), None) => write!(f, "{}: {}", file.display(), self.problem),
            (None, _) => self.problem.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ubf::FieldType;

    fn environment(folders: &str, tables: &str) -> Result<Vec<PathBuf>, TableError> {
        files_of_env(|name| match name {
            "FLDTBLDIR" => Some(folders.into()),
            _ => Some(tables.into()),
        })
    }

    #[test]
    fn names_and_ids_find_each_other() {
        let text = "*base 1000\nT_ACCNUM 1 string\nT_AMTAVL 3 double\n";
        let mut table = FieldTable::new();
        table.insert(&FieldFile::parse(Path::new("bank.fd"), text).expect("sound")).expect("free");
        let id = table.id("T_ACCNUM").expect("known");
        assert_eq!((id.raw(), table.name(id)), (167_773_161, Some("T_ACCNUM")));
        assert_eq!(table.id("T_ACCCUR"), None);
        assert_eq!(table.name(FieldId::new(FieldType::Long, 1001)), None);
        assert_eq!(table.definitions().count(), 2);
    }

    #[test]
    fn the_first_folder_that_has_a_table_gives_it() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = |name: &str| scratch.path().join(name);
        for (path, text) in
            [("a/one.fd", "A 1 long\n"), ("b/one.fd", "B 1 long\n"), ("b/two.fd", "C 2 long\n")]
        {
            std::fs::create_dir_all(folder(path).parent().expect("a folder")).expect("made");
            std::fs::write(folder(path), text).expect("written");
        }
        let folders = format!("{}:{}", folder("a").display(), folder("b").display());
        let files = environment(&folders, "one.fd, two.fd").expect("found");
        let table = FieldTable::open(&files).expect("sound");
        let names: Vec<_> = table.definitions().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["A", "C"]);

        let of_product =
            environment(&folders, "Exfields,two.fd,Usysflds,tpadm,evt_mib").expect("found");
        assert_eq!(of_product, [folder("b/two.fd")]);
        let table = FieldTable::named_by(|name| match name {
            "FLDTBLDIR" => Some(folders.clone().into()),
            "FIELDTBLS" => Some("two.fd,Exfields".into()),
            _ => None,
        });
        let table = table.expect("Exfields is in no folder, and known");
        let own = table.id("EX_NREQLOGFILE").map(FieldId::raw);
        assert_eq!((own, table.id("C").map(FieldId::raw)), (Some(167_772_562), Some(33_554_434)));
        let missing = environment(&folders, "one.fd,three.fd").expect_err("in no folder");
        assert!(missing.to_string().starts_with("three.fd: no folder of FLDTBLDIR"), "{missing}");

        let both = [folder("a/one.fd"), folder("b/one.fd")];
        let taken = FieldTable::open(&both).expect_err("one id twice").to_string();
        assert!(taken.contains("b/one.fd:1: number 1 of type long is taken by A in "), "{taken}");
    }

    #[test]
    fn of_a_name_in_two_tables_the_later_counts() {
        let file = |name, text| FieldFile::parse(Path::new(name), text).expect("sound");
        let mut table = FieldTable::new();
        table.insert(&file("one.fd", "A 1 long\nB 2 long\n")).expect("taken in");
        table.insert(&file("two.fd", "A 1 string\nB 2 long\n")).expect("taken in");
        let id = FieldId::new(FieldType::String, 1);
        assert_eq!((table.id("A"), table.name(id)), (Some(id), Some("A")));
        assert_eq!(table.name(FieldId::new(FieldType::Long, 1)), None);
        assert_eq!(table.definitions().count(), 2);
        table.insert(&file("three.fd", "C 1 long\n")).expect("its id is free again");
        let taken = table.insert(&file("four.fd", "A 1 long\n")).expect_err("it is C's");
        assert!(taken.to_string().contains("taken by C in three.fd:1"), "{taken}");
    }

    #[test]
    fn programs_take_the_later_of_a_name_and_of_an_id_that_stand_twice() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().display().to_string();
        let text = "A 11 char\nA 12 char\nB 11 char\nB 13 char\n";
        std::fs::write(scratch.path().join("twice.fd"), text).expect("written");
        let table = FieldTable::named_by(|name| match name {
            "FLDTBLDIR" => Some(folder.clone().into()),
            "FIELDTBLS" => Some("twice.fd".into()),
            _ => None,
        });
        let table = table.expect("not refused");
        let id = |number| FieldId::new(FieldType::Char, number);
        assert_eq!((table.id("A"), table.id("B")), (Some(id(12)), Some(id(13))));
        assert_eq!(table.name(id(11)), Some("B"));
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        for (variables, missing) in
            [(("", "x"), "FLDTBLDIR is not set"), (("x", " , "), "FIELDTBLS is not set")]
        {
            let error = environment(variables.0, variables.1).expect_err(missing);
            assert!(error.to_string().starts_with(missing), "{error}");
            assert_eq!(error.number(), 12);
        }
        let none = files_of_env(|_| None).expect_err("nothing is set").to_string();
        assert!(none.starts_with("FLDTBLDIR is not set, nor is FIELDTBLS: "), "{none}");
        let half = |name: &str| (name == "FIELDTBLS32").then(|| "x".into());
        let half = files_of_env(half).expect_err("half of a pair").to_string();
        assert!(half.starts_with("FLDTBLDIR32 is not set: "), "{half}");
    }

    #[test]
    fn the_variables_of_fml32_name_tables_as_well() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().display().to_string();
        for (name, text) in [
            ("bank", "ACCOUNT 110 long\nBALANCE 112 string\n"),
            ("bank32", "BALANCE 111 double\nOWNER 110 long\n"),
        ] {
            std::fs::write(scratch.path().join(name), text).expect("written");
        }
        let environment = |pairs: &'static [(&'static str, &'static str)]| {
            let folder = folder.clone();
            move |name: &str| {
                let table = pairs.iter().find(|(known, _)| *known == name)?.1;
                Some(if table.is_empty() { folder.clone().into() } else { table.into() })
            }
        };
        let fml32 = environment(&[("FLDTBLDIR32", ""), ("FIELDTBLS32", "bank32")]);
        let table = FieldTable::named_by(&fml32).expect("FML32 alone");
        assert!(table.id("BALANCE").is_some() && table.id("ACCOUNT").is_none());
        assert_eq!(files_of_env(&fml32).expect("found"), [scratch.path().join("bank32")]);

        // Each of the two spaces may have given a number to a field of its own.
        let both = environment(&[
            ("FLDTBLDIR", ""),
            ("FIELDTBLS", "bank,bank32"),
            ("FLDTBLDIR32", ""),
            ("FIELDTBLS32", "bank32"),
        ]);
        let table = FieldTable::named_by(&both).expect("both");
        let balance = table.id("BALANCE").expect("there");
        let shared = table.id("OWNER");
        assert_eq!(balance, FieldId::new(FieldType::Double, 111), "that of FML32");
        assert_eq!(shared, table.id("ACCOUNT"));
        assert_eq!(table.name(shared.expect("there")), Some("OWNER"), "that of FML32");

        let lost = environment(&[
            ("FLDTBLDIR", ""),
            ("FIELDTBLS", "bank"),
            ("FLDTBLDIR32", ""),
            ("FIELDTBLS32", "nowhere"),
        ]);
        let lost = FieldTable::named_by(&lost).expect_err("a table is missing").to_string();
        assert!(lost.starts_with("nowhere: no folder of FLDTBLDIR32 ("), "{lost}");
    }
}
