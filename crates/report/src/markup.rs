//! HTML text and boxes, the page around a report, and text in Markdown.
//!
//! What is written here is well-formed XML as well, which is how tests check a whole page. No text of a result may
//! reach a page around [`escape`]. A page is one file with its style and, where asked for, its script; it loads
//! nothing: its own content policy forbids the browser every request. Without JavaScript it is complete.

use std::fmt;

use askama::Template;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

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
    strip_with(items, |_| "")
}

/// The same, where `hint` says what a name means; nothing where it has nothing to say.
#[must_use]
pub fn strip_with<'a>(
    items: impl IntoIterator<Item = (&'a str, String)>,
    hint: impl Fn(&str) -> &'static str,
) -> String {
    let item = |(name, value): (&str, String)| {
        let class = if value.starts_with("n/a") { " class=\"na\"" } else { "" };
        let title = match hint(name) {
            "" => String::new(),
            meaning => format!(" title=\"{}\"", escape(meaning)),
        };
        format!("<div><dt{title}>{}</dt><dd{class}>{}</dd></div>", escape(name), escape(&value))
    };
    let items: String = items.into_iter().map(item).collect();
    format!("<dl class=\"trust\">{items}</dl>\n")
}

/// The white box in which charts and tables stand.
#[must_use]
pub fn card(body: &str) -> String {
    format!("<div class=\"card\">{body}</div>\n")
}

/// A page as one HTML file, in UTF-8. The same parts give the same bytes.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    style: &'a str,
    body: &'a str,
    data: &'a str,
    script: Option<&'a str>,
}

/// A page that is read: `title` is text, `body` is markup.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    write(&Page { title, style: STYLE, body, data: "", script: None })
}

/// A page whose tables can be sorted and whose theme can be switched; `data` is markup behind the
/// body, such as the result as JSON.
#[must_use]
pub fn page_with_script(title: &str, body: &str, data: &str) -> String {
    write(&Page { title, style: STYLE, body, data, script: Some(SCRIPT) })
}

fn write(page: &Page<'_>) -> String {
    page.render().expect("a template that is checked when it is compiled, into memory")
}

/// Text in GitHub-flavoured Markdown that stays text, on one line: it can't end a table or become a link.
#[must_use]
pub fn escape_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '!' | '#' | '~' => {
                out.extend(['\\', character]);
            }
            _ if character.is_control() => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a b='c'>&\"\u{1b}"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}");
        assert_eq!(escape_json("\"</script><!--\""), "\"\\u003c/script\\u003e\\u003c!--\"");
    }

    #[test]
    fn a_page_forbids_every_request_and_script_where_it_has_none() {
        let read = page("<b> & \"c\"", "<p>body</p>");
        assert!(!read.contains("<script") && !read.contains("script-src"), "{read}");
        assert!(!read.contains("<b>") && read.contains("<p>body</p>"), "{read}");
        let scripted = page_with_script("t", "", "<i>data</i>");
        assert!(scripted.contains("script-src 'unsafe-inline'") && scripted.contains("<i>data"));
        for page in [read, scripted] {
            assert!(page.starts_with("<!DOCTYPE html>\n") && page.contains("default-src 'none'"));
            for load in ["http://", "https://", "src=", "@import", "url(", "<link"] {
                assert!(!page.contains(load), "{load}");
            }
        }
    }

    #[test]
    fn labels_cannot_end_a_table_or_become_a_link() {
        assert_eq!(escape_markdown("a|b\n[x](y)<i>"), "a\\|b \\[x\\](y)&lt;i&gt;");
    }
}
