//! Where header and fields stand in a region, the walk over them that trusts nothing, and the id of a field: a number
//! of 25 bits and, above it, the type of its values.
//!
//! Reading and writing stand on it. It never changes a field, never leaves the used bytes and never looks at a name.

use std::fmt;

use super::UbfError;

/// Bytes of the header, which are the used bytes of an empty buffer.
pub const HEADER_BYTES: usize = 16;

/// Most bytes of a region: far above every message, and its lengths fit the `int` of C.
pub const SIZE_MAX: usize = 1 << 30;

/// Most buffers within one another; what checks them goes down one call for each.
pub const NESTING_MAX: usize = 16;

/// Bytes of id and length before each value.
pub(super) const ENTRY_HEAD_BYTES: usize = 8;

/// "PUB" and the version of the layout, in the machine's own order.
const MAGIC: u32 = u32::from_be_bytes(*b"PUB\x01");

/// A buffer without fields and without room.
pub(super) static EMPTY: [u8; HEADER_BYTES] = {
    let words = [MAGIC, HEADER_BYTES as u32, HEADER_BYTES as u32, 0];
    let mut bytes = [0; HEADER_BYTES];
    let mut at = 0;
    while at < HEADER_BYTES {
        bytes[at] = words[at / 4].to_ne_bytes()[at % 4];
        at += 1;
    }
    bytes
};

/// The header; consistent as far as it can be checked without the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the region that the buffer may fill.
    pub(super) size: usize,
    /// Bytes in use, with this header: a multiple of 8.
    pub(super) used: usize,
    /// Fields, each occurrence for itself.
    pub(super) fields: usize,
}

/// A field as it stands in a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: i32,
    /// Where its head starts.
    pub(super) at: usize,
    /// Bytes of its value.
    pub(super) len: usize,
}

/// The occurrences of one field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) count: usize,
    pub(super) last: Option<Entry>,
}

/// Bytes of the region whose header this is, for a caller that has only its address.
///
/// `header` is the first [`HEADER_BYTES`] of it.
///
/// # Errors
/// [`UbfError::NotFielded`] when it is the header of something else.
pub fn region_size(header: &[u8]) -> Result<usize, UbfError> {
    Header::read(header).map(|header| header.size)
}

/// Bytes of a region that holds any `fields` fields whose values take `value_bytes` together.
///
/// # Errors
/// [`UbfError::Invalid`] when that is more than [`SIZE_MAX`].
pub fn bytes_needed(fields: usize, value_bytes: usize) -> Result<usize, UbfError> {
    const FILL_BYTES_MAX: usize = 7;
    let heads = fields.saturating_mul(ENTRY_HEAD_BYTES + FILL_BYTES_MAX);
    let needed = heads.saturating_add(value_bytes).saturating_add(HEADER_BYTES);
    if needed > SIZE_MAX {
        return Err(UbfError::Invalid { reason: "a buffer has at most 1 GiB" });
    }
    Ok(needed.next_multiple_of(8))
}

impl Header {
    #[inline]
    pub(super) fn read(region: &[u8]) -> Result<Self, UbfError> {
        let Some(head) = region.first_chunk::<HEADER_BYTES>() else {
            return Err(damaged("it is shorter than a header"));
        };
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != MAGIC {
            return Err(damaged("it has not been initialised"));
        }
        let [size, used, fields] = [word(4), word(8), word(12)].map(|word| word as usize);
        let is_used_sound = (HEADER_BYTES..=size).contains(&used) && used.is_multiple_of(8);
        let entries_max = used.saturating_sub(HEADER_BYTES) / ENTRY_HEAD_BYTES;
        if !is_used_sound || size > SIZE_MAX || fields > entries_max {
            return Err(damaged("its header contradicts itself"));
        }
        Ok(Self { size, used, fields })
    }

    /// Writes it over the first bytes.
    #[inline]
    pub(super) fn write(&self, region: &mut [u8]) {
        let words = [MAGIC, word(self.size), word(self.used), word(self.fields)];
        for (place, word) in region[..HEADER_BYTES].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    }
}

impl Entry {
    /// The field at `at`; `used` holds the used bytes, header included.
    #[inline]
    pub(super) fn read(used: &[u8], at: usize) -> Result<Self, UbfError> {
        let Some(head) = used.get(at..).and_then(|rest| rest.first_chunk::<ENTRY_HEAD_BYTES>())
        else {
            return Err(damaged("a field goes beyond its end"));
        };
        let id = i32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let len = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let entry = Self { id, at, len };
        if len > SIZE_MAX || entry.end() > used.len() {
            return Err(damaged("a field goes beyond its end"));
        }
        Ok(entry)
    }

