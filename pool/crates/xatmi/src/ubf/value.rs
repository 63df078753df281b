//! A value of a field: its bytes in a region and in the memory of C, and its conversion to other types.
//!
//! Reading and writing use it. It never looks at a field's id and never allocates. Conversions follow the
//! rules of the conversion calls (`CBget`, `CBadd`):
//!
//! | from | to a number | to a char | to a string or a carray |
//! |---|---|---|---|
//! | number | as `as` does: a whole number keeps its low bits, a floating one loses its fraction and stops at the limits | its low 8 bits | decimal, as `%d` of printf; a float as `%.5f`, a double as `%.6f`, which programs of this interface cut and compare |
//! | char | its code, 0 to 255 | | the character; a NUL is an empty text |
//! | ptr | its address | its low 8 bits | `0x` and hexadecimal digits |
//! | string, carray | the number in front, after blanks; 0 without one | the first byte; NUL without one | the same bytes; a string ends before the first NUL |
//!
//! To a ptr go whole numbers by their bits, floating ones by their whole part, and texts of hexadecimal
//! digits behind `0x`; other texts are 0. Buffers and views are converted to nothing and from nothing.

use std::io::{Cursor, Write};

use super::{FieldType, UbfError, UbfRef};

/// A value; texts, bytes and buffers are borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// 16 bits with a sign.
    Short(i16),
    /// 64 bits with a sign.
    Long(i64),
    Char(u8),
    /// 32 bits, floating.
    Float(f32),
    /// 64 bits, floating.
    Double(f64),
    /// Text without its NUL; no NUL is in it.
    String(&'a [u8]),
    Carray(&'a [u8]),
    /// An address, as a number.
    Ptr(u64),
    /// A buffer of fields.
    Ubf(UbfRef<'a>),
    /// A struct: [`VIEW_NAME_BYTES`] with the name of its view and NULs, then the struct.
    View(&'a [u8]),
}

/// Bytes of the name in front of a struct, so that the struct starts at a multiple of 8.
pub const VIEW_NAME_BYTES: usize = 40;

/// A view that is none: a name of no bytes.
const NO_VIEW: [u8; VIEW_NAME_BYTES] = [0; VIEW_NAME_BYTES];

impl<'a> Value<'a> {
    /// The value that these bytes are in the memory of a C program: a number in the machine's
    /// order, a text with its NUL, bytes, or the region of a buffer.
    ///
    /// # Errors
    /// [`UbfError::Invalid`] when the length is not the type's or the NUL is missing,
    /// [`UbfError::NotFielded`] when it should be a buffer.
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
            FieldType::View => match bytes.first_chunk::<VIEW_NAME_BYTES>() {
                Some(name) if name.contains(&0) => Self::View(bytes),
                _ => return Err(UbfError::Invalid { reason: "a view begins with its name" }),
            },
        })
    }

    /// The value that fills gaps: 0, no bytes, a buffer without fields, a view without a name.
    #[must_use]
    pub const fn empty(field_type: FieldType) -> Self {
        match field_type {
            FieldType::Short => Self::Short(0),
            FieldType::Long => Self::Long(0),
            FieldType::Char => Self::Char(0),
            FieldType::Float => Self::Float(0.0),
            FieldType::Double => Self::Double(0.0),
            FieldType::Ptr => Self::Ptr(0),
            FieldType::String => Self::String(&[]),
            FieldType::Carray => Self::Carray(&[]),
            FieldType::Ubf => Self::Ubf(UbfRef::EMPTY),
            FieldType::View => Self::View(&NO_VIEW),
        }
    }

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
            Self::View(_) => FieldType::View,
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
            Self::Carray(bytes) | Self::View(bytes) => bytes.len(),
            Self::Ubf(fields) => fields.used(),
        }
    }

    /// Writes it as it stands in the memory of a C program; the number of bytes written.
    ///
    /// # Errors
    /// [`UbfError::NoSpace`] when `out` is shorter; nothing is written then.
    #[inline]
    pub fn write_raw(&self, out: &mut [u8]) -> Result<usize, UbfError> {
        let needed = self.raw_len();
        let room = out.len();
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
            Self::View(bytes) => out.copy_from_slice(bytes),
        }
        Ok(needed)
    }
}

/// Values of Rust as values of the matching type.
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

