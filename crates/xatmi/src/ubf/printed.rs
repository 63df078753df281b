//! Printed fields back into a buffer, as `Bextread` does.
//!
//! The tools and the C interface call it with what [`print`](super::print()) wrote or a person
//! typed. Blank lines and lines that start with `#` say nothing. It opens no files.
//!
//! | in front of the name | means |
//! |---|---|
//! | nothing | the value is added |
//! | `+` | the first occurrence gets the value |
//! | `-` | the first occurrence goes, if there is one |
//! | `=` | the first occurrence gets the value of the field whose name stands for the value |

use std::iter::Peekable;

use super::{FieldId, FieldType, NESTING_MAX, Ubf, UbfError, Value};
use crate::field_table::FieldTable;

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
    let mut lines = lines.filter(|line| !line.is_silent()).peekable();
    read_within(&mut lines, table, 0, fields)?;
    match lines.next() {
        Some(line) => Err(line.wrong("only the fields of an inner buffer stand behind a tab")),
        None => Ok(()),
    }
}

/// What a line does with its field.
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
    fn is_silent(&self) -> bool {
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
        match name.strip_prefix("((BFLDID32)").and_then(|rest| rest.strip_suffix(')')) {
            Some(raw) => FieldId::from_raw(self.number(raw)?),
            None => table.id(name).ok_or(UbfError::BadName),
        }
    }

    fn number<T: std::str::FromStr>(&self, text: &str) -> Result<T, UbfError> {
        text.parse().map_err(|_| self.wrong("this is no number, or none that the field can hold"))
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

/// The bytes behind the escapes of [`print`](super::print()).
fn bytes(line: Line<'_>, text: &str) -> Result<Vec<u8>, UbfError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => {
                out.push(b'\\');
                rest = after;
            }
            (b'\\', [high, low, after @ ..]) if is_hex(*high) && is_hex(*low) => {
                out.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            (b'\\', _) => {
                return Err(line.wrong("a backslash is followed by another or by two hex digits"));
            }
            _ => out.push(byte),
        }
    }
    Ok(out)
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

fn digit(hex: u8) -> u8 {
    match hex {
        b'0'..=b'9' => hex - b'0',
        _ => (hex | 0x20) - b'a' + 10,
    }
}
