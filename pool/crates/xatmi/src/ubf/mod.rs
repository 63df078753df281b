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
//! | JSON, and back | [`to_json`], [`from_json`], with escapes of its own [`escaped`], [`unescaped`] |

mod escape;
mod layout;
mod read;
mod text;
mod value;
mod write;

use thiserror::Error;

pub use escape::{escaped, unescaped};
pub use layout::{
    FieldId, FieldType, HEADER_BYTES, NESTING_MAX, SIZE_MAX, bytes_needed, region_size,
};
pub use read::{Field, Iter, UbfRef, ViewOrder};
pub use text::{JsonError, LineForm, apply_printed, from_json, print, read_printed, to_json};
pub(crate) use text::{add_json, json_of};
pub use value::{Scratch, VIEW_NAME_BYTES, Value};
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
    /// No view has the name, or views have no place here.
    #[error(
        "a field that holds a view: VIEWDIR and VIEWFILES name no file with it, or it stands in JSON, which has none"
    )]
    BadView,
    /// A view has no member of the name that a line begins with.
    #[error("the view has no member of this name")]
    NoMember,
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
            Self::NoMember => 21,
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

/// A buffer of fields that owns its memory, and grows: it never refuses for want of space, until [`SIZE_MAX`].
///
/// It reads through [`fields`](Self::fields); the commonest reads stand here too.
#[derive(Clone)]
pub struct Ubf {
    region: Region,
}

impl Ubf {
    /// Bytes of a buffer for which no size was given.
    pub const SIZE_DEFAULT: usize = 1024;

    /// A buffer without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::with_size(Self::SIZE_DEFAULT)
    }

    /// A buffer without fields that first grows when more than `size` bytes are used.
    ///
    /// Below [`HEADER_BYTES`] it is as many, above [`SIZE_MAX`] that.
    #[must_use]
    pub fn with_size(size: usize) -> Self {
        let mut region = Region::zeroed(size.clamp(HEADER_BYTES, SIZE_MAX));
        UbfMut::init(region.bytes_mut()).expect("a region of a sound size");
        Self { region }
    }

    /// The buffer in a region, as another process may have sent it; all of it is checked.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, UbfError> {
        let used = UbfRef::check(bytes)?.used_bytes();
        let mut region = Region::zeroed(used.len());
        region.bytes_mut().copy_from_slice(used);
        UbfMut::adopt(region.bytes_mut())?;
        Ok(Self { region })
    }

    /// For reading.
    #[must_use]
    pub fn fields(&self) -> UbfRef<'_> {
        UbfRef::open(self.region.bytes()).expect("an owned buffer is sound")
    }

    /// The bytes that sending it sends: header and fields.
    #[must_use]
    pub fn used_bytes(&self) -> &[u8] {
        self.fields().used_bytes()
    }

    /// Its memory, for a buffer that owns it from now on.
    #[must_use]
    pub fn into_region(self) -> Region {
        self.region
    }

    /// The value of a field.
    ///
    /// # Errors
    /// As [`UbfRef::get`].
    pub fn get(&self, id: FieldId, occurrence: i32) -> Result<Value<'_>, UbfError> {
        self.fields().get(id, occurrence)
    }

    /// All fields in their order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.fields().iter()
    }

    /// Adds an occurrence behind those that the field has.
    ///
    /// # Errors
    /// As [`UbfMut::add`]; [`UbfError::NoSpace`] only beyond [`SIZE_MAX`], here and below.
    pub fn add<'v>(&mut self, id: FieldId, value: impl Into<Value<'v>>) -> Result<(), UbfError> {
        let value = value.into();
        self.growing(|fields| fields.add(id, value))
    }

    /// Adds a value of any type, converted to the field's.
    ///
    /// # Errors
    /// As [`UbfMut::add_as`].
    pub fn add_as<'v>(&mut self, id: FieldId, value: impl Into<Value<'v>>) -> Result<(), UbfError> {
        let value = value.into();
        self.growing(|fields| fields.add_as(id, value))
    }

    /// Gives an occurrence another value.
    ///
    /// # Errors
    /// As [`UbfMut::change`].
    pub fn change<'v>(
        &mut self,
        id: FieldId,
        occurrence: i32,
        value: impl Into<Value<'v>>,
    ) -> Result<(), UbfError> {
        let value = value.into();
        self.growing(|fields| fields.change(id, occurrence, value))
    }

    /// Gives an occurrence a value of any type, converted to the field's.
    ///
    /// # Errors
    /// As [`UbfMut::change_as`].
    pub fn change_as<'v>(
        &mut self,
        id: FieldId,
        occurrence: i32,
        value: impl Into<Value<'v>>,
    ) -> Result<(), UbfError> {
        let value = value.into();
        self.growing(|fields| fields.change_as(id, occurrence, value))
    }

    /// Removes an occurrence.
    ///
    /// # Errors
    /// As [`UbfMut::delete`].
    pub fn delete(&mut self, id: FieldId, occurrence: i32) -> Result<(), UbfError> {
        self.growing(|fields| fields.delete(id, occurrence))
    }

    /// Anything else that changes fields; it is done again with more memory when there is too
    /// little.
    ///
    /// ```
    /// # use pollux_xatmi::ubf::{FieldId, FieldType, Ubf};
    /// const NAME: FieldId = FieldId::new(FieldType::String, 7);
    /// let mut source = Ubf::new();
    /// source.add(NAME, "Ada")?;
    /// let mut fields = Ubf::with_size(0);
    /// fields.growing(|fields| fields.update(source.fields()))?;
    /// assert_eq!(fields.fields().bytes(NAME, 0)?, b"Ada");
    /// # Ok::<(), pollux_xatmi::ubf::UbfError>(())
    /// ```
    ///
    /// # Errors
    /// Those of `change`.
    pub fn growing<T>(
        &mut self,
        mut change: impl FnMut(&mut UbfMut<'_>) -> Result<T, UbfError>,
    ) -> Result<T, UbfError> {
        loop {
            let size = self.region.len();
            let mut fields = UbfMut::open(self.region.bytes_mut())?;
            match change(&mut fields) {
                Err(UbfError::NoSpace { needed, .. })
                    if (size + 1..=SIZE_MAX).contains(&needed) =>
                {
                    self.grow(needed.max(size * 2).min(SIZE_MAX));
                }
                done => return done,
            }
        }
    }

    fn grow(&mut self, size: usize) {
        self.region = self.region.resized(size);
        UbfMut::resized(self.region.bytes_mut()).expect("it was sound and is longer now");
    }
}

