//! A value of a field, and the bytes by which it stands in a region and in the memory of C.
//!
//! Reading, writing and conversions use it. It never looks at a field's id.

use super::{FieldType, UbfError, UbfRef};

/// A value; texts, bytes and buffers are borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// 16 bits with a sign.
    Short(i16),
    /// 64 bits with a sign.
    Long(i64),
    /// One byte.
    Char(u8),
    /// 32 bits, floating.
    Float(f32),
    /// 64 bits, floating.
    Double(f64),
    /// Text without its NUL; no NUL is in it.
    String(&'a [u8]),
    /// Any bytes.
    Carray(&'a [u8]),
    /// An address, as a number.
    Ptr(u64),
    /// A buffer of fields.
    Ubf(UbfRef<'a>),
}

impl<'a> Value<'a> {
    /// The value that these bytes are in the memory of a C program: a number in the machine's
    /// order, a text with its NUL, bytes, or the region of a buffer.
    ///
    /// # Errors
    /// [`UbfError::Invalid`] when the length is not the type's or the NUL is missing,
    /// [`UbfError::NotFielded`] when it should be a buffer, [`UbfError::BadView`].
    #[inline]
    pub fn from_raw(field_type: FieldType, bytes: &'a [u8]) -> Result<Self, UbfError> {
        Ok(match field_type {
            FieldType::Short => Self::Short(i16::from_ne_bytes(exact(bytes)?)),
            FieldType::Long => Self::Long(i64::from_ne_bytes(exact(bytes)?)),
            FieldType::Char => Self::Char(u8::from_ne_bytes(exact(bytes)?)),
            FieldType::Float => Self::Float(f32::from_ne_bytes(exact(bytes)?)),
            FieldType::Double => Self::Double(f64::from_ne_bytes(exact(bytes)?)),
            FieldType::Ptr => Self::Ptr(u64::from_ne_bytes(exact(bytes)?)),
            FieldType::Carray => Self::Carray(bytes),
            FieldType::String => match bytes.split_last() {
                Some((0, text)) => Self::String(text),
                _ => return Err(UbfError::Invalid { reason: "a string ends with a NUL" }),
            },
            FieldType::Ubf => Self::Ubf(UbfRef::open(bytes)?),
            FieldType::View => return Err(UbfError::BadView),
        })
    }

    /// The value that fills gaps: 0, no bytes, a buffer without fields.
    ///
    /// # Errors
    /// [`UbfError::BadView`] for a view.
    pub fn empty(field_type: FieldType) -> Result<Self, UbfError> {
        Ok(match field_type {
            FieldType::Short => Self::Short(0),
            FieldType::Long => Self::Long(0),
            FieldType::Char => Self::Char(0),
            FieldType::Float => Self::Float(0.0),
            FieldType::Double => Self::Double(0.0),
            FieldType::Ptr => Self::Ptr(0),
            FieldType::String => Self::String(&[]),
            FieldType::Carray => Self::Carray(&[]),
            FieldType::Ubf => Self::Ubf(UbfRef::EMPTY),
            FieldType::View => return Err(UbfError::BadView),
        })
    }

    /// Its type.
    #[must_use]
    pub const fn field_type(&self) -> FieldType {
        match self {
            Self::Short(_) => FieldType::Short,
            Self::Long(_) => FieldType::Long,
            Self::Char(_) => FieldType::Char,
            Self::Float(_) => FieldType::Float,
            Self::Double(_) => FieldType::Double,
            Self::String(_) => FieldType::String,
            Self::Carray(_) => FieldType::Carray,
            Self::Ptr(_) => FieldType::Ptr,
            Self::Ubf(_) => FieldType::Ubf,
        }
    }

    /// Bytes that [`write_raw`](Self::write_raw) writes: a string counts its NUL, a buffer its
    /// used bytes.
    #[inline]
    #[must_use]
    pub fn raw_len(&self) -> usize {
        match self {
            Self::Char(_) => 1,
            Self::Short(_) => 2,
            Self::Float(_) => 4,
            Self::Long(_) | Self::Double(_) | Self::Ptr(_) => 8,
            Self::String(text) => text.len() + 1,
            Self::Carray(bytes) => bytes.len(),
            Self::Ubf(fields) => fields.used(),
        }
    }

    /// Writes it as it stands in the memory of a C program, and says how many bytes that took.
    ///
    /// # Errors
    /// [`UbfError::NoSpace`] when `out` is shorter; nothing is written then.
    #[inline]
    pub fn write_raw(&self, out: &mut [u8]) -> Result<usize, UbfError> {
        let (needed, room) = (self.raw_len(), out.len());
        let Some(out) = out.get_mut(..needed) else {
            return Err(UbfError::NoSpace { needed, room });
        };
        match self {
            Self::Short(number) => out.copy_from_slice(&number.to_ne_bytes()),
            Self::Long(number) => out.copy_from_slice(&number.to_ne_bytes()),
            Self::Char(byte) => out[0] = *byte,
            Self::Float(number) => out.copy_from_slice(&number.to_ne_bytes()),
            Self::Double(number) => out.copy_from_slice(&number.to_ne_bytes()),
            Self::Ptr(number) => out.copy_from_slice(&number.to_ne_bytes()),
            Self::String(text) => {
                out[..text.len()].copy_from_slice(text);
                out[text.len()] = 0;
            }
            Self::Carray(bytes) => out.copy_from_slice(bytes),
            Self::Ubf(fields) => fields.write_compact(out),
        }
        Ok(needed)
    }
}

/// What Rust programs have at hand, as values of the type that it looks like.
macro_rules! from {
    ($($given:ty => $variant:ident),* $(,)?) => {$(
        impl<'a> From<$given> for Value<'a> {
            fn from(given: $given) -> Self {
                Self::$variant(given)
            }
        }
    )*};
}

from! {
    i16 => Short,
    i64 => Long,
    u8 => Char,
    f32 => Float,
    f64 => Double,
    &'a [u8] => Carray,
    UbfRef<'a> => Ubf,
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(text.as_bytes())
    }
}

#[inline]
fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N], UbfError> {
    bytes.try_into().map_err(|_| UbfError::Invalid { reason: "the length is not that of the type" })
}
