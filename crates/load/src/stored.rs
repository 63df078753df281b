//! Results that were written as JSON, read back: for merging and comparing.

use serde::Deserialize;

use crate::Outcome;
use crate::render::{JSON_SCHEMA, JSON_VERSION};

/// The first version whose histograms can be read back.
const OLDEST: u32 = 4;

/// Why a text is no result that can be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// It is no JSON, or none of a load.
    #[error("not a result of pollux load: {0}")]
    Format(#[from] serde_json::Error),
    /// It is a result of something else.
    #[error("schema \"{0}\"; expected \"{JSON_SCHEMA}\", as `pollux load --json FILE` writes it")]
    Schema(String),
    /// It was written by a pollux that kept no histograms.
    #[error(
        "version {0} has no histograms; run the load again with this pollux (version {JSON_VERSION})"
    )]
    Older(u32),
    /// It was written by a newer pollux.
    #[error("version {0}, this pollux reads up to {JSON_VERSION}: use a newer one")]
    Newer(u32),
}

#[derive(Deserialize)]
struct Head {
    schema: String,
    version: u32,
}

impl Outcome {
    /// Reads what [`json`](crate::render::json) wrote.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn from_json(text: &str) -> Result<Self, StoredError> {
        let Head { schema, version } = serde_json::from_str(text)?;
        match version {
            _ if schema != JSON_SCHEMA => Err(StoredError::Schema(schema)),
            ..OLDEST => Err(StoredError::Older(version)),
            OLDEST..=JSON_VERSION => Ok(serde_json::from_str(text)?),
            _ => Err(StoredError::Newer(version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{json, sample};

    #[test]
    fn a_result_is_read_back_whole() {
        for outcome in [sample::outcome(), sample::empty()] {
            let text = json(&outcome);
            let read = Outcome::from_json(&text).expect("what was written");
            let again: serde_json::Value = serde_json::from_str(&json(&read)).expect("JSON");
            let first: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            for (key, value) in first.as_object().expect("an object") {
                // Figures of a histogram with two digits change a little when it gets three.
                if key != "seconds" {
                    assert_eq!(&again[key], value, "{key}");
                }
            }
            assert_eq!(read.seconds.len(), outcome.seconds.len());
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_they_are() {
        let of = |schema: &str, version: u32| {
            format!(r#"{{"schema": "{schema}", "version": {version}}}"#)
        };
        for (text, says) in [
            ("{".to_owned(), "not a result of pollux load: EOF"),
            (of("pollux-run", 4), "schema \"pollux-run\"; expected \"pollux-load-outcome\""),
            (of(JSON_SCHEMA, 3), "version 3 has no histograms"),
            (of(JSON_SCHEMA, JSON_VERSION + 1), "use a newer one"),
            (of(JSON_SCHEMA, JSON_VERSION), "missing field"),
        ] {
            let error = Outcome::from_json(&text).expect_err(&text).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