/// Bytes of the longest text of a number: the greatest `f64` has 309 digits, a sign, a point and six
/// digits behind it. A number in a text is read as far as this, which a longer fraction exceeds.
const TEXT_BYTES_MAX: usize = 344;

/// Room for the text of a converted number; lives on the caller's stack.
#[derive(Clone, Debug)]
pub struct Scratch([u8; TEXT_BYTES_MAX]);

impl Scratch {
    /// Room for one value.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; TEXT_BYTES_MAX])
    }

    fn write(&mut self, number: impl std::fmt::Display) -> &[u8] {
        let mut out = Cursor::new(&mut self.0[..]);
        write!(out, "{number}").expect("TEXT_BYTES_MAX holds the text of every number");
        let len = usize::try_from(out.position()).expect("within the array");
        &self.0[..len]
    }

    /// NaN and infinities are `nan`, `inf` and `-inf`, as printf writes them.
    fn write_floating(&mut self, number: f64, digits: usize) -> &[u8] {
        if number.is_nan() {
            self.write("nan")
        } else {
            self.write(format_args!("{number:.digits$}"))
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Value<'a> {
    /// This value as one of another type; the text of a number is written into `scratch`.
    ///
    /// # Errors
    /// [`UbfError::NotConverted`] when one of the types is a buffer or a view, and they differ.
    pub fn convert<'s>(
        self,
        wanted: FieldType,
        scratch: &'s mut Scratch,
    ) -> Result<Value<'s>, UbfError>
    where
        'a: 's,
    {
        if self.field_type() == wanted {
            return Ok(self);
        }
        // A number that is wider than the wanted one loses its high bits.
        Ok(match wanted {
            FieldType::Short => Value::Short(self.to_long_as(wanted)? as i16),
            FieldType::Long => Value::Long(self.to_long_as(wanted)?),
            FieldType::Char => Value::Char(self.to_char()?),
            FieldType::Float => Value::Float(self.to_double_as(wanted)? as f32),
            FieldType::Double => Value::Double(self.to_double_as(wanted)?),
            FieldType::String => Value::String(until_nul(self.to_text(wanted, scratch)?)),
            FieldType::Carray => Value::Carray(self.to_text(wanted, scratch)?),
            FieldType::Ptr => Value::Ptr(self.to_address()?),
            FieldType::Ubf | FieldType::View => return Err(self.refused(wanted)),
        })
    }

    /// This value as a whole number.
    ///
    /// # Errors
    /// [`UbfError::NotConverted`] for a buffer.
    pub fn to_long(self) -> Result<i64, UbfError> {
        self.to_long_as(FieldType::Long)
    }

    /// This value as a floating number.
    ///
    /// # Errors
    /// [`UbfError::NotConverted`] for a buffer.
    pub fn to_double(self) -> Result<f64, UbfError> {
        self.to_double_as(FieldType::Double)
    }

    fn to_long_as(self, wanted: FieldType) -> Result<i64, UbfError> {
        Ok(match self {
            Self::Short(number) => number.into(),
            Self::Long(number) => number,
            Self::Char(byte) => byte.into(),
            Self::Float(number) => number as i64,
            Self::Double(number) => number as i64,
            Self::String(text) | Self::Carray(text) => whole_number(text),
            Self::Ptr(address) => address as i64,
            Self::Ubf(_) | Self::View(_) => return Err(self.refused(wanted)),
        })
    }

    fn to_double_as(self, wanted: FieldType) -> Result<f64, UbfError> {
        Ok(match self {
            Self::Short(number) => number.into(),
            Self::Long(number) => number as f64,
            Self::Char(byte) => byte.into(),
            Self::Float(number) => number.into(),
            Self::Double(number) => number,
            Self::String(text) | Self::Carray(text) => floating_number(text),
            Self::Ptr(address) => address as f64,
            Self::Ubf(_) | Self::View(_) => return Err(self.refused(wanted)),
        })
    }

    fn to_char(self) -> Result<u8, UbfError> {
        match self {
            Self::String(text) | Self::Carray(text) => Ok(text.first().copied().unwrap_or(0)),
            other => Ok(other.to_long_as(FieldType::Char)? as u8),
        }
    }

    fn to_text<'s>(self, wanted: FieldType, scratch: &'s mut Scratch) -> Result<&'s [u8], UbfError>
    where
        'a: 's,
    {
        Ok(match self {
            Self::Short(number) => scratch.write(number),
            Self::Long(number) => scratch.write(number),
            Self::Float(number) => scratch.write_floating(number.into(), 5),
            Self::Double(number) => scratch.write_floating(number, 6),
            Self::Ptr(address) => scratch.write(format_args!("{address:#x}")),
            Self::Char(byte) => {
                scratch.0[0] = byte;
                &scratch.0[..1]
            }
            Self::String(text) | Self::Carray(text) => text,
            Self::Ubf(_) | Self::View(_) => return Err(self.refused(wanted)),
        })
    }

    fn to_address(self) -> Result<u64, UbfError> {
        match self {
            Self::String(text) | Self::Carray(text) => Ok(address(text)),
            other => Ok(other.to_long_as(FieldType::Ptr)? as u64),
        }
    }

    fn refused(self, to: FieldType) -> UbfError {
        UbfError::NotConverted { from: self.field_type(), to }
    }
}

fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&b| b == 0).next().unwrap_or_default()
}

/// The whole number at the start of a text, as `atol` reads it; it stops at the limits.
fn whole_number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let digits = digits.iter().take_while(|b| b.is_ascii_digit()).map(|b| i64::from(b - b'0'));
    digits.fold(0, |number: i64, digit| {
        let number = number.saturating_mul(10);
        if is_negative { number.saturating_sub(digit) } else { number.saturating_add(digit) }
    })
}

/// The hexadecimal number behind `0x` at the start of a text; it stops at the limit. Another text is 0, whatever letters
/// it begins with.
fn address(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or_default();
    let digits = digits.iter().map_while(|&byte| char::from(byte).to_digit(16));
    digits.fold(0, |number: u64, digit| number.saturating_mul(16).saturating_add(digit.into()))
}

/// The floating number at the start of a text, as `atof` reads it, without hexadecimal ones.
fn floating_number(text: &[u8]) -> f64 {
    let text = text.trim_ascii_start();
    let is_part = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    let len = text.iter().take(TEXT_BYTES_MAX).take_while(is_part).count();
    // Everything that was taken is ASCII. The longest start that is a number is the number.
    let text = str::from_utf8(&text[..len]).unwrap_or_default();
    (1..=len).rev().find_map(|len| text[..len].parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(value: Value<'_>, wanted: FieldType) -> String {
        let mut scratch = Scratch::new();
        format!("{:?}", value.convert(wanted, &mut scratch))
    }

    #[test]
    fn each_of_the_seven_types_goes_to_each_other() {
        use FieldType as T;
        let all = [T::Short, T::Long, T::Char, T::Float, T::Double, T::String, T::Carray];
        let one = |wanted: T| match wanted {
            T::Short => Value::Short(7),
            T::Long => Value::Long(7),
            T::Char => Value::Char(b'7'),
            T::Float => Value::Float(7.0),
            T::Double => Value::Double(7.0),
            T::String => Value::String(b"7"),
            _ => Value::Carray(b"7"),
        };
        for from in all {
            for to in all {
                // A char has the code of its character as a number, and back.
                let expected = match (from, to) {
                    _ if from == to => one(to),
                    (T::Char, T::Short) => Value::Short(55),
                    (T::Char, T::Long) => Value::Long(55),
                    (T::Char, T::Float) => Value::Float(55.0),
                    (T::Char, T::Double) => Value::Double(55.0),
                    (T::Short | T::Long | T::Float | T::Double, T::Char) => Value::Char(7),
                    (T::Float, T::String) => Value::String(b"7.00000"),
                    (T::Float, T::Carray) => Value::Carray(b"7.00000"),
                    (T::Double, T::String) => Value::String(b"7.000000"),
                    (T::Double, T::Carray) => Value::Carray(b"7.000000"),
                    _ => one(to),
                };
                let expected = format!("{:?}", Ok::<_, UbfError>(expected));
                assert_eq!(converted(one(from), to), expected, "{from} to {to}");
            }
        }
    }

    #[test]
    fn numbers_at_the_start_of_texts_count_and_the_rest_does_not() {
        for (text, whole, floating) in [
            ("  -12.5e1xyz", -12, -125.0),
            ("+3", 3, 3.0),
            ("abc", 0, 0.0),
            ("", 0, 0.0),
            ("-", 0, 0.0),
            ("12-3", 12, 12.0),
            ("1e", 1, 1.0),
            (".5", 0, 0.5),
            ("9223372036854775808", i64::MAX, 9_223_372_036_854_775_808.0),
            ("-99999999999999999999", i64::MIN, -1e20),
        ] {
            assert_eq!(Value::from(text).to_long(), Ok(whole), "{text}");
            assert_eq!(Value::from(text).to_double(), Ok(floating), "{text}");
        }
    }

    #[test]
    fn floating_numbers_are_texts_with_five_and_six_digits_behind_the_point() {
        let text = |value: Value<'_>| {
            let mut scratch = Scratch::new();
            let text = value.convert(FieldType::String, &mut scratch).expect("converted");
            let Value::String(text) = text else { panic!("{text:?}") };
            String::from_utf8(text.to_vec()).expect("ascii")
        };
        for (number, float, double) in [
            (2.0, "2.00000", "2.000000"),
            (-0.5, "-0.50000", "-0.500000"),
            (0.007_812_5, "0.00781", "0.007812"),
            (1_000_000.125, "1000000.12500", "1000000.125000"),
        ] {
            assert_eq!(text(Value::Float(number as f32)), float);
            assert_eq!(text(Value::Double(number)), double);
        }
        assert_eq!(text(Value::Double(f64::MIN)).len(), 1 + 309 + 7);
        assert_eq!(text(Value::Double(f64::NAN)), "nan");
        assert_eq!(text(Value::Float(f32::NEG_INFINITY)), "-inf");
    }

    #[test]
    fn what_does_not_fit_follows_the_table() {
        assert_eq!(converted(Value::Long(65_537), FieldType::Short), "Ok(Short(1))");
        assert_eq!(converted(Value::Double(-2.9), FieldType::Long), "Ok(Long(-2))");
        assert_eq!(converted(Value::Double(f64::NAN), FieldType::Long), "Ok(Long(0))");
        assert_eq!(converted(Value::Carray(b"a\0b"), FieldType::String), "Ok(String([97]))");
        assert_eq!(converted(Value::Char(0), FieldType::String), "Ok(String([]))");
        assert_eq!(converted(Value::String(b""), FieldType::Char), "Ok(Char(0))");
    }

    #[test]
    fn addresses_are_numbers_and_hexadecimal_texts() {
        assert_eq!(converted(Value::Ptr(9), FieldType::Ptr), "Ok(Ptr(9))");
        assert_eq!(converted(Value::Ptr(0x12b), FieldType::Long), "Ok(Long(299))");
        assert_eq!(converted(Value::Ptr(0x12b), FieldType::Short), "Ok(Short(299))");
        assert_eq!(converted(Value::Ptr(0x12b), FieldType::Char), "Ok(Char(43))");
        assert_eq!(converted(Value::Ptr(0x12b), FieldType::Double), "Ok(Double(299.0))");
        assert_eq!(converted(Value::Long(-1), FieldType::Ptr), format!("Ok(Ptr({}))", u64::MAX));
        let mut scratch = Scratch::new();
        let text = Value::Ptr(0xdead_beef).convert(FieldType::String, &mut scratch);
        assert_eq!(text, Ok(Value::String(b"0xdeadbeef")));
        for (text, address) in
            [("0xc7", 0xc7), (" 0XC7 x", 0xc7), ("CARRAY", 0), ("7", 0), ("", 0), ("zero", 0)]
        {
            let mut scratch = Scratch::new();
            let read = Value::from(text).convert(FieldType::Ptr, &mut scratch);
            assert_eq!(read, Ok(Value::Ptr(address)), "{text}");
        }
    }

    #[test]
    fn buffers_and_views_are_converted_to_nothing() {
        for (value, to) in [
            (Value::Ptr(9), FieldType::Ubf),
            (Value::Long(9), FieldType::Ubf),
            (Value::Long(9), FieldType::View),
            (Value::Ubf(UbfRef::EMPTY), FieldType::Ptr),
            (Value::Ubf(UbfRef::EMPTY), FieldType::String),
        ] {
            let refused = value.convert(to, &mut Scratch::new()).expect_err("refused").number();
            assert_eq!(refused, 22, "{value:?} to {to}");
        }
    }
}
