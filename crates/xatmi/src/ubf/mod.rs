//! Typed fields in one flat region of bytes: UBF, which other systems call FML.
//!
//! Services, clients, buffers and the C interface use it. Sending a buffer is copying its used
//! bytes. Nothing here performs I/O, and no content of a region makes it panic or read elsewhere:
//! a damaged region is [`UbfError::NotFielded`].
//!
//! ```text
//!   0        4        8        12       16                                    used        size
//!   ├────────┼────────┼────────┼────────┼──────────────┬──────────────┬─ ... ─┼─────────────┤
//!   │ magic  │ size   │ used   │ fields │ field        │ field        │       │ free        │
//!   └────────┴────────┴────────┴────────┴──────────────┴──────────────┴─ ... ─┴─────────────┘
//!                                       id  length  value, filled up to a multiple of 8
//! ```
//!
//! Fields stand in the order of their ids, occurrences of one field in their own order. Values
//! start at multiples of 8, so a C program may read what `Bfind` points at. Numbers are in the
//! order of the machine, which the magic gives away: machines of another order refuse the region.
//!
//! | wanted | use |
//! |---|---|
//! | a buffer in Rust that grows by itself | [`Ubf`] |
//! | to read a region | [`UbfRef`] |
//! | to write into memory of a caller | [`UbfMut`] |
//! | text that a person reads, and back | [`print()`], [`read_printed`] |
//! | JSON, and back | [`to_json`], [`from_json`] |
use thiserror::Error;

mod layout;
mod owned;
mod read;
mod text;
mod value;
mod write;

pub use layout::{FieldId, FieldType};
pub use layout::{HEADER_BYTES, NESTING_MAX, SIZE_MAX, bytes_needed, region_size};
pub use owned::{Region, Ubf};
pub use read::{Field, Iter, UbfRef};
pub use text::{JsonError, from_json, to_json};
pub use text::{apply_printed, print, read_printed};
pub use value::{Scratch, Value};
pub use write::{Added, UbfMut};

/// Stands for the last occurrence when reading, for one behind the last when changing.
pub const LAST: i32 = -1;

/// Why an operation on fields could not be done. [`number`](Self::number) is the `Berror` of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UbfError {
    /// The memory does not start on a multiple of 8.
    #[error("the buffer does not start at a multiple of 8 bytes: take it from tpalloc")]
    Unaligned,
    /// The memory holds no buffer of fields, or one that was damaged.
    #[error("no buffer of fields: {reason}; make it by tpalloc or Binit")]
    NotFielded {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The region, or the caller's memory, is too short.
    #[error("no space: {needed} bytes are needed, there are {room}")]
    NoSpace {
        /// Bytes that would be enough: of the whole region when writing, of the value when reading.
        needed: usize,
        /// Bytes that there are.
        room: usize,
    },
    /// The buffer has no such occurrence of the field.
    #[error("field {id} has no occurrence {occurrence}")]
    NotPresent {
        /// The field.
        id: i32,
        /// The occurrence, from 0; -1 is the last.
        occurrence: i32,
    },
    /// The id names no field.
    #[error(
        "{id} is not a field id: expected (type << 25) | number, with a number of 1 to 33554431"
    )]
    BadField {
        /// The given number.
        id: i32,
    },
    /// No field has this type.
    #[error("{code} is not a type of a field: expected 0 to 6 or 9 to 11")]
    BadType {
        /// The given number.
        code: i32,
    },
    /// The value has another type than the field.
    #[error("the field holds {wanted} and the value is {given}")]
    OtherType {
        /// The field's type.
        wanted: FieldType,
        /// The value's type.
        given: FieldType,
    },
    /// No field has this name.
    #[error("no field of this name in the field tables")]
    BadName,
    /// A line of printed fields could not be read.
    #[error("line {line}: {reason}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The mistake, and what is expected.
        reason: &'static str,
    },
    /// An argument makes no sense.
    #[error("wrong argument: {reason}")]
    Invalid {
        /// The mistake, and what is expected.
        reason: &'static str,
    },
    /// The value is a view, and there are no view tables.
    #[error("views are not supported: there are no view tables")]
    BadView,
    /// The types are not converted into each other.
    #[error("{from} is not converted to {to}: short to carray and ptr are")]
    NotConverted {
        /// The value's type.
        from: FieldType,
        /// The wanted type.
        to: FieldType,
    },
}

impl UbfError {
    /// The number that C programs see as `Berror`.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self {
            Self::Unaligned => 2,
            Self::NotFielded { .. } => 3,
            Self::NoSpace { .. } => 4,
            Self::NotPresent { .. } => 5,
            Self::BadField { .. } => 6,
            Self::BadType { .. } | Self::OtherType { .. } => 7,
            Self::BadName => 9,
            Self::Syntax { .. } => 11,
            Self::Invalid { .. } => 14,
            Self::BadView => 17,
            Self::NotConverted { .. } => 22,
        }
    }
}

/// The name of an error number and what it means, for `Bstrerror`.
#[must_use]
pub fn describe(number: i32) -> Option<(&'static str, &'static str)> {
    let found = ERRORS.iter().find(|(known, ..)| *known == number);
    found.map(|&(_, name, meaning)| (name, meaning))
}

/// All numbers of the interface; 1 and 15 are not in use.
const ERRORS: [(i32, &str, &str); 21] = [
    (0, "BMINVAL", "no error"),
    (2, "BALIGNERR", "the buffer is not aligned"),
    (3, "BNOTFLD", "the buffer holds no fields"),
    (4, "BNOSPACE", "no space in the buffer"),
    (5, "BNOTPRES", "the field is not present"),
    (6, "BBADFLD", "the field id is not valid"),
    (7, "BTYPERR", "the type is not valid"),
    (8, "BEUNIX", "a system call failed"),
    (9, "BBADNAME", "no field has this name"),
    (10, "BMALLOC", "no memory"),
    (11, "BSYNTAX", "syntax error"),
    (12, "BFTOPEN", "a field table cannot be opened"),
    (13, "BFTSYNTAX", "syntax error in a field table"),
    (14, "BEINVAL", "an argument is not valid"),
    (16, "BBADTBL", "the field table is not valid"),
    (17, "BBADVIEW", "the view is not known"),
    (18, "BVFSYNTAX", "syntax error in a view file"),
    (19, "BVFOPEN", "a view file cannot be opened"),
    (20, "BBADACM", "the associated count of a view is not valid"),
    (21, "BNOCNAME", "the view has no such member"),
    (22, "BEBADOP", "the operation is not defined for this type"),
];
