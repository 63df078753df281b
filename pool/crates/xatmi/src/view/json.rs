//! A struct as JSON, and back: `{"VIEW":{"member":1,"array":["a","b"]}}`, carrays as base64.
//!
//! Values are written and read as those of fields of the member's type are.

use serde_json::{Map, Value as Json};
use thiserror::Error;

use super::{Member, View, ViewError};
use crate::field_table::FieldTable;
use crate::ubf::{FieldId, JsonError, LAST, Ubf, add_json, json_of};

/// Why a struct is not written as JSON, or a text not read as a struct.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewJsonError {
    /// The struct, or what was put into it.
    #[error("{0}")]
    View(#[from] ViewError),
    /// The text, or a value that JSON cannot have.
    #[error("{0}")]
    Json(#[from] JsonError),
}

fn syntax(reason: impl Into<String>) -> ViewJsonError {
    JsonError::Syntax { reason: reason.into() }.into()
}

impl View {
    /// The struct as an object in one line; null values stay out where that is asked for.
    ///
    /// # Errors
    /// [`ViewError::Invalid`] for a count or a length that makes no sense, [`JsonError::Value`] for a text that is not UTF-8
    /// and for a NaN or an infinity.
    pub fn to_json(&self, data: &[u8], is_without_nulls: bool) -> Result<String, ViewJsonError> {
        let mut members = Vec::new();
        for member in &self.members {
            let mut values = Vec::new();
            for occurrence in 0..self.count(member, data)? {
                if is_without_nulls && self.is_null(member, data, occurrence)? {
                    continue;
                }
                let value = self.value(member, data, occurrence)?;
                values.push(json_of(&member.name, value, &FieldTable::new())?);
            }
            let name = Json::from(member.name.as_str());
            match values.as_slice() {
                [] => {}
                [one] if member.count == 1 => members.push(format!("{name}:{one}")),
                all => members.push(format!("{name}:[{}]", all.join(","))),
            }
        }
        let view = Json::from(self.name.as_str());
        Ok(format!("{{{view}:{{{}}}}}", members.join(",")))
    }

    /// The struct of an object of members; those that are not in it have their null values.
    fn struct_of(&self, members: &Map<String, Json>) -> Result<Vec<u8>, ViewJsonError> {
        let mut data = vec![0; self.size];
        self.init(&mut data)?;
        for (name, value) in members {
            let member = self.member(name)?;
            let values = match value {
                Json::Array(all) => all.as_slice(),
                one => std::slice::from_ref(one),
            };
            for (occurrence, value) in values.iter().enumerate() {
                self.set_json(member, &mut data, occurrence, value)?;
            }
        }
        Ok(data)
    }

    /// Gives a member what stands there; null leaves the null value.
    fn set_json(
        &self,
        member: &Member,
        data: &mut [u8],
        occurrence: usize,
        value: &Json,
    ) -> Result<(), ViewJsonError> {
        // A field of the member's type takes it.
        let id = FieldId::new(member.member_type.field_type(), 1);
        let mut fields = Ubf::new();
        add_json(&mut fields, (&member.name, id), value, &FieldTable::new())?;
        if value.is_null() {
            return Ok(());
        }
        let taken = fields.get(id, LAST).map_err(JsonError::Fields)?;
        Ok(self.set(member, data, occurrence, taken)?)
    }
}

/// The name of the view in a text, and its members.
///
/// # Errors
/// [`JsonError::Syntax`] for what is not one object with one object in it.
pub fn view_in_json(text: &str) -> Result<(String, Map<String, Json>), ViewJsonError> {
    let read: Json = serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?;
    let Json::Object(outer) = read else { return Err(syntax(EXPECTED)) };
    let mut views = outer.into_iter();
    match (views.next(), views.next()) {
        (Some((name, Json::Object(members))), None) => Ok((name, members)),
        _ => Err(syntax(EXPECTED)),
    }
}

const EXPECTED: &str = "an object with one view is expected: {\"VIEW\":{...}}";

/// The struct of a view from the members that [`view_in_json`] found.
///
/// # Errors
/// [`ViewError::NoMember`], values that members cannot have.
pub fn struct_from_json(
    view: &View,
    members: &Map<String, Json>,
) -> Result<Vec<u8>, ViewJsonError> {
    view.struct_of(members)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::view::ViewFile;

    fn view() -> View {
        let text = "VIEW CARD\nlong number - 1 - - 0\nstring names - 3 C 8 -\ndouble rate - 1 - - 1.5\n\
                    carray raw - 1 - 4 -\nchar kind - 1 - - -\nint small - 2 - - -\nEND\n";
        let mut file = ViewFile::parse(Path::new("card.v"), text).expect("sound");
        file.views.remove(0)
    }

    #[test]
    fn a_struct_becomes_an_object_and_comes_back() {
        let view = view();
        let text = r#"{"CARD":{"number":-7,"names":["ab","c"],"rate":0.25,"raw":"AQIDBA==","kind":"x","small":[1,-2]}}"#;
        let (name, members) = view_in_json(text).expect("sound");
        assert_eq!(name, "CARD");
        let data = struct_from_json(&view, &members).expect("it fits");
        assert_eq!(view.to_json(&data, false).as_deref(), Ok(text));
        let (_, none) = view_in_json(r#"{"CARD":{"names":null}}"#).expect("sound");
        let data = struct_from_json(&view, &none).expect("it fits");
        assert_eq!(view.to_json(&data, true).as_deref(), Ok(r#"{"CARD":{}}"#));
        assert!(view.to_json(&data, false).expect("text").contains(r#""rate":1.5"#));
    }

    #[test]
    fn an_error_says_what_was_wrong() {
        for (text, words) in [
            ("", "EOF"),
            ("[]", "an object with one view is expected"),
            ("{}", "an object with one view is expected"),
            (r#"{"A":{},"B":{}}"#, "an object with one view is expected"),
            (r#"{"CARD":1}"#, "an object with one view is expected"),
        ] {
            assert!(view_in_json(text).expect_err(text).to_string().contains(words), "{text}");
        }
        for (members, words) in [
            (r#"{"none":1}"#, "none"),
            (r#"{"raw":"*"}"#, "field raw: base64 is expected"),
            (r#"{"names":["a","b","c","d"]}"#, "3 is beyond names"),
            (r#"{"names":"far too long"}"#, "no space"),
            (r#"{"number":{}}"#, "field number: one value is expected"),
        ] {
            let (_, found) = view_in_json(&format!("{{\"CARD\":{members}}}")).expect("sound");
            let error = struct_from_json(&view(), &found).expect_err(members).to_string();
            assert!(error.contains(words), "{members}: {error}");
        }
    }
}
