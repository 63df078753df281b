//! The start of an answer as results keep it: the first wrong one, the first redirect.
use serde::{Deserialize, Serialize};

/// The start of an answer, in printable characters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AnswerStart {
    /// Its first line, up to 200 bytes of it.
    pub status_line: String,
    /// Where its Location points to, up to 500 bytes.
    pub location: Option<String>,
    /// The first 200 bytes of its body.
    pub body: String,
    /// What was wrong with it, where its status does not say.
    pub why: Option<String>,
}

impl AnswerStart {
    /// In one line: the status line, what is wrong, the Location, the start of the body.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut words = self.in_short();
        if let Some(location) = &self.location {
            words += &format!(", Location: {location}");
        }
        if !self.body.is_empty() {
            words += &format!(", \"{}\"", self.body);
        }
        words
    }

    /// The status line, and what is wrong where that does not say it.
    #[must_use]
    pub fn in_short(&self) -> String {
        match &self.why {
            Some(why) => format!("{} ({why})", self.status_line),
            None => self.status_line.clone(),
        }
    }
}
