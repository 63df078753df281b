//! A TOML text: what is wrong with its form, and its values as they were written.
//!
//! [`Given`](crate::Given) reads tables of it; no meaning of a key is known here.

use toml::de::{DeTable, DeValue};

/// The top table of a text, or each fault of its form with its byte. When the text is not TOML,
/// nothing of it is read.
pub(crate) fn parse(text: &str) -> Result<toml::Spanned<DeTable<'_>>, Vec<(usize, String)>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut faults = Vec::new();
    let mut line_before = None;
    for error in &errors {
        let at = error.span().map_or(0, |span| span.start);
        // What follows a fault in its line follows from it.
        let line = text.get(..at).map(|before| before.matches('\n').count());
        if line_before.replace(line) != Some(line) {
            faults.push((at, format!("not TOML: {}", in_words(error.message()))));
        }
    }
    if faults.is_empty() { Ok(document) } else { Err(faults) }
}

/// What is wrong with the form, in words that do not need the grammar of TOML.
fn in_words(message: &str) -> String {
    const OF_VALUES: [&str; 5] = ["must be quoted", "float", "integer", "mantissa", "exponent"];
    if OF_VALUES.iter().any(|word| message.contains(word)) {
        return "expected a text in quotes, such as \"200ms\", a number, true, false or a list"
            .to_owned();
    }
    message.replace('\n', ", ")
}

/// The text of a single value, as a flag would have it; none for tables, lists and dates.
pub(crate) fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(
            // Other bases are written out, so that one reader serves files and flags.
            i128::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.to_string(), |number| number.to_string()),
        ),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(is_on) => Some(is_on.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Says which type was found.
pub(crate) fn found(value: &DeValue<'_>) -> String {
    let found = match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    format!("this is {found}")
}
