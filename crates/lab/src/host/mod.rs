//! What the machine under the lab is and does.

use serde::{Deserialize, Serialize};

/// A value that could be read, or the reason why not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// What was read.
    Value {
        /// The value.
        value: T,
    },
    /// Not available here.
    Unavailable {
        /// Why.
        unavailable: String,
        /// The command that would make it available.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enable: Option<String>,
    },
}

impl<T> Reading<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value { value } => Some(value),
            Self::Unavailable { .. } => None,
        }
    }

    /// Why there is no value.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Value { .. } => None,
            Self::Unavailable { unavailable, .. } => Some(unavailable),
        }
    }
}
