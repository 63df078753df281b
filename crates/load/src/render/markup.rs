//! HTML text and tables.
//!
//! The page and its charts call it for every text that comes from an outcome: no text may reach
//! the page around [`escape`]. What it writes is well-formed XML as well.

use std::fmt::Write as _;

pub(super) use pollux_draw::{escape, scroll};

use super::facts::Grid;
use super::number::NA;

/// A table that scrolls inside its own box when the window is narrow.
pub(super) fn table(grid: &Grid) -> String {
    let mut out = "<table><thead><tr>".to_owned();
    let is_figure = |column: usize| grid.headings[column].starts_with('#');
    let class = |column, text: &str| match (is_figure(column), text == NA) {
        (true, true) => " class=\"num na\"",
        (true, false) => " class=\"num\"",
        (false, _) => "",
    };
    for (column, heading) in grid.headings.iter().enumerate() {
        let words = escape(heading.strip_prefix('#').unwrap_or(heading));
        let _ = write!(out, "<th scope=\"col\"{}>{words}</th>", class(column, ""));
    }
    out.push_str("</tr></thead><tbody>");
    for row in &grid.rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(column, cell), escape(cell));
        }
        out.push_str("</tr>\n");
    }
    scroll("table", &(out + "</tbody></table>"))
}

/// Words that open a table under a chart.
pub(super) fn details(summary: &str, body: &str) -> String {
    format!("<details><summary>{}</summary>{body}</details>\n", escape(summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a b='c'>&\"\u{1b}"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}");
    }

    #[test]
    fn figures_stand_right_and_missing_ones_are_greyed() {
        let row = vec!["<x>".to_owned(), NA.to_owned()];
        let html = table(&Grid { headings: vec!["name", "#p50"], rows: vec![row] });
        assert!(html.contains("<td>&lt;x&gt;</td><td class=\"num na\">n/a</td>"), "{html}");
    }
}