    /// Where the next field starts.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.at + entry_bytes(self.len)
    }

    #[inline]
    pub(super) fn value<'a>(&self, used: &'a [u8]) -> &'a [u8] {
        let start = self.at + ENTRY_HEAD_BYTES;
        &used[start..start + self.len]
    }

    /// Its head, as it is written.
    #[inline]
    pub(super) fn head(id: i32, len: usize) -> [u8; ENTRY_HEAD_BYTES] {
        let ([a, b, c, d], [e, f, g, h]) = (id.to_ne_bytes(), word(len).to_ne_bytes());
        [a, b, c, d, e, f, g, h]
    }
}

/// Bytes that a value of `len` takes with its head and what fills it up.
#[inline]
pub(super) fn entry_bytes(len: usize) -> usize {
    ENTRY_HEAD_BYTES + len.next_multiple_of(8)
}

/// The first field whose id is not below `id`, or the end of all.
#[inline]
pub(super) fn seek(used: &[u8], id: i32) -> Result<usize, UbfError> {
    let mut at = HEADER_BYTES;
    while at < used.len() {
        let entry = Entry::read(used, at)?;
        if entry.id >= id {
            break;
        }
        at = entry.end();
    }
    Ok(at)
}

/// All occurrences of `id`; empty, where the first would stand, when there are none.
pub(super) fn run(used: &[u8], id: i32) -> Result<Run, UbfError> {
    let start = seek(used, id)?;
    let mut run = Run { start, end: start, count: 0, last: None };
    while run.end < used.len() {
        let entry = Entry::read(used, run.end)?;
        if entry.id != id {
            break;
        }
        run = Run { start, end: entry.end(), count: run.count + 1, last: Some(entry) };
    }
    Ok(run)
}

/// Occurrence `occurrence` of `id`, from 0.
#[inline]
pub(super) fn nth(used: &[u8], id: i32, occurrence: usize) -> Result<Option<Entry>, UbfError> {
    let mut at = seek(used, id)?;
    let mut left = occurrence;
    while at < used.len() {
        let entry = Entry::read(used, at)?;
        match left {
            _ if entry.id != id => break,
            0 => return Ok(Some(entry)),
            _ => left -= 1,
        }
        at = entry.end();
    }
    Ok(None)
}

/// A region that was made by something else, or changed by it.
pub(super) const fn damaged(reason: &'static str) -> UbfError {
    UbfError::NotFielded { reason }
}

#[inline]
fn word(number: usize) -> u32 {
    u32::try_from(number).expect("lengths are below SIZE_MAX")
}

/// Bits of the number within an id; the type stands above them.
const NUMBER_BITS: u32 = 25;

/// The name of a field for programs: `(type << 25) | number`.
///
/// A value of this type is sound: its type is one of [`FieldType`] and its number lies in
/// `1..=FieldId::NUMBER_MAX`. Ids order by type first, then by number, and so do the fields of a
/// buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId(i32);

impl FieldId {
    /// The greatest number of a field.
    pub const NUMBER_MAX: i32 = (1 << NUMBER_BITS) - 1;

    /// The id of a field, for constants in programs and generated modules.
    ///
    /// # Panics
    /// When `number` is outside `1..=NUMBER_MAX`; in a constant that is an error of compilation.
    #[must_use]
    pub const fn new(field_type: FieldType, number: i32) -> Self {
        assert!(number >= 1 && number <= Self::NUMBER_MAX, "a field's number is 1 to 33554431");
        Self(((field_type as i32) << NUMBER_BITS) | number)
    }

    /// The id that a caller or a stored field gave as a plain number.
    ///
    /// # Errors
    /// [`UbfError::BadField`] when it is not positive or its number is 0, [`UbfError::BadType`]
    /// when no field has its type.
    pub const fn from_raw(raw: i32) -> Result<Self, UbfError> {
        if raw <= 0 || raw & Self::NUMBER_MAX == 0 {
            return Err(UbfError::BadField { id: raw });
        }
        match FieldType::from_code(raw >> NUMBER_BITS) {
            Some(_) => Ok(Self(raw)),
            None => Err(UbfError::BadType { code: raw >> NUMBER_BITS }),
        }
    }

    /// The text of the number in the form in which an id without a name is printed.
    pub(super) fn printed_number(text: &str) -> Option<&str> {
        text.strip_prefix("((BFLDID32)")?.strip_suffix(')')
    }

    /// As the plain number that C programs and generated headers carry.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The type of the field's values.
    #[must_use]
    pub const fn field_type(self) -> FieldType {
        match FieldType::from_code(self.0 >> NUMBER_BITS) {
            Some(field_type) => field_type,
            None => unreachable!(),
        }
    }

