//! Fields as text and back: lines for people (`Bprint`, `Bextread`), and a JSON object (`tpubftojson`,
//! `tpjsontoubf`).
//!
//! The tools and the C interface call it. As lines, each field is `NAME<tab>value`. Text is ASCII: other
//! bytes, control characters and the backslash itself are written as a backslash and two hexadecimal
//! digits, or as two backslashes. The fields of an inner buffer follow their line with one more tab in
//! front; those of a view are its members, behind a line with the view's name. A field without a name in the table is
//! `((BFLDID32)number)`. When lines are read, blank ones
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

use std::borrow::Cow;
use std::fmt::Write;
use std::iter::Peekable;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json};
use thiserror::Error;

use super::{
    Field, FieldId, FieldType, NESTING_MAX, Ubf, UbfError, UbfRef, VIEW_NAME_BYTES, Value,
};
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

/// What lines may speak of. Buffers know nothing of views; those of a process are in [`crate::view::LINES`].
#[derive(Clone, Copy, Debug)]
pub struct LineForm {
    /// The lines of a struct, given the name of its view.
    pub print_view: fn(&str, &[u8]) -> Result<String, UbfError>,
    /// The struct that lines describe, given the name of its view.
    pub read_view: fn(&str, &str) -> Result<Vec<u8>, UbfError>,
    /// Whether lines with addresses of memory are read; they are passed over otherwise.
    pub reads_addresses: bool,
}

impl LineForm {
    /// All but views, none of which is known.
    pub const PLAIN: Self = Self {
        print_view: |_, _| Err(UbfError::BadView),
        read_view: |_, _| Err(UbfError::BadView),
        reads_addresses: true,
    };
}

/// All fields as text; names come from `table`. Of a view that `form` does not know there is only its name.
///
/// # Errors
/// [`UbfError::NotFielded`] for a damaged region.
pub fn print(fields: UbfRef<'_>, table: &FieldTable, form: &LineForm) -> Result<String, UbfError> {
    let mut out = String::new();
    print_within(UbfRef::check(fields.used_bytes())?, (table, form), 0, &mut out);
    Ok(out)
}

/// The fields of a text of lines `NAME<tab>value`; names are looked up in `table`.
///
/// # Errors
/// [`UbfError::Syntax`] with the line, [`UbfError::BadName`] for a name that is not in the table,
/// [`UbfError::BadView`] for a view that `form` does not know, [`UbfError::NoMember`], the errors of [`FieldId::from_raw`] for a wrong number in its place.
pub fn read_printed(text: &str, table: &FieldTable, form: &LineForm) -> Result<Ubf, UbfError> {
    let mut fields = Ubf::new();
    apply_printed(text, table, form, &mut fields)?;
    Ok(fields)
}

