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

mod combine;
mod compare;
mod convert;
mod error;
mod field_id;
mod json;
mod layout;
mod owned;
mod print;
mod printed;
mod read;
mod region;
mod value;
mod write;

pub use convert::Scratch;
pub use error::{UbfError, describe};
pub use field_id::{FieldId, FieldType};
pub use json::{JsonError, from_json, to_json};
pub use layout::{HEADER_BYTES, NESTING_MAX, SIZE_MAX, bytes_needed, region_size};
pub use owned::Ubf;
pub use print::print;
pub use printed::{apply_printed, read_printed};
pub use read::{Field, Iter, UbfRef};
pub use region::Region;
pub use value::Value;
pub use write::{Added, UbfMut};

/// Stands for the last occurrence when reading, for one behind the last when changing.
pub const LAST: i32 = -1;
