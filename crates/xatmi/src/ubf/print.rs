//! Fields as text for people: one line each, `NAME<tab>value`, as `Bprint` writes it.
//!
//! The tools and the C interface call it; [`read_printed`](super::read_printed) reads it back. Text
//! is ASCII: other bytes, control characters and the backslash itself are written as a backslash
//! and two hexadecimal digits, or as two backslashes. The fields of an inner buffer follow their
//! line with one more tab in front. A field without a name in the table is `((BFLDID32)number)`.

use std::fmt::Write;

use super::{Field, UbfError, UbfRef, Value};
use crate::field_table::FieldTable;

/// All fields as text; names come from `table`.
///
/// # Errors
/// [`UbfError::NotFielded`] for a damaged region.
pub fn print(fields: UbfRef<'_>, table: &FieldTable) -> Result<String, UbfError> {
    let mut out = String::new();
    print_within(UbfRef::check(fields.used_bytes())?, table, 0, &mut out);
    Ok(out)
}

fn print_within(fields: UbfRef<'_>, table: &FieldTable, depth: usize, out: &mut String) {
    for Field { id, value, .. } in fields {
        out.extend(std::iter::repeat_n('\t', depth));
        match table.name(id) {
            Some(name) => out.push_str(name),
            None => append(out, id),
        }
        out.push('\t');
        print_value(value, out);
        out.push('\n');
        if let Value::Ubf(inner) = value {
            print_within(inner, table, depth + 1, out);
        }
    }
}

fn print_value(value: Value<'_>, out: &mut String) {
    match value {
        Value::Short(number) => append(out, number),
        Value::Long(number) => append(out, number),
        Value::Float(number) => print_floating(number.into(), number, out),
        Value::Double(number) => print_floating(number, number, out),
        Value::Ptr(number) => append(out, format_args!("{number:#x}")),
        Value::Char(byte) => print_bytes(&[byte], out),
        Value::String(bytes) | Value::Carray(bytes) => print_bytes(bytes, out),
        Value::Ubf(_) => {}
    }
}

/// The sign of what is no number is part of the value, and its own text leaves it out.
fn print_floating(number: f64, text: impl std::fmt::Display, out: &mut String) {
    if number.is_nan() && number.is_sign_negative() {
        out.push('-');
    }
    append(out, text);
}

fn print_bytes(bytes: &[u8], out: &mut String) {
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => append(out, format_args!("\\{byte:02x}")),
        }
    }
}

fn append(out: &mut String, text: impl std::fmt::Display) {
    write!(out, "{text}").expect("a string takes everything");
}
