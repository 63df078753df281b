//! Fields as text and back: lines for people (`Bprint`, `Bextread`), and a JSON object (`tpubftojson`,
//! `tpjsontoubf`).
//!
//! The tools and the C interface call it. As lines, each field is `NAME<tab>value`. Text is ASCII: other
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
//!
//! In JSON a name stands for its field, an id without a name for itself (`((BFLDID32)5)`); several
//! occurrences are an array, an inner buffer is an object, bytes are base64. The fields that a text
//! becomes are bounded, so any text may be read.

use std::fmt::Write;
use std::iter::Peekable;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json};
use thiserror::Error;

use super::{Field, FieldId, FieldType, NESTING_MAX, Ubf, UbfError, UbfRef, Value};
use crate::field_table::FieldTable;

/// Why fields cannot be written as JSON, or a text cannot be read as fields.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JsonError {
    /// The buffer, or what was put into one.
    #[error("{0}")]
    Fields(#[from] UbfError),
    /// The text is not JSON, or not an object.
    #[error("{reason}")]
    Syntax {
        /// The mistake, with line and column.
        reason: String,
    },
    /// A name that no field table has.
    #[error("no field table has {name}")]
    UnknownField { name: String },
    /// A value that the field cannot have, or JSON cannot have.
    #[error("field {name}: {reason}")]
    Value {
        name: String,
        /// The mistake, and what is expected.
        reason: &'static str,
    },
}

/// All fields as text; names come from `table`.
///
/// # Errors
/// [`UbfError::NotFielded`] for a damaged region.
pub fn print(fields: UbfRef<'_>, table: &FieldTable) -> Result<String, UbfError> {
    let mut out = String::new();
    print_within(UbfRef::check(fields.used_bytes())?, table, 0, &mut out);
    Ok(out)
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

/// All fields as an object in one line; names come from `table`.
///
/// # Errors
/// [`JsonError::Fields`] for a damaged region, [`JsonError::Value`] for a text that is not UTF-8 and
/// for a NaN or an infinity.
pub fn to_json(fields: UbfRef<'_>, table: &FieldTable) -> Result<String, JsonError> {
    let fields = UbfRef::check(fields.used_bytes())?;
    Ok(Json::Object(object(fields, table)?).to_string())
}

/// The fields of an object; names are looked up in `table`.
///
/// # Errors
/// [`JsonError`] with the field that was wrong.
pub fn from_json(text: &str, table: &FieldTable) -> Result<Ubf, JsonError> {
    match serde_json::from_str(text) {
        Ok(Json::Object(object)) => fields(&object, table),
        Ok(_) => Err(JsonError::Syntax { reason: "an object is expected: {...}".to_owned() }),
        Err(error) => Err(JsonError::Syntax { reason: error.to_string() }),
    }
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
        Value::Float(number) => print_floating(number.into(), 5, out),
        Value::Double(number) => print_floating(number, 6, out),
        Value::Ptr(number) => append(out, format_args!("{number:#x}")),
        Value::Char(byte) => print_bytes(&[byte], out),
        Value::String(bytes) | Value::Carray(bytes) => print_bytes(bytes, out),
        Value::Ubf(_) => {}
    }
}

