//! Fields as text for people and back: `Bprint`, `Bextread`.
//!
//! The tools and the C interface call it. Each field is a line, `NAME<tab>value`. Text is ASCII: other
//! bytes, control characters and the backslash itself are written as a backslash and two hexadecimal
//! digits, or as two backslashes. The fields of an inner buffer follow their line with one more tab in
//! front. A field without a name in the table is `((BFLDID32)number)`. When lines are read, blank ones
//! and those that start with `#` are ignored; a sign in front of a name changes what is done:
//!
//! | in front of the name | means |
//! |---|---|
//! | nothing | the value is added |
//! | `+` | the first occurrence gets the value |
//! | `-` | the first occurrence goes, if there is one |
//! | `=` | the first occurrence gets the value of the field whose name stands for the value |

use std::fmt::Write;
use std::iter::Peekable;

use super::{Field, FieldId, FieldType, NESTING_MAX, Ubf, UbfError, UbfRef, Value};
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

/// The sign of a NaN is part of the value, and the standard text leaves it out.
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

/// The fields of a text of lines `NAME<tab>value`; names are looked up in `table`.
///
/// # Errors
/// [`UbfError::Syntax`] with the line, [`UbfError::BadName`] for a name that is not in the table,
/// the errors of [`FieldId::from_raw`] for a wrong number in its place.
pub fn read_printed(text: &str, table: &FieldTable) -> Result<Ubf, UbfError> {
    let mut fields = Ubf::new();
    apply_printed(text, table, &mut fields)?;
    Ok(fields)
}

/// The same onto fields that are there; they are half changed after an error.
///
/// # Errors
/// As [`read_printed`], and [`UbfError::NotPresent`] for `=` from a field that is not there.
pub fn apply_printed(text: &str, table: &FieldTable, fields: &mut Ubf) -> Result<(), UbfError> {
    let lines = text.lines().enumerate().map(|(index, line)| Line { number: index + 1, line });
    let mut lines = lines.filter(|line| !line.is_ignored()).peekable();
    read_within(&mut lines, table, 0, fields)?;
    match lines.next() {
        Some(line) => Err(line.wrong("only the fields of an inner buffer stand behind a tab")),
        None => Ok(()),
    }
}

/// The change that a line makes to its field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Replace,
    Delete,
    Assign,
}

/// A line with its number, from 1.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    line: &'a str,
}

impl<'a> Line<'a> {
    fn is_ignored(&self) -> bool {
        self.line.trim().is_empty() || self.line.starts_with('#')
    }

    /// Tabs in front: how many buffers it stands within.
    fn depth(&self) -> usize {
        self.line.bytes().take_while(|&b| b == b'\t').count()
    }

    fn field(&self, table: &FieldTable) -> Result<(Change, FieldId, &'a str), UbfError> {
        let line = self.line.trim_start_matches('\t');
        let (change, line) = match line.as_bytes().first() {
            Some(b'+') => (Change::Replace, &line[1..]),
            Some(b'-') => (Change::Delete, &line[1..]),
            Some(b'=') => (Change::Assign, &line[1..]),
            _ => (Change::Add, line),
        };
        match line.split_once('\t') {
            Some((name, value)) => Ok((change, self.id(name, table)?, value)),
            None if change == Change::Delete => Ok((change, self.id(line, table)?, "")),
            None => Err(self.wrong("a line is a name, a tab and a value")),
        }
    }

    fn id(&self, name: &str, table: &FieldTable) -> Result<FieldId, UbfError> {
        match FieldId::printed_number(name) {
            Some(raw) => FieldId::from_raw(self.number(raw)?),
            None => table.id(name).ok_or(UbfError::BadName),
        }
    }

    fn number<T: std::str::FromStr>(&self, text: &str) -> Result<T, UbfError> {
        text.parse().map_err(|_| self.wrong("expected a number that the field can hold"))
    }

    fn wrong(&self, reason: &'static str) -> UbfError {
        UbfError::Syntax { line: self.number, reason }
    }
}

fn read_within<'a>(
    lines: &mut Peekable<impl Iterator<Item = Line<'a>>>,
    table: &FieldTable,
    depth: usize,
    fields: &mut Ubf,
) -> Result<(), UbfError> {
    while let Some(line) = lines.next_if(|line| line.depth() == depth) {
        let (change, id, text) = line.field(table)?;
        match change {
            Change::Delete => match fields.delete(id, 0) {
                Ok(()) | Err(UbfError::NotPresent { .. }) => {}
                Err(error) => return Err(error),
            },
            Change::Assign => assign(fields, id, line.id(text, table)?)?,
            Change::Add | Change::Replace => {
                let mut value = Ubf::new();
                if id.field_type() == FieldType::Ubf {
                    if depth == NESTING_MAX {
                        return Err(line.wrong("at most 16 buffers are within one another"));
                    }
                    let mut inner = Ubf::new();
                    read_within(lines, table, depth + 1, &mut inner)?;
                    value.add(id, inner.fields())?;
                } else if change == Change::Add {
                    add(fields, line, id, text)?;
                    continue;
                } else {
                    add(&mut value, line, id, text)?;
                }
                let value = value.get(id, 0)?;
                match change {
                    Change::Add => fields.add(id, value)?,
                    _ => fields.change(id, 0, value)?,
                }
            }
        }
    }
    Ok(())
}

/// Gives the first occurrence of a field the value of another one.
fn assign(fields: &mut Ubf, id: FieldId, from: FieldId) -> Result<(), UbfError> {
    let source = fields.clone();
    id.field_type().check_converts(from.field_type())?;
    fields.change_as(id, 0, source.get(from, 0)?)
}

fn add(fields: &mut Ubf, line: Line<'_>, id: FieldId, text: &str) -> Result<(), UbfError> {
    match id.field_type() {
        FieldType::Short => fields.add(id, Value::Short(line.number(text)?)),
        FieldType::Long => fields.add(id, Value::Long(line.number(text)?)),
        FieldType::Float => fields.add(id, Value::Float(line.number(text)?)),
        FieldType::Double => fields.add(id, Value::Double(line.number(text)?)),
        FieldType::Char => match bytes(line, text)?[..] {
            [byte] => fields.add(id, Value::Char(byte)),
            _ => Err(line.wrong("a char is one character")),
        },
        FieldType::String => fields.add(id, Value::String(&bytes(line, text)?)),
        FieldType::Carray => fields.add(id, Value::Carray(&bytes(line, text)?)),
        FieldType::Ptr => {
            let digits = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
            let number =
                digits.ok_or_else(|| line.wrong("an address is 0x and hexadecimal digits"))?;
            fields.add(id, Value::Ptr(number))
        }
        FieldType::Ubf | FieldType::View => Err(UbfError::BadView),
    }
}

/// The bytes behind the escapes of [`print`](print()).
fn bytes(line: Line<'_>, text: &str) -> Result<Vec<u8>, UbfError> {
    const ESCAPE: &str = "a backslash is followed by another or by two hex digits";
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => {
                out.push(b'\\');
                rest = after;
            }
            (b'\\', [high, low, after @ ..]) => {
                let digit = |hex: u8| char::from(hex).to_digit(16);
                let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
                    return Err(line.wrong(ESCAPE));
                };
                out.push((high << 4 | low) as u8);
                rest = after;
            }
            (b'\\', _) => return Err(line.wrong(ESCAPE)),
            _ => out.push(byte),
        }
    }
    Ok(out)
}
