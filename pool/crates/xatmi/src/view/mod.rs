//! Views: structs of C whose members are described by files, so that they are sent as buffers, filled from fields and
//! read by the names of their members.
//!
//! `viewc` checks the files and writes headers; programs read the same files (`VIEWDIR`, `VIEWFILES`, and those with 32)
//! and work on structs that a compiler laid out. Members stand where the rules of the platform's C interface put them,
//! so no compiler is asked. Nothing here trusts what a struct holds: counts and lengths are looked at before they are used.
//!
//! ```text
//! VIEW CUSTOMER
//! #type    cname     fbname     count  flag  size  null
//! long     id        T_ID       1      -     -     0
//! string   phone     T_PHONE    3      C     20    '-'
//! END
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `file` | a file as views; the header that it becomes |
//! | `value` | members of a struct: values, counts, null values |
//! | `fields` | from fields to a struct and back |
//! | `text` | a struct as lines, and back; two structs compared |
//! | `json` | a struct as JSON, and back |

mod fields;
mod file;
mod json;
mod text;
mod value;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use thiserror::Error;

use crate::ubf::{FieldType, UbfError};

pub use fields::Merge;
pub use file::{ViewFile, c_header};
pub use json::{ViewJsonError, struct_from_json, view_in_json};
pub use text::{LINES, order_of_process, value_of_process};

/// Longest name of a view.
pub const VIEW_NAME_BYTES_MAX: usize = 33;
/// Longest name of a member.
pub const MEMBER_NAME_BYTES_MAX: usize = 256;

/// Most bytes of a struct: a length in a member has 16 bits, and a view has at most a few hundred members.
const VIEW_BYTES_MAX: usize = 16 << 20;

/// The environment variables that name files of views. Structs are the same for both kinds here, so a program may have
/// either or both; of a name that stands twice the first counts.
const VARIABLES: [(&str, &str); 2] = [("VIEWDIR32", "VIEWFILES32"), ("VIEWDIR", "VIEWFILES")];

/// What a struct of C is made of.
#[derive(Debug)]
pub struct View {
    pub name: String,
    pub members: Vec<Member>,
    /// Bytes of the struct.
    pub size: usize,
}

/// One member: a value, or an array of them.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    pub member_type: MemberType,
    /// The field that it stands for.
    pub field: Option<String>,
    /// Values in it.
    pub count: usize,
    /// Bytes of one value.
    pub size: usize,
    /// What counts as nothing; none where every value is something (`NONE`).
    null: Option<Null>,
    /// Flag P: the last byte of the null value fills the rest.
    is_filled: bool,
    mapping: AtomicU8,
    /// Where it stands in the struct, and its count (flag C) and lengths (flag L).
    at: usize,
    count_at: Option<usize>,
    len_at: Option<usize>,
}

/// The type of a member, as C has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberType {
    Short,
    Long,
    Int,
    Char,
    Float,
    Double,
    String,
    Carray,
}

#[derive(Clone, Debug, PartialEq)]
enum Null {
    Whole(i64),
    Floating(f64),
    Bytes(Vec<u8>),
}

/// Which way a member goes between struct and fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mapping {
    /// Flag S: from fields to the struct.
    ToStruct = 1,
    /// Flag F: from the struct to fields.
    ToFields = 2,
    /// Flag N.
    Off = 3,
    /// Both flags, or none of the three.
    Both = 4,
}

/// A mistake in a file of views, or in what is asked of a view. C programs see its [`number`](Self::number).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewError {
    /// No view has the name.
    #[error("{name} is not a view of the files that VIEWDIR and VIEWFILES name")]
    Unknown { name: String },
    /// The files cannot be found or read.
    #[error("{what}")]
    Unreadable { what: String },
    /// A line of a file is wrong.
    #[error("{file}:{line}: {what}")]
    Syntax { file: String, line: usize, what: String },
    /// The view has no such member.
    #[error("the view {view} has no member {member}")]
    NoMember { view: String, member: String },
    /// The value is null, or beyond the count of the struct.
    #[error("the value is a null value, or beyond the count of the struct")]
    NotPresent,
    /// An argument, or a count or a length in the struct, makes no sense.
    #[error("{what}")]
    Invalid { what: String },
    /// What fields said.
    #[error("{0}")]
    Fields(#[from] UbfError),
}

impl ViewError {
    /// The number that C programs see as `Berror`.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self {
            Self::NotPresent => 5,
            Self::Invalid { .. } => 14,
            Self::Unknown { .. } => 17,
            Self::Syntax { .. } => 18,
            Self::Unreadable { .. } => 19,
            Self::NoMember { .. } => 21,
            Self::Fields(error) => error.number(),
        }
    }

    fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }
}

