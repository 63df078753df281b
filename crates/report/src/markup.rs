//! HTML text and boxes.
//!
//! What is written here is well-formed XML as well, which is how tests check a whole page. No text of
//! a result may reach a page around [`escape`].

use std::fmt;

/// How text comes into templates.
#[derive(Clone, Copy)]
pub(crate) struct Escape;

impl askama::filters::Escaper for Escape {
    fn write_escaped_str<W: fmt::Write>(&self, mut to: W, text: &str) -> fmt::Result {
        to.write_str(&escape(text))
    }
}

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
/// `what` is its name for screen readers: a chart, a table. The page's style sheet has the class
/// `scroll`, with a sign at the side where something is hidden.
#[must_use]
pub fn scroll(what: &str, body: &str) -> String {
    let name = escape(&format!("{what}, scrolls sideways"));
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{name}\">{body}</div>\n"
    )
}

/// JSON that cannot end the script element around it, nor start a comment in it.
#[must_use]
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Words that open something: a table under a chart, the rest of a long list.
#[must_use]
pub fn details(summary: &str, body: &str) -> String {
    format!("<details><summary>{}</summary>{body}</details>\n", escape(summary))
}

/// Small remarks under a chart; nothing when there are none.
#[must_use]
pub fn notes(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    format!("<ul class=\"notes\">{items}</ul>\n")
}

/// A section of the page with its heading, which begins with a capital.
#[must_use]
pub fn section(id: &str, heading: &str, body: &str) -> String {
    format!("<section id=\"{id}\"><h2>{}</h2>\n{body}</section>\n", escape(&capital(heading)))
}

/// The text with a capital at its start.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// A box with a heading, what is to be known of it, and the rest.
#[must_use]
pub fn card_of(heading: &str, about: &str, body: &str) -> String {
    let about = match about {
        "" => String::new(),
        about => format!("<p class=\"dim\">{}</p>", escape(about)),
    };
    card(&format!("<h3>{}</h3>{about}{body}", escape(heading)))
}

/// Names with values beside each other, in one strip. What is not known is greyed.
#[must_use]
pub fn strip<'a>(items: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let item = |(name, value): (&str, String)| {
        let class = if value.starts_with("n/a") { " class=\"na\"" } else { "" };
        format!("<div><dt>{}</dt><dd{class}>{}</dd></div>", escape(name), escape(&value))
    };
    let items: String = items.into_iter().map(item).collect();
    format!("<dl class=\"trust\">{items}</dl>\n")
}

/// The white box in which charts and tables stand.
#[must_use]
pub fn card(body: &str) -> String {
    format!("<div class=\"card\">{body}</div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a b='c'>&\"\u{1b}"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}");
        assert_eq!(escape_json("\"</script><!--\""), "\"\\u003c/script\\u003e\\u003c!--\"");
    }
}
