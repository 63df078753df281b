//! The outcome as JSON for programs, under a name and version that they can check.

use serde::Serialize;

use crate::Outcome;

/// What the `schema` field says.
pub const JSON_SCHEMA: &str = "pollux-load-outcome";
/// What the `version` field says; it grows when a field changes its meaning or goes away.
pub const JSON_VERSION: u32 = 4;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// The outcome as one indented JSON object: `schema`, `version`, then the fields of [`Outcome`].
///
/// Times are nanoseconds where the name ends in `_ns` or is `ns`; what is not known is `null`.
///
/// # Panics
/// Never by the outcome: all its maps have text keys.
#[must_use]
pub fn json(outcome: &Outcome) -> String {
    let document = Document { schema: JSON_SCHEMA, version: JSON_VERSION, outcome };
    let mut text = serde_json::to_string_pretty(&document).expect("plain data becomes JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::render::sample;

    #[test]
    fn a_program_finds_schema_figures_and_nulls() {
        let value: Value = serde_json::from_str(&json(&sample::outcome())).expect("JSON");
        assert_eq!(value["schema"], JSON_SCHEMA);
        assert_eq!(value["version"], JSON_VERSION);
        assert_eq!(value["totals"]["answered"], 18_600);
        assert_eq!(value["measured_s"], 12.0);
        assert_eq!(value["seconds"].as_array().map(Vec::len), Some(14));
        assert_eq!(value["findings"][0]["kind"], "delayed-ack");
        let empty: Value = serde_json::from_str(&json(&sample::empty())).expect("JSON");
        assert_eq!(empty["latency"]["mean_ns"], Value::Null);
    }
}