/// The same onto fields that are there; they are half changed after an error.
///
/// # Errors
/// As [`read_printed`], and [`UbfError::NotPresent`] for `=` from a field that is not there.
pub fn apply_printed(
    text: &str,
    table: &FieldTable,
    form: &LineForm,
    fields: &mut Ubf,
) -> Result<(), UbfError> {
    let lines = text.lines().enumerate().map(|(index, line)| Line { number: index + 1, line });
    let mut lines = lines.filter(|line| !line.is_ignored()).peekable();
    read_within(&mut lines, (table, form), 0, fields)?;
    match lines.next() {
        Some(line) => Err(line.wrong("only what is within a buffer or a view stands behind a tab")),
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
    object(fields, table)
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

/// Where names of fields come from, and the form of all else.
type Names<'a> = (&'a FieldTable, &'a LineForm);

fn print_within(fields: UbfRef<'_>, names: Names<'_>, depth: usize, out: &mut String) {
    let (table, form) = names;
    for Field { id, value, .. } in fields {
        out.extend(std::iter::repeat_n('\t', depth));
        match table.name(id) {
            Some(name) => out.push_str(name),
            None => append(out, id),
        }
        out.push('\t');
        print_value(value, out);
        out.push('\n');
        match value {
            Value::Ubf(inner) => print_within(inner, names, depth + 1, out),
            Value::View(stored) if stored.len() > VIEW_NAME_BYTES => {
                let name = view_name(stored);
                let data = &stored[VIEW_NAME_BYTES..];
                for line in (form.print_view)(&name, data).unwrap_or_default().lines() {
                    out.extend(std::iter::repeat_n('\t', depth + 1));
                    out.push_str(line);
                    out.push('\n');
                }
            }
            _ => {}
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
        Value::View(stored) => print_bytes(view_name(stored).as_bytes(), out),
    }
}

/// The name in front of a stored struct; an empty one has none.
fn view_name(stored: &[u8]) -> Cow<'_, str> {
    let name = &stored[..VIEW_NAME_BYTES.min(stored.len())];
    String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default())
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
        // Behind a sign the name may stand a blank away, as people write it.
        let line = if change == Change::Add { line } else { line.trim_start_matches(' ') };
        match line.split_once('\t') {
            Some((name, value)) => Ok((change, self.id(name, table)?, value)),
            None if change == Change::Delete => Ok((change, self.id(line, table)?, "")),
            None => Err(self.wrong("a line is a name, a tab and a value")),
        }
    }

    fn id(&self, name: &str, table: &FieldTable) -> Result<FieldId, UbfError> {
        match FieldId::printed_number(name) {
            Some(raw) => {
                let raw: i64 = self.number(raw)?;
                let id = raw.clamp(i32::MIN.into(), i32::MAX.into());
                let id = i32::try_from(id).unwrap_or_default();
                FieldId::from_raw(id).map_err(|_| UbfError::BadField { id })
            }
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
    names: Names<'_>,
    depth: usize,
    fields: &mut Ubf,
) -> Result<(), UbfError> {
    let (table, form) = names;
    while let Some(line) = lines.next_if(|line| line.depth() == depth) {
        let (change, id, text) = line.field(table)?;
        if id.field_type() == FieldType::Ptr && !form.reads_addresses {
            continue;
        }
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
                    read_within(lines, names, depth + 1, &mut inner)?;
                    value.add(id, inner.fields())?;
                } else if id.field_type() == FieldType::View {
                    value.add(id, Value::View(&view_of(lines, form, (line, text), depth)?))?;
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

/// What a buffer holds for the view that `text` names, whose members stand in the next lines.
fn view_of<'a>(
    lines: &mut Peekable<impl Iterator<Item = Line<'a>>>,
    form: &LineForm,
    (line, text): (Line<'_>, &str),
    depth: usize,
) -> Result<Vec<u8>, UbfError> {
    let mut members = String::new();
    let mut numbers = Vec::new();
    while let Some(member) = lines.next_if(|member| member.depth() == depth + 1) {
        members.push_str(&member.line[depth + 1..]);
        members.push('\n');
        numbers.push(member.number);
    }
    let mut stored = vec![0; VIEW_NAME_BYTES];
    if text.is_empty() && numbers.is_empty() {
        return Ok(stored);
    }
    if text.is_empty() || text.len() >= VIEW_NAME_BYTES {
        return Err(line.wrong("the name of a view is expected behind the tab"));
    }
    let data = (form.read_view)(text, &members).map_err(|error| match error {
        // Lines of a struct are counted from its own first one.
        UbfError::Syntax { line: own, reason } => {
            let number = numbers.get(own.wrapping_sub(1)).copied().unwrap_or(line.number);
            UbfError::Syntax { line: number, reason }
        }
        error => error,
    })?;
    stored[..text.len()].copy_from_slice(text.as_bytes());
    stored.extend_from_slice(&data);
    Ok(stored)
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

/// Names stand in the order of their fields.
fn object(fields: UbfRef<'_>, table: &FieldTable) -> Result<String, JsonError> {
    let mut out = String::from("{");
    let mut fields = fields.into_iter().peekable();
    while let Some(first) = fields.next() {
        let name = table.name(first.id).map_or_else(|| first.id.to_string(), str::to_owned);
        let mut values = vec![json_of(&name, first.value, table)?];
        while let Some(more) = fields.next_if(|next| next.id == first.id) {
            values.push(json_of(&name, more.value, table)?);
        }
        if out.len() > 1 {
            out.push(',');
        }
        append(&mut out, Json::from(name));
        out.push(':');
        match &values[..] {
            [one] => out.push_str(one),
            all => append(&mut out, format_args!("[{}]", all.join(","))),
        }
    }
    out.push('}');
    Ok(out)
}

/// A value, which is called `name` in errors.
pub(crate) fn json_of(
    name: &str,
    value: Value<'_>,
    table: &FieldTable,
) -> Result<String, JsonError> {
    let wrong = |reason| JsonError::Value { name: name.to_owned(), reason };
    let floating = |number: f64| {
        Number::from_f64(number).map(Json::Number).ok_or_else(|| wrong("JSON has no such number"))
    };
    let value = match value {
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
        Value::Ubf(inner) => return object(inner, table),
        Value::View(_) => return Err(UbfError::BadView.into()),
    };
    Ok(value.to_string())
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
pub(crate) fn add_json(
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
        // In the order of the fields: by type, then by number.
        let text = r#"{"S":-3,"L":[1,-9223372036854775808],"((BFLDID32)33554532)":7,"C":"x","F":0.1,"D":1.5e-7,"T":["a\"ä",""],"B":"AP8=","P":255,"U":[{"U":{"T":"deep"}},{}]}"#;
        let fields = from_json(text, &table).expect("sound");
        assert_eq!(to_json(fields.fields(), &table).as_deref(), Ok(text));
        assert_eq!(fields.get(table.id("B").expect("known"), 0), Ok(Value::Carray(b"\0\xff")));
    }

    #[test]
    fn values_are_converted_to_the_type_of_the_field() {
        let table = table();
        let text = r#" {"S":"12","T":1.50,"L":[true,null,2.9],"D":3,"C":7,"F":"0.5x"} "#;
        let fields = from_json(text, &table).expect("sound");
        let expected = r#"{"S":12,"L":[1,2],"C":"7","F":0.5,"D":3.0,"T":"1.5"}"#;
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
            ("{\"V\":1}", "a field that holds a view"),
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
