//! Variables of the environment in texts of a file: `${NAME}`, and `${NAME:-text}` where it may not be set.
//!
//! They are put in once a text was taken out of its file, so that a value can't add anything but itself. Any other `$` is a
//! character like others.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

const EXPECTED: &str = "expected ${NAME}, or ${NAME:-text} for one that may not be set";

/// The text with the values of its variables in their places.
///
/// # Errors
/// What is wrong with one, or that it is not set, and what is expected.
pub(crate) fn expanded<'t>(
    text: &'t str,
    look_up: impl Fn(&str) -> Option<String>,
) -> Result<Cow<'t, str>, String> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        out.push_str(before);
        let (inner, tail) =
            behind.split_once('}').ok_or_else(|| format!("has ${{ without its }}; {EXPECTED}"))?;
        let (name, otherwise) = match inner.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (inner, None),
        };
        let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            return Err(format!("\"{name}\" is not the name of a variable; {EXPECTED}"));
        }
        let set = look_up(name).filter(|value| !(value.is_empty() && otherwise.is_some()));
        let value = set.or_else(|| otherwise.map(str::to_owned));
        out.push_str(&value.ok_or_else(|| {
            format!("{name} is not set in the environment; expected it there, or ${{{name}:-text}}")
        })?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// Puts the values of variables into the texts of a table. `note` is called with the byte at which a text begins whose
/// variables have none, and with what is wrong.
pub(crate) fn put_in(table: &mut DeTable<'_>, note: &mut dyn FnMut(usize, String)) {
    for (key, value) in table.iter_mut() {
        put_into(key.get_ref(), value, note);
    }
}

fn put_into(key: &str, value: &mut Spanned<DeValue<'_>>, note: &mut dyn FnMut(usize, String)) {
    let at = value.span().start;
    match value.get_mut() {
        DeValue::String(text) => match expanded(text, |name| std::env::var(name).ok()) {
            Ok(Cow::Borrowed(_)) => {}
            Ok(Cow::Owned(expanded)) => *text = Cow::Owned(expanded),
            Err(why) => note(at, format!("{key} = \"{text}\": {why}")),
        },
        DeValue::Array(items) => items.iter_mut().for_each(|item| put_into(key, item, note)),
        DeValue::Table(table) => put_in(table, note),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let set = |name: &str| match name {
            "PORT" => Some("9000".to_owned()),
            "EMPTY" => Some(String::new()),
            "ODD" => Some("${PORT}\"\n".to_owned()),
            _ => None,
        };
        expanded(text, set).map(Cow::into_owned)
    }

    #[test]
    fn variables_have_their_value_or_the_text_that_stands_for_it() {
        for (text, expected) in [
            ("host:${PORT}", "host:9000"),
            ("${PORT}${PORT:-1}", "90009000"),
            ("${NONE:-9001}/x", "9001/x"),
            ("${NONE:-}", ""),
            ("${EMPTY}", ""),
            ("${EMPTY:-x}", "x"),
            // A value is what it is.
            ("${ODD}", "${PORT}\"\n"),
            ("a$b $$ $PORT {PORT}", "a$b $$ $PORT {PORT}"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, why) in [
            ("${NONE}", "NONE is not set in the environment; expected it there, or ${NONE:-text}"),
            ("${PORT", "has ${ without its }; expected ${NAME}"),
            ("${}", "\"\" is not the name of a variable; expected ${NAME}"),
            ("${1A}", "\"1A\" is not the name"),
            ("${A B}", "\"A B\" is not the name"),
        ] {
            assert!(read(text).expect_err(text).starts_with(why), "{text}");
        }
    }
}