/// With as many digits behind the point as a conversion to a text has. The sign of a NaN is part of the value.
fn print_floating(number: f64, digits: usize, out: &mut String) {
    match (number.is_nan(), number.is_sign_negative()) {
        (true, true) => out.push_str("-nan"),
        (true, false) => out.push_str("nan"),
        (false, _) => append(out, format_args!("{number:.digits$}")),
    }
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

fn object(fields: UbfRef<'_>, table: &FieldTable) -> Result<Map<String, Json>, JsonError> {
    let mut object: Map<String, Json> = Map::new();
    for field in fields {
        let name = table.name(field.id).map_or_else(|| field.id.to_string(), str::to_owned);
        let value = json(&name, field.value, table)?;
        match object.get_mut(&name) {
            None => drop(object.insert(name, value)),
            Some(Json::Array(all)) => all.push(value),
            Some(first) => *first = Json::Array(vec![first.take(), value]),
        }
    }
    Ok(object)
}

fn json(name: &str, value: Value<'_>, table: &FieldTable) -> Result<Json, JsonError> {
    let wrong = |reason| JsonError::Value { name: name.to_owned(), reason };
    let floating = |number: f64| {
        Number::from_f64(number).map(Json::Number).ok_or_else(|| wrong("JSON has no such number"))
    };
    Ok(match value {
        Value::Short(number) => Json::from(number),
        Value::Long(number) => Json::from(number),
        // By its text, so that 0.1 stays 0.1.
        Value::Float(number) => floating(number.to_string().parse().unwrap_or(f64::NAN))?,
        Value::Double(number) => floating(number)?,
        Value::Ptr(address) => Json::from(address),
        Value::Char(0) => Json::from(""),
        Value::Char(byte) if byte.is_ascii() => Json::from(char::from(byte).to_string()),
        Value::Char(_) => return Err(wrong("the character is not UTF-8")),
        Value::String(text) => {
            Json::from(str::from_utf8(text).map_err(|_| wrong("the text is not UTF-8"))?)
        }
        Value::Carray(bytes) => Json::from(STANDARD.encode(bytes)),
        Value::Ubf(inner) => Json::Object(object(inner, table)?),
    })
}

fn fields(object: &Map<String, Json>, table: &FieldTable) -> Result<Ubf, JsonError> {
    let mut fields = Ubf::new();
    for (name, value) in object {
        let id = id(name, table)?;
        match value {
            Json::Array(all) => {
                all.iter().try_for_each(|value| add_json(&mut fields, (name, id), value, table))?;
            }
            one => add_json(&mut fields, (name, id), one, table)?,
        }
    }
    Ok(fields)
}

fn id(name: &str, table: &FieldTable) -> Result<FieldId, JsonError> {
    match FieldId::printed_number(name).and_then(|number| number.parse().ok()) {
        Some(raw) => Ok(FieldId::from_raw(raw)?),
        None => table.id(name).ok_or_else(|| JsonError::UnknownField { name: name.to_owned() }),
    }
}

/// Adds one occurrence; null adds nothing.
fn add_json(
    to: &mut Ubf,
    (name, id): (&str, FieldId),
    value: &Json,
    table: &FieldTable,
) -> Result<(), JsonError> {
    let wrong = |reason| JsonError::Value { name: name.to_owned(), reason };
    match (value, id.field_type()) {
        (Json::Null, _) => Ok(()),
        (_, FieldType::View) => Err(UbfError::BadView.into()),
        (Json::Object(inner), FieldType::Ubf) => Ok(to.add(id, fields(inner, table)?.fields())?),
        (_, FieldType::Ubf) => Err(wrong("an object is expected")),
        (Json::String(text), FieldType::Carray) => {
            let bytes = STANDARD.decode(text).map_err(|_| wrong("base64 is expected"))?;
            Ok(to.add(id, Value::Carray(&bytes))?)
        }
        (_, FieldType::Carray) => Err(wrong("a text with base64 is expected")),
        (Json::String(text), FieldType::Char) if text.len() > 1 => {
            Err(wrong("a text of one character is expected"))
        }
        (Json::String(text), _) if text.contains('\0') => Err(wrong("a text has no NUL in it")),
        (Json::String(text), _) => Ok(to.add_as(id, Value::String(text.as_bytes()))?),
        (Json::Bool(is_true), _) => Ok(to.add_as(id, Value::Long((*is_true).into()))?),
        (Json::Number(number), FieldType::Ptr) => {
            let address = number.as_u64().ok_or_else(|| wrong("an address is a whole number"))?;
            Ok(to.add(id, Value::Ptr(address))?)
        }
        (Json::Number(number), FieldType::Char) => {
            let digits = number.to_string();
            match digits.as_bytes() {
                [_] => Ok(to.add_as(id, Value::String(digits.as_bytes()))?),
                _ => Err(wrong("a text of one character is expected")),
            }
        }
        // The digits as they stand there.
        (Json::Number(number), FieldType::String) => {
            Ok(to.add_as(id, Value::String(number.to_string().as_bytes()))?)
        }
        (Json::Number(number), _) => match number.as_i64() {
            Some(whole) => Ok(to.add_as(id, Value::Long(whole))?),
            None => Ok(to.add_as(id, Value::Double(number.as_f64().unwrap_or(0.0)))?),
        },
        (Json::Array(_) | Json::Object(_), _) => Err(wrong("one value is expected")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::field_table::FieldFile;

    fn table() -> FieldTable {
        const FIELDS: &str = "S 1 short\nL 2 long\nC 3 char\nF 4 float\nD 5 double\nT 6 string\n\
                              B 7 carray\nP 8 ptr\nU 9 ubf\nV 10 view\n";
        let file = FieldFile::parse(Path::new("fields.fd"), FIELDS).expect("sound");
        let mut table = FieldTable::new();
        table.insert(&file).expect("new");
        table
    }

    #[test]
    fn fields_become_an_object_and_come_back() {
        let table = table();
        let text = r#"{"((BFLDID32)33554532)":7,"B":"AP8=","C":"x","D":1.5e-7,"F":0.1,"L":[1,-9223372036854775808],"P":255,"S":-3,"T":["a\"ä",""],"U":[{"U":{"T":"deep"}},{}]}"#;
        let fields = from_json(text, &table).expect("sound");
        assert_eq!(to_json(fields.fields(), &table).as_deref(), Ok(text));
        assert_eq!(fields.get(table.id("B").expect("known"), 0), Ok(Value::Carray(b"\0\xff")));
    }

    #[test]
    fn values_are_converted_to_the_type_of_the_field() {
        let table = table();
        let text = r#" {"S":"12","T":1.50,"L":[true,null,2.9],"D":3,"C":7,"F":"0.5x"} "#;
        let fields = from_json(text, &table).expect("sound");
        let expected = r#"{"C":"7","D":3.0,"F":0.5,"L":[1,2],"S":12,"T":"1.5"}"#;
        assert_eq!(to_json(fields.fields(), &table).as_deref(), Ok(expected));
    }

    #[test]
    fn an_error_names_the_field() {
        let deep = format!("{}{}", r#"{"U":"#.repeat(30), "{}".to_owned() + &"}".repeat(30));
        let deeper = format!("{}{}", r#"{"U":"#.repeat(200), "1".to_owned() + &"}".repeat(200));
        for (text, words) in [
            ("", "EOF"),
            ("[1]", "an object is expected"),
            ("{\"L\":1", "EOF"),
            ("{\"X\":1}", "no field table has X"),
            ("{\"((BFLDID32)0)\":1}", "0 is not a field id"),
            ("{\"U\":1}", "field U: an object is expected"),
            ("{\"L\":{}}", "field L: one value is expected"),
            ("{\"L\":[[1]]}", "field L: one value is expected"),
            ("{\"B\":\"*\"}", "field B: base64"),
            ("{\"B\":5}", "field B: a text with base64"),
            ("{\"C\":\"ab\"}", "field C: a text of one character"),
            ("{\"C\":12}", "field C: a text of one character"),
            ("{\"T\":\"a\\u0000\"}", "field T: a text has no NUL"),
            ("{\"P\":-1}", "field P: an address"),
            ("{\"V\":1}", "views are not supported"),
            (&deep, "within"),
            (&deeper, "recursion limit"),
        ] {
            let error = from_json(text, &table()).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let of = |name, value: Value<'_>| {
            let mut fields = Ubf::new();
            fields.add(table().id(name).expect("known"), value).expect("added");
            to_json(fields.fields(), &table()).expect_err("no JSON").to_string()
        };
        assert!(of("T", Value::String(b"\xff")).contains("field T: the text is not UTF-8"));
        assert!(of("C", Value::Char(0xff)).contains("field C"));
        assert!(of("D", Value::Double(f64::NAN)).contains("JSON has no such number"));
    }
}
