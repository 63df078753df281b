//! Typed buffers as text, and back: `tpexport`, `tpimport`.
//!
//! ```json
//! {"buftype":"UBF","version":1,"data":{"T_NAME":"Ada","T_AGE":[7,8]}}
//! {"buftype":"VIEW","version":1,"subtype":"PERSON","data":{"age":44}}
//! ```
//!
//! Data are an object of fields or members, a text, or base64 of bytes. What is read is checked as what comes from another
//! process is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use thiserror::Error;

use crate::buffer::{Buffer, BufferError, BufferType};
use crate::field_table::FieldTable;
use crate::ubf::{JsonError, from_json, to_json};
use crate::view::{self, ViewError, ViewJsonError, struct_from_json, view_in_json};

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// Why a buffer is not written as text, or a text not read as a buffer.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error("{0}")]
    Buffer(#[from] BufferError),
    #[error("{0}")]
    Fields(#[from] JsonError),
    #[error("{0}")]
    View(#[from] ViewJsonError),
    /// The text is not what is expected.
    #[error("{0}")]
    Syntax(String),
}

impl From<ViewError> for ExportError {
    fn from(error: ViewError) -> Self {
        Self::View(error.into())
    }
}

fn syntax(what: impl Into<String>) -> ExportError {
    ExportError::Syntax(what.into())
}

/// The text of a buffer; `len` counts for those that do not say themselves how long they are.
///
/// # Errors
/// [`ExportError`].
pub fn to_text(buffer: &Buffer, len: usize, table: &FieldTable) -> Result<String, ExportError> {
    let buffer_type = buffer.buffer_type();
    let used = buffer.used_len(len)?;
    let bytes = &buffer.as_bytes()[..used];
    let mut subtype = String::new();
    let data = match buffer_type {
        BufferType::Ubf => to_json(buffer.fields()?, table)?,
        BufferType::String | BufferType::Json => {
            let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
            let text = str::from_utf8(text).map_err(|_| syntax("the text is not UTF-8"))?;
            Json::from(text).to_string()
        }
        BufferType::View | BufferType::XCType | BufferType::XCommon => {
            let view = view::of_process(buffer.subtype())?;
            subtype = format!("\"subtype\":{},", Json::from(buffer.subtype()));
            let whole = view.to_json(&buffer.as_bytes()[..view.size], false)?;
            view_in_json(&whole).map(|(_, members)| Json::Object(members).to_string())?
        }
        _ => Json::from(STANDARD.encode(bytes)).to_string(),
    };
    let name = Json::from(buffer_type.name());
    Ok(format!("{{\"buftype\":{name},\"version\":{VERSION},{subtype}\"data\":{data}}}"))
}

/// The buffer of a text, and how many of its bytes hold something.
///
/// # Errors
/// [`ExportError`].
pub fn from_text(text: &str, table: &FieldTable) -> Result<(Buffer, usize), ExportError> {
    let read: Json = serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?;
    let Json::Object(tags) = read else { return Err(syntax("an object is expected: {...}")) };
    let word = |name: &str| {
        let found = tags.get(name).and_then(Json::as_str);
        found.ok_or_else(|| syntax(format!("a text is expected as \"{name}\"")))
    };
    if tags.get("version").and_then(Json::as_u64) != Some(VERSION) {
        return Err(syntax(format!("\"version\":{VERSION} is expected")));
    }
    let buffer_type = BufferType::from_name(word("buftype")?)?;
    let data = tags.get("data").ok_or_else(|| syntax("\"data\" is expected"))?;
    match buffer_type {
        BufferType::Ubf => {
            let fields = from_json(&data.to_string(), table)?;
            let bytes = fields.used_bytes();
            let buffer = Buffer::from_wire(buffer_type.name(), "", bytes.len(), bytes)?;
            Ok((buffer, bytes.len()))
        }
        BufferType::View | BufferType::XCType | BufferType::XCommon => {
            let view = view::of_process(word("subtype")?)?;
            let Json::Object(members) = data else {
                return Err(syntax("an object of members is expected as \"data\""));
            };
            let made = struct_from_json(view, members)?;
            let mut buffer = Buffer::alloc(buffer_type.name(), &view.name, made.len())?;
            buffer.as_bytes_mut()[..made.len()].copy_from_slice(&made);
            Ok((buffer, made.len()))
        }
        BufferType::String | BufferType::Json => {
            let mut bytes = word("data")?.as_bytes().to_vec();
            bytes.push(0);
            Ok((Buffer::from_wire(buffer_type.name(), "", bytes.len(), &bytes)?, bytes.len()))
        }
        _ => {
            let bytes = STANDARD.decode(word("data")?);
            let bytes = bytes.map_err(|_| syntax("base64 is expected as \"data\""))?;
            Ok((Buffer::from_wire(buffer_type.name(), "", bytes.len(), &bytes)?, bytes.len()))
        }
    }
}

/// The text of base64.
///
/// # Errors
/// [`ExportError::Syntax`].
pub fn from_base64(text: &str) -> Result<String, ExportError> {
    let bytes = STANDARD.decode(text.trim()).map_err(|_| syntax("base64 is expected"))?;
    String::from_utf8(bytes).map_err(|_| syntax("what base64 holds is not UTF-8"))
}

/// A text as base64.
#[must_use]
pub fn to_base64(text: &str) -> String {
    STANDARD.encode(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::field_table::FieldFile;

    fn table() -> FieldTable {
        let file =
            FieldFile::parse(Path::new("f.fd"), "NAME 1 string\nAGE 2 long\n").expect("sound");
        let mut table = FieldTable::new();
        table.insert(&file).expect("new");
        table
    }

    #[test]
    fn buffers_become_texts_and_come_back() {
        let table = table();
        for text in [
            r#"{"buftype":"UBF","version":1,"data":{"AGE":[7,8],"NAME":"Ada"}}"#,
            r#"{"buftype":"STRING","version":1,"data":"a \"b\""}"#,
            r#"{"buftype":"JSON","version":1,"data":"{}"}"#,
            r#"{"buftype":"CARRAY","version":1,"data":"AAEC"}"#,
        ] {
            let (buffer, len) = from_text(text, &table).expect(text);
            assert_eq!(to_text(&buffer, len, &table).expect(text), text);
            assert_eq!(from_base64(&to_base64(text)).expect(text), text);
        }
    }

    #[test]
    fn an_error_says_what_is_expected() {
        for (text, words) in [
            ("", "EOF"),
            ("[]", "an object is expected"),
            (r#"{"buftype":"STRING","data":"x"}"#, "\"version\":1 is expected"),
            (r#"{"version":1,"data":"x"}"#, "a text is expected as \"buftype\""),
            (r#"{"buftype":"NONE","version":1,"data":"x"}"#, "NONE"),
            (r#"{"buftype":"STRING","version":1}"#, "\"data\" is expected"),
            (r#"{"buftype":"STRING","version":1,"data":5}"#, "a text is expected as \"data\""),
            (r#"{"buftype":"CARRAY","version":1,"data":"*"}"#, "base64"),
            (r#"{"buftype":"UBF","version":1,"data":{"X":1}}"#, "no field table has X"),
            (r#"{"buftype":"VIEW","version":1,"subtype":"NONE","data":{}}"#, "NONE"),
        ] {
            let error = from_text(text, &table()).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(from_base64("*").is_err());
    }
}
