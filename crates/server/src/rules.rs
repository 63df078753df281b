//! The user's rules for fields of heads, of the server's and the proxy's: set, add, remove.
//!
//! Rules apply to fields that go from end to end. What frames a message, what is about one connection,
//! and what the proxy writes itself (Host, Date, the client) is out of their reach: such a rule is a mistake
//! in the settings.

use std::fmt;

use crate::proxy::fields::{self, Kind};

/// A rule for one field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldRule {
    /// The field has this value alone.
    Set(String, String),
    /// One more line of the field.
    Add(String, String),
    /// No line of the field.
    Remove(String),
}

/// Most bytes of a name, and of a value.
const NAME_BYTES_MAX: usize = 128;
const VALUE_BYTES_MAX: usize = 4096;

impl FieldRule {
    /// Reads `set NAME: VALUE`, `add NAME: VALUE` or `remove NAME`.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (verb, rest) = text.trim().split_once(' ').unwrap_or((text, ""));
        if verb == "remove" {
            return name(rest).map(Self::Remove);
        }
        let make = match verb {
            "set" => Self::Set,
            "add" => Self::Add,
            _ => return Err(format!("\"{verb}\" is not an order; expected set, add or remove")),
        };
        let (field, value) = rest.split_once(':').ok_or("it has no \":\" behind the name")?;
        let (name, value) = (name(field)?, value.trim());
        let is_sound = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
        if !is_sound || value.len() > VALUE_BYTES_MAX {
            return Err(format!("the value has to be up to {VALUE_BYTES_MAX} characters of ASCII"));
        }
        Ok(make(name, value.to_owned()))
    }

    /// The field that it is about.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Set(name, _) | Self::Add(name, _) | Self::Remove(name) => name,
        }
    }
}

impl fmt::Display for FieldRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(name, value) => write!(f, "set {name}: {value}"),
            Self::Add(name, value) => write!(f, "add {name}: {value}"),
            Self::Remove(name) => write!(f, "remove {name}"),
        }
    }
}

/// A name that rules may be about (RFC 9110 5.6.2: a token).
fn name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_token) {
        return Err(format!("\"{name}\" is not the name of a field"));
    }
    match fields::kind(name) {
        Kind::EndToEnd => Ok(name.to_owned()),
        Kind::ForwardedFor | Kind::ForwardedOther | Kind::Forwarded => {
            Err(format!("{name} is what --x-forwarded and --forwarded are for"))
        }
        _ => Err(format!(
            "{name} frames messages, is about one connection or is the proxy's own; expected a field \
             that goes from end to end"
        )),
    }
}

/// The rules of a front end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldRules {
    /// For requests.
    pub request: Vec<FieldRule>,
    /// For answers.
    pub response: Vec<FieldRule>,
}

/// Whether a field that came goes no further.
#[inline]
pub(crate) fn drops(rules: &[FieldRule], name: &str) -> bool {
    rules
        .iter()
        .any(|rule| !matches!(rule, FieldRule::Add(..)) && rule.name().eq_ignore_ascii_case(name))
}

/// Writes the lines that rules ask for.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, rules: &[FieldRule]) {
    for rule in rules {
        if let FieldRule::Set(name, value) | FieldRule::Add(name, value) = rule {
            fields::write(out, name, value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_shown() {
        for text in ["set X-Env: prod", "add Via: 1.1 front", "remove Cookie", "set X-Empty: "] {
            assert_eq!(FieldRule::read(text).expect(text).to_string(), text);
        }
        assert_eq!(
            FieldRule::read("  set  X-A :b:c "),
            Ok(FieldRule::Set("X-A".into(), "b:c".into()))
        );
    }

    #[test]
    fn no_rule_reaches_framing_or_a_connection_or_breaks_a_line() {
        for name in [
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
            "Host",
            "Expect",
            "Proxy-Connection",
            "HTTP2-Settings",
            "Date",
            "content_length",
            "Transfer_Encoding",
            "X-Forwarded-For",
            "Forwarded",
            "Max-Forwards",
            "a b",
            "",
            "a\r\nb",
        ] {
            for text in
                [format!("set {name}: 1"), format!("add {name}: 1"), format!("remove {name}")]
            {
                assert!(FieldRule::read(&text).is_err(), "{text:?}");
            }
        }
        for text in ["set X: a\r\nY: b", "set X: \0", "set X", "drop X", "", "set X: \u{e4}"] {
            assert!(FieldRule::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_set_or_removed_is_dropped_in_any_case_and_what_is_added_stays() {
        let rules =
            ["set A: 1", "add B: 2", "remove C"].map(|text| FieldRule::read(text).expect("right"));
        let dropped = ["a", "b", "c", "d"].map(|name| drops(&rules, name));
        assert_eq!(dropped, [true, false, true, false]);
        let mut out = Vec::new();
        write(&mut out, &rules);
        assert_eq!(out, b"A: 1\r\nB: 2\r\n");
    }
}