    /// The number without the type.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0 & Self::NUMBER_MAX
    }
}

/// The form in which an id without a name is printed and read: `((BFLDID32)167773161)`.
impl fmt::Display for FieldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "((BFLDID32){})", self.0)
    }
}

/// The types of field values; the codes are those of the FML and UBF interfaces.
///
/// Code 7 (`int`) exists in views only; a field cannot have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum FieldType {
    /// 16 bits with a sign.
    Short = 0,
    /// 64 bits with a sign.
    Long = 1,
    Char = 2,
    /// 32 bits, floating.
    Float = 3,
    /// 64 bits, floating.
    Double = 4,
    /// Bytes that end with a NUL and hold none before.
    String = 5,
    /// Bytes with a length.
    Carray = 6,
    /// An address, kept as a number of 64 bits.
    Ptr = 9,
    /// A buffer of fields within a field.
    Ubf = 10,
    /// A struct of C that a view describes, with the name of the view.
    View = 11,
}

impl FieldType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Short,
        Self::Long,
        Self::Char,
        Self::Float,
        Self::Double,
        Self::String,
        Self::Carray,
        Self::Ptr,
        Self::Ubf,
        Self::View,
    ];

    /// The type with this code.
    #[must_use]
    pub const fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            0 => Self::Short,
            1 => Self::Long,
            2 => Self::Char,
            3 => Self::Float,
            4 => Self::Double,
            5 => Self::String,
            6 => Self::Carray,
            9 => Self::Ptr,
            10 => Self::Ubf,
            11 => Self::View,
            _ => return None,
        })
    }

    /// The code, as it stands in an id above the number.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The name that field tables use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::Char => "char",
            Self::Float => "float",
            Self::Double => "double",
            Self::String => "string",
            Self::Carray => "carray",
            Self::Ptr => "ptr",
            Self::Ubf => "ubf",
            Self::View => "view",
        }
    }

    /// The type that a field table calls so; `fml32` is another name of `ubf`, `view32` of `view`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "fml32" => Some(Self::Ubf),
            "view32" => Some(Self::View),
            _ => Self::ALL.into_iter().find(|t| t.name() == name),
        }
    }

    /// Whether values of this type are made to values of `other`, and back.
    ///
    /// # Errors
    /// [`UbfError::NotConverted`].
    pub fn check_converts(self, other: Self) -> Result<(), UbfError> {
        let is_whole = |field_type| matches!(field_type, Self::Ubf | Self::View);
        if self != other && (is_whole(self) || is_whole(other)) {
            return Err(UbfError::NotConverted { from: self, to: other });
        }
        Ok(())
    }

    /// Bytes of every value of this type; `None` when values differ in length.
    #[must_use]
    pub const fn fixed_len(self) -> Option<usize> {
        match self {
            Self::Char => Some(1),
            Self::Short => Some(2),
            Self::Float => Some(4),
            Self::Long | Self::Double | Self::Ptr => Some(8),
            Self::String | Self::Carray | Self::Ubf | Self::View => None,
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_bank_are_what_c_programs_were_compiled_with() {
        assert_eq!(FieldId::new(FieldType::String, 1001).raw(), 167_773_161);
        assert_eq!(FieldId::new(FieldType::Double, 1003).raw(), 134_218_731);
        let id = FieldId::from_raw(167_773_161).expect("sound");
        assert_eq!((id.field_type(), id.number()), (FieldType::String, 1001));
        assert_eq!(id.to_string(), "((BFLDID32)167773161)");
    }

    #[test]
    fn other_numbers_are_refused_with_the_reason() {
        for raw in [0, -1, i32::MIN, 5 << 25] {
            assert_eq!(FieldId::from_raw(raw), Err(UbfError::BadField { id: raw }));
        }
        for code in [7, 8, 12, 63] {
            let raw = (code << 25) | 1;
            assert_eq!(FieldId::from_raw(raw), Err(UbfError::BadType { code }), "{code}");
        }
    }

    #[test]
    fn every_type_is_found_by_its_code_and_its_name() {
        for field_type in FieldType::ALL {
            assert_eq!(FieldType::from_code(field_type.code()), Some(field_type));
            assert_eq!(FieldType::from_name(field_type.name()), Some(field_type));
        }
        assert_eq!(FieldType::from_name("fml32"), Some(FieldType::Ubf));
        assert_eq!(FieldType::from_name("view32"), Some(FieldType::View));
        assert_eq!(FieldType::from_name("int"), None);
    }
}
