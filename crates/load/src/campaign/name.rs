//! Names of agents, groups and campaigns. They are parts of subjects at the broker, so what means something there (`.`,
//! `*`, `>`, blanks) is not in them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name.
const LEN_BYTES_MAX: usize = 64;

/// A name of 1 to 64 letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentName(String);

impl AgentName {
    /// The nearest name to any text, such as that of a host: what it may not hold becomes `-`.
    #[must_use]
    pub fn nearest(text: &str) -> Self {
        let fits = |letter: char| if is_plain(letter) { letter } else { '-' };
        let name: String = text.chars().take(LEN_BYTES_MAX).map(fits).collect();
        Self(if name.is_empty() { "agent".to_owned() } else { name })
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if (1..=LEN_BYTES_MAX).contains(&text.len()) && text.chars().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "\"{}\" is not a name; expected 1 to {LEN_BYTES_MAX} letters, digits, - or _",
            text.chars().take(LEN_BYTES_MAX).collect::<String>().escape_debug()
        ))
    }
}

impl TryFrom<String> for AgentName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AgentName> for String {
    fn from(name: AgentName) -> Self {
        name.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_a_subject_is_in_no_name() {
        for text in ["", "a.b", "*", ">", "a b", "a\n", "ä", &"a".repeat(65)] {
            let error = text.parse::<AgentName>().expect_err(text);
            assert!(error.contains("expected 1 to 64 letters"), "{error}");
            AgentName::nearest(text).to_string().parse::<AgentName>().expect("a name");
        }
        assert_eq!(AgentName::nearest("gen-1.example").to_string(), "gen-1-example");
        assert!(serde_json::from_str::<AgentName>("\"a.b\"").is_err());
    }
}
