//! Texts of fields in which each byte other than a printable character of ASCII is written as a backslash and two
//! hexadecimal digits, and a backslash as two: the form that JSON has with `NDRX_APIFLAGS=json_escape`.
//!
//! C programs ask for it where they make JSON of fields, or fields of JSON. Texts that are not UTF-8 go through JSON so.

use super::{Field, Ubf, UbfError, UbfRef, Value};

/// The same fields with texts that are escaped.
///
/// # Errors
/// Those of a region that is damaged or too long.
pub fn escaped(fields: UbfRef<'_>) -> Result<Ubf, UbfError> {
    changed(fields, &|text| {
        let mut out = Vec::with_capacity(text.len());
        for &byte in text {
            match byte {
                b'\\' => out.extend_from_slice(b"\\\\"),
                b' '..=b'~' => out.push(byte),
                _ => out.extend_from_slice(format!("\\{byte:02x}").as_bytes()),
            }
        }
        Some(out)
    })
}

/// The fields of which [`escaped`] made these.
///
/// # Errors
/// [`UbfError::Invalid`] for a backslash without two digits or another backslash behind it, and for an escaped NUL.
pub fn unescaped(fields: UbfRef<'_>) -> Result<Ubf, UbfError> {
    changed(fields, &|text| {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let [byte, after @ ..] = rest {
            rest = after;
            if *byte != b'\\' {
                out.push(*byte);
                continue;
            }
            let [first, after @ ..] = rest else { return None };
            if *first == b'\\' {
                out.push(b'\\');
                rest = after;
                continue;
            }
            let [second, after @ ..] = after else { return None };
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let number = (digit(*first)? << 4) | digit(*second)?;
            out.push(u8::try_from(number).ok().filter(|byte| *byte != 0)?);
            rest = after;
        }
        Some(out)
    })
}

fn changed(fields: UbfRef<'_>, each: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Result<Ubf, UbfError> {
    let mut made = Ubf::new();
    for Field { id, value, .. } in fields {
        match value {
            Value::String(text) => {
                let reason = "a backslash in a text needs two hexadecimal digits or a backslash";
                let text = each(text).ok_or(UbfError::Invalid { reason })?;
                made.add(id, Value::String(&text))?;
            }
            Value::Ubf(inner) => made.add(id, changed(inner, each)?.fields())?,
            other => made.add(id, other)?,
        }
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ubf::{FieldId, FieldType};

    const fn id(number: i32, field_type: FieldType) -> FieldId {
        FieldId::new(field_type, number)
    }

    #[test]
    fn each_text_comes_back_from_its_escapes() {
        let text = id(1, FieldType::String);
        let inner = id(2, FieldType::Ubf);
        let mut fields = Ubf::new();
        fields.add(text, Value::String(b"a\\b \x01\x7f\xff")).expect("room");
        let mut within = Ubf::new();
        within.add(text, Value::String(b"\n")).expect("room");
        fields.add(inner, within.fields()).expect("room");
        let made = escaped(fields.fields()).expect("sound");
        let first = made.fields().into_iter().next().expect("one");
        assert_eq!(first.value, Value::String(br"a\\b \01\7f\ff"));
        let back = unescaped(made.fields()).expect("sound");
        assert_eq!(back.used_bytes(), fields.used_bytes());
    }

    #[test]
    fn a_backslash_needs_digits() {
        for text in [r"\", r"\1", r"\zz", r"a\0"] {
            let mut fields = Ubf::new();
            fields.add(id(1, FieldType::String), Value::String(text.as_bytes())).expect("room");
            let error = unescaped(fields.fields()).expect_err(text);
            assert!(error.to_string().contains("backslash"), "{error}");
        }
        let mut fields = Ubf::new();
        fields.add(id(1, FieldType::String), Value::String(br"\00")).expect("room");
        assert!(unescaped(fields.fields()).is_err());
    }
}