impl Default for Ubf {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Ubf {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}

impl std::fmt::Debug for Ubf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fields().fmt(f)
    }
}

impl<'a> IntoIterator for &'a Ubf {
    type Item = Field<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// A piece of memory whose first byte has an address divisible by [`Region::ALIGNMENT_BYTES`].
///
/// The C interface hands its address out, so moving a `Region` does not move its bytes.
#[derive(Debug)]
pub struct Region {
    /// Longer than asked for by what the alignment may take.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Region {
    /// The address of the first byte is a multiple of this.
    pub const ALIGNMENT_BYTES: usize = 8;

    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::of(vec![0; len + Self::ALIGNMENT_BYTES - 1], len)
    }

    /// The same; none when the system has no memory for it, where [`zeroed`](Self::zeroed) ends
    /// the process.
    ///
    /// A very large one is reserved on trial and then allocated: it is zero because the system made it
    /// so, and costs nothing before it is used. Another thread may take the last memory in between.
    #[must_use]
    pub fn try_zeroed(len: usize) -> Option<Self> {
        /// From here on the allocator has each piece of memory from the system anew.
        const VERY_LARGE_BYTES: usize = 32 << 20;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len + Self::ALIGNMENT_BYTES - 1).ok()?;
        if len <= VERY_LARGE_BYTES {
            bytes.resize(len + Self::ALIGNMENT_BYTES - 1, 0);
            return Some(Self::of(bytes, len));
        }
        // Otherwise the compiler leaves out a reservation that is not used.
        drop(std::hint::black_box(bytes));
        Some(Self::zeroed(len))
    }

    fn of(bytes: Vec<u8>, len: usize) -> Self {
        let start = bytes.as_ptr().align_offset(Self::ALIGNMENT_BYTES);
        // The documentation lets this fail where code runs at compile time, and nowhere else.
        assert!(start < Self::ALIGNMENT_BYTES, "an address of bytes can always be aligned");
        Self { bytes, start, len }
    }

    /// Takes over the content of other memory, as far as it fits; what is behind it stays.
    pub fn copy_from(&mut self, other: &Self) {
        let kept = self.len.min(other.len);
        self.bytes_mut()[..kept].copy_from_slice(&other.bytes()[..kept]);
    }

    /// Other memory of `len` bytes with the same content, as far as it fits; the rest is zero.
    #[must_use]
    pub fn resized(&self, len: usize) -> Self {
        let mut other = Self::zeroed(len);
        other.copy_from(self);
        other
    }

    /// Bytes, as asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, to be written.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl Clone for Region {
    fn clone(&self) -> Self {
        self.resized(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_at_a_multiple_of_eight_and_stays_there_when_it_moves() {
        for len in 0..40 {
            let mut region = Region::zeroed(len);
            region.bytes_mut().fill(7);
            let address = region.bytes().as_ptr();
            assert_eq!(address.align_offset(Region::ALIGNMENT_BYTES), 0);
            let moved = Box::new(region);
            assert_eq!((moved.bytes().as_ptr(), moved.len()), (address, len));
        }
    }

    #[test]
    fn resizing_keeps_what_fits() {
        let mut region = Region::zeroed(3);
        region.bytes_mut().copy_from_slice(&[1, 2, 3]);
        assert_eq!(region.resized(5).bytes(), [1, 2, 3, 0, 0]);
        assert_eq!(region.resized(2).bytes(), [1, 2]);
        assert!(region.resized(0).is_empty());
    }
}
