//! A text of TOML, taken apart: its top table, or what is wrong with its form.

use toml::Spanned;
use toml::de::DeTable;

/// The top table of a text, or each fault of its form with its byte. When the text is not TOML,
/// nothing of it is read.
pub(crate) fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Vec<(usize, String)>> {
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
