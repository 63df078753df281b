//! The id of a field: a number of 25 bits and, above it, the type of its values.
//!
//! Everything that reads or writes fields uses it. It never looks at a buffer or at a name.

use std::fmt;

use super::UbfError;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum FieldType {
    /// 16 bits with a sign.
    Short = 0,
    /// 64 bits with a sign.
    Long = 1,
    /// One byte.
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
    /// A C structure described by a view table; there are none here, so no value has it.
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
