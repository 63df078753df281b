//! What was said of a key, by flags or by a file.

use toml::Spanned;
use toml::de::DeValue;

use crate::document::{found, scalar};
use crate::kind::Kind;

/// What was said of a key.
pub(crate) enum Said<'a> {
    Nothing,
    Flag(&'a [String]),
    File(&'a Spanned<DeValue<'a>>),
}

/// One value of a key.
#[derive(Clone, Copy)]
pub(crate) enum Item<'a> {
    Text(&'a str),
    Value(&'a Spanned<DeValue<'a>>),
}

impl<'a> Said<'a> {
    /// Whether something was said but that a switch is off.
    pub(crate) fn is_on(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Flag(_) => true,
            Self::File(value) => !matches!(value.get_ref(), DeValue::Boolean(false)),
        }
    }

    /// The value of a key that has one: of several flags the last.
    pub(crate) fn value(&self) -> Option<Item<'a>> {
        match self {
            Self::Nothing => None,
            Self::Flag(texts) => Some(Item::Text(texts.last().map_or("", String::as_str))),
            Self::File(value) => Some(Item::Value(value)),
        }
    }

    /// The values of a key that has several; those of a flag may be divided at commas.
    pub(crate) fn items(&self, is_divided: Option<fn(&str) -> bool>) -> Vec<Item<'a>> {
        let divided = |text: &'a String| -> Vec<Item<'a>> {
            match is_divided {
                Some(is_divided) if is_divided(text) => {
                    text.split(',').map(|part| Item::Text(part.trim())).collect()
                }
                _ => vec![Item::Text(text)],
            }
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Flag(texts) => texts.iter().flat_map(divided).collect(),
            Self::File(value) => match value.get_ref() {
                DeValue::Array(items) => items.iter().map(Item::Value).collect(),
                _ => vec![Item::Value(value)],
            },
        }
    }
}

impl Item<'_> {
    /// What it is as a value of `kind`, or what is wrong with it.
    pub(crate) fn read<T: 'static>(self, kind: &Kind<T>, example: &str) -> Result<T, String> {
        match self {
            Self::Text(text) => kind.judge(text, example),
            Self::Value(value) => {
                let text = scalar(value.get_ref()).filter(|_| kind.takes(value.get_ref()));
                let text = text.ok_or_else(|| kind.refusal(&found(value.get_ref()), example))?;
                kind.judge(&text, example)
            }
        }
    }
}
