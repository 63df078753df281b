//! Text that stands in a page or a drawing.

/// Text that is safe in an element and in a quoted attribute, of HTML and of XML.
///
/// Control characters but line end and tabulator, which neither of the two can carry, become
/// U+FFFD.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ if character.is_control() => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
    out
}

/// The box in which something wide scrolls, by a pointer or by the keyboard.
///
/// `what` is its name for those who listen: a chart, a table. The page's style sheet has the class
/// `scroll`, with a sign at the side where something is hidden.
#[must_use]
pub fn scroll(what: &str, body: &str) -> String {
    let name = escape(&format!("{what}, scrolls sideways"));
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{name}\">{body}</div>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_place() {
        assert_eq!(
            escape("<a href='x'>&\"\u{1}\n"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}\n"
        );
    }
}
