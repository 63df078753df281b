//! HTML text, tables and boxes.
//!
//! What is written here is well-formed XML as well, which is how tests check a whole page. No text of
//! a result may reach a page around [`escape`].

use std::fmt::Write as _;

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

/// JSON that cannot end the script element around it, nor start a comment in it.
#[must_use]
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// One cell of a [`Table`].
pub struct Cell {
    html: String,
    class: &'static str,
    title: Option<String>,
    sort_key: Option<f64>,
}

impl Cell {
    /// Words.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { html: escape(text), class: "", title: None, sort_key: None }
    }

    /// Words of a fixed width, such as a command.
    #[must_use]
    pub fn code(text: &str) -> Self {
        Self { html: format!("<code>{}</code>", escape(text)), ..Self::text("") }
    }

    /// A figure as shown, and the number that the table is sorted by.
    #[must_use]
    pub fn number(shown: &str, value: f64) -> Self {
        let sort_key = Some(value).filter(|value| value.is_finite());
        Self { html: escape(shown), class: "num", title: None, sort_key }
    }

    /// A figure as shown, in a table that nobody sorts.
    #[must_use]
    pub fn figure(shown: &str) -> Self {
        Self { class: "num", ..Self::text(shown) }
    }

    /// A greyed word in place of a figure, with the reason.
    #[must_use]
    pub fn missing(word: &str, reason: &str) -> Self {
        let title = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
        Self { html: escape(word), class: "num na", title, sort_key: None }
    }

    /// A stretch of a plot that is drawn row by row, and the number that the table is sorted by.
    #[must_use]
    pub fn drawn(svg: &str, sort_key: Option<f64>) -> Self {
        Self { html: svg.to_owned(), class: "plot", title: None, sort_key }
    }

    /// The same cell with a class.
    #[must_use]
    pub fn class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    /// The same cell with words for the pointer.
    #[must_use]
    pub fn title(self, title: &str) -> Self {
        Self { title: Some(title.to_owned()), ..self }
    }

    fn write(&self, out: &mut String) {
        out.push_str("<td");
        if !self.class.is_empty() {
            let _ = write!(out, " class=\"{}\"", self.class);
        }
        if let Some(title) = &self.title {
            let _ = write!(out, " title=\"{}\"", escape(title));
        }
        if let Some(key) = self.sort_key {
            let _ = write!(out, " data-sort=\"{key}\"");
        }
        let _ = write!(out, ">{}</td>", self.html);
    }
}

/// A table; unless it is a plot it scrolls inside its own box when the window is narrow.
pub struct Table {
    out: String,
    columns: usize,
}

impl Table {
    /// Starts a table. A heading that begins with `#` stands over figures.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        Self::begin("<table>", headings)
    }

    /// Starts one whose third column draws: it is as wide as the page and breaks its rows in two
    /// where that is narrow.
    #[must_use]
    pub fn plot(headings: &[&str; 5]) -> Self {
        Self::begin("<table class=\"rows\">", headings)
    }

    fn begin(tag: &str, headings: &[&str]) -> Self {
        let mut out = format!("{tag}<thead><tr>");
        for heading in headings {
            let (class, words) = match heading.strip_prefix('#') {
                Some(words) => (" class=\"num\"", words),
                None => ("", *heading),
            };
            let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(words));
        }
        out.push_str("</tr></thead><tbody>");
        Self { out, columns: headings.len() }
    }

    /// Starts a group of rows under a line of its own.
    pub fn group(&mut self, label: &str) {
        let _ = write!(
            self.out,
            "</tbody><tbody><tr class=\"group\"><th scope=\"colgroup\" colspan=\"{}\">{}</th></tr>",
            self.columns,
            escape(label)
        );
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[Cell]) {
        assert_eq!(cells.len(), self.columns, "a row has a cell for each heading");
        self.out.push_str("<tr>");
        for cell in cells {
            cell.write(&mut self.out);
        }
        self.out.push_str("</tr>");
    }

    /// The table's markup.
    #[must_use]
    pub fn finish(self) -> String {
        // A group line closes the body before it, which is empty when it is the first.
        let table = self.out.replace("<tbody></tbody>", "") + "</tbody></table>\n";
        if table.starts_with("<table>") { scroll("table", &table) } else { table }
    }
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

/// A section of the page with its heading.
#[must_use]
pub fn section(id: &str, heading: &str, body: &str) -> String {
    format!("<section id=\"{id}\"><h2>{}</h2>\n{body}</section>\n", escape(heading))
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

    #[test]
    fn a_table_has_its_groups_in_bodies() {
        let mut table = Table::new(&["a", "#b"]);
        table.group("first");
        table.row(&[Cell::text("x"), Cell::missing("n/a", "why \"so\"")]);
        let html = table.finish();
        assert!(!html.contains("<tbody></tbody>"), "{html}");
        assert!(
            html.contains("<td class=\"num na\" title=\"why &quot;so&quot;\">n/a</td>"),
            "{html}"
        );
    }
}