impl MemberType {
    const ALL: [(&'static str, Self); 8] = [
        ("short", Self::Short),
        ("long", Self::Long),
        ("int", Self::Int),
        ("char", Self::Char),
        ("float", Self::Float),
        ("double", Self::Double),
        ("string", Self::String),
        ("carray", Self::Carray),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, its)| its)
    }

    /// The type of a field whose values it takes without loss; an int is a long there.
    #[must_use]
    pub const fn field_type(self) -> FieldType {
        match self {
            Self::Short => FieldType::Short,
            Self::Long | Self::Int => FieldType::Long,
            Self::Char => FieldType::Char,
            Self::Float => FieldType::Float,
            Self::Double => FieldType::Double,
            Self::String => FieldType::String,
            Self::Carray => FieldType::Carray,
        }
    }

    /// Its number in `ubf.h`.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Int => 7,
            other => other.field_type().code(),
        }
    }

    /// Bytes of a value, and what its place is a multiple of; a text's are the member's own.
    const fn layout(self) -> (Option<usize>, usize) {
        match self {
            Self::Short => (Some(2), 2),
            Self::Int | Self::Float => (Some(4), 4),
            Self::Long | Self::Double => (Some(8), 8),
            Self::Char => (Some(1), 1),
            Self::String | Self::Carray => (None, 1),
        }
    }
}

impl Member {
    /// Which way it goes at present.
    #[must_use]
    pub fn mapping(&self) -> Mapping {
        match self.mapping.load(Ordering::Relaxed) {
            1 => Mapping::ToStruct,
            2 => Mapping::ToFields,
            3 => Mapping::Off,
            _ => Mapping::Both,
        }
    }

    /// Makes it go another way in this process, as `Bvopt` wants.
    pub fn set_mapping(&self, mapping: Mapping) {
        self.mapping.store(mapping as u8, Ordering::Relaxed);
    }
}

impl View {
    /// The member of this name.
    ///
    /// # Errors
    /// [`ViewError::NoMember`].
    pub fn member(&self, name: &str) -> Result<&Member, ViewError> {
        let found = self.members.iter().find(|member| member.name == name);
        let none = || ViewError::NoMember { view: self.name.clone(), member: name.to_owned() };
        found.ok_or_else(none)
    }

    /// A number that differs, as a rule, for another struct: what a sender and a receiver have to agree about.
    #[must_use]
    pub fn layout_sum(&self) -> u64 {
        let members = self.members.iter();
        let all = members.map(|one| {
            format!("{} {:?} {} {} {}", one.name, one.member_type, one.count, one.size, one.at)
        });
        // FNV-1a, which is the same in each build.
        all.flat_map(String::into_bytes).fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

/// All views that a program knows.
#[derive(Debug, Default)]
pub struct ViewTable {
    views: Vec<View>,
    by_name: HashMap<String, usize>,
}

impl ViewTable {
    /// The views of the files that the environment names; `variable` reads it.
    ///
    /// # Errors
    /// [`ViewError::Unreadable`], [`ViewError::Syntax`].
    pub fn named_by(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ViewError> {
        let mut table = Self::default();
        for (folders_name, files_name) in VARIABLES {
            let list = |name, separator| -> Vec<String> {
                let words = variable(name).unwrap_or_default();
                let words = words.to_string_lossy();
                let words = words.split(separator).map(str::trim).filter(|word| !word.is_empty());
                words.map(str::to_owned).collect()
            };
            let folders = list(folders_name, ':');
            let files = list(files_name, ',');
            for file in files {
                let path = find(&file, &folders).ok_or_else(|| {
                    let folders = folders.join(":");
                    let what = format!("no folder of {folders_name} ({folders}) has the file {file} of {files_name}");
                    ViewError::Unreadable { what }
                })?;
                table.insert(ViewFile::open(&path)?);
            }
        }
        Ok(table)
    }

    /// Takes the views of a file in, but for those whose names are taken.
    pub fn insert(&mut self, file: ViewFile) {
        for view in file.views {
            if !self.by_name.contains_key(&view.name) {
                self.by_name.insert(view.name.clone(), self.views.len());
                self.views.push(view);
            }
        }
    }

    /// The view of this name.
    ///
    /// # Errors
    /// [`ViewError::Unknown`].
    pub fn view(&self, name: &str) -> Result<&View, ViewError> {
        let found = self.by_name.get(name).map(|at| &self.views[*at]);
        found.ok_or_else(|| ViewError::Unknown { name: name.to_owned() })
    }
}

/// A view of this process, whose environment is read once, when the first one is asked for.
///
/// # Errors
/// As [`ViewTable::named_by`] and [`ViewTable::view`].
pub fn of_process(name: &str) -> Result<&'static View, ViewError> {
    static VIEWS: OnceLock<Result<ViewTable, ViewError>> = OnceLock::new();
    let views = VIEWS.get_or_init(|| ViewTable::named_by(|name| std::env::var_os(name)));
    views.as_ref().map_err(Clone::clone)?.view(name)
}

/// A file in the first folder that has it; one with a path of its own needs no folder.
fn find(file: &str, folders: &[String]) -> Option<PathBuf> {
    let own = file.contains('/').then(|| PathBuf::from(file));
    let beside = folders.iter().map(|folder| Path::new(folder).join(file));
    own.into_iter().chain(beside).find(|path| path.is_file())
}

#[cfg(test)]
mod tests;
